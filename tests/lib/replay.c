/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target over files: those named good-* must be accepted, those named bad-* rejected.
 */
#include "config.h"

#include "tests/lib/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exact size on the heap, so that the sanitizers see every byte read beyond the end. */
static bool read_file(const char *path, uint8_t **data, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    rewind(file);
    uint8_t *bytes = length >= 0 ? malloc((size_t)length) : NULL;
    bool read = bytes && fread(bytes, 1, (size_t)length, file) == (size_t)length;
    fclose(file);
    if (!read) {
        free(bytes);
        return false;
    }
    *data = bytes;
    *size = (size_t)length;
    return true;
}

int main(int argc, char **argv)
{
    int wrong = 0;
    for (int i = 1; i < argc; i++) {
        uint8_t *data = NULL;
        size_t size = 0;
        const char *slash = strrchr(argv[i], '/'), *name = slash ? slash + 1 : argv[i];
        if (!read_file(argv[i], &data, &size)) {
            fprintf(stderr, "%s: cannot read\n", argv[i]);
            return 99;
        }
        bool accepted = fuzz_accepts(data, size);
        bool good = strncmp(name, "good-", 5) == 0;
        if (good != accepted) {
            fprintf(stderr, "%s: %s\n", argv[i], accepted ? "was accepted" : "was rejected");
            wrong++;
        }
        free(data);
    }
    printf("%d files, %d wrong\n", argc - 1, wrong);
    return argc < 2 || wrong > 0;
}

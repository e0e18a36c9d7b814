/* SPDX-License-Identifier: MIT
 *
 * A program that trains several times in one process, as one that searches for a learning rate
 * does: train_again TIMES OPTION... Every run must print the same, also after a run that failed.
 * With TIMES negative the first run fails (there is no such file to load). */
#include "config.h"

#include "ddp.h"

#include <stdlib.h>
#include <string.h>

static enum ddp_status run(int argc, char **argv, const char *load, char **text)
{
    size_t bytes;
    FILE *out = open_memstream(text, &bytes);
    ddp_train *train = NULL;
    if (!out)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc, argv);
    if (status == DDP_OK && load)
        status = ddp_train_set(train, "load", load);
    if (status == DDP_OK)
        status = ddp_train_run(train, out);
    ddp_train_destroy(train);
    fclose(out);
    return status;
}

/* The last line: times of epochs are in the others. */
static const char *last_line(char *text)
{
    size_t length = strlen(text);
    if (length > 0)
        text[length - 1] = '\0';
    const char *newline = strrchr(text, '\n');
    return newline ? newline + 1 : text;
}

int main(int argc, char **argv)
{
    char first[512] = "", *text = NULL;
    int times = argc > 1 ? atoi(argv[1]) : 0;
    if (times < 0) {
        enum ddp_status status = run(argc - 1, argv + 1, "/nowhere/weights", &text);
        free(text);
        if (status != DDP_ERR_IO) {
            printf("a run without its file: %s\n", ddp_status_string(status));
            return 1;
        }
        times = -times;
    }
    for (int i = 0; i < times; i++) {
        enum ddp_status status = run(argc - 1, argv + 1, NULL, &text);
        if (status != DDP_OK) {
            printf("run %d: %s\n", i, ddp_status_string(status));
            return 1;
        }
        const char *line = last_line(text);
        if (i == 0)
            snprintf(first, sizeof first, "%s", line);
        else if (strcmp(first, line) != 0) {
            printf("run %d ended in %s, the first in %s\n", i, line, first);
            return 1;
        }
        free(text);
    }
    if (*first)
        printf("%d runs: %s\n", times, first);
    return 0;
}

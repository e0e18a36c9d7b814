/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a table, of which the column y is the target, and the description of its columns. */
#include "config.h"

#include "data/describe.h"
#include "data/table_schema.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROWS 64

/* What is kept of the columns means the same when it is read again. */
static void check_description(const char *text)
{
    struct ddp_table_schema schema;
    assert(ddp_table_schema_parse(&schema, text, "description") == DDP_OK);
    char *again = ddp_table_schema_text(&schema);
    assert(!again || strcmp(again, text) == 0);
    free(again);
    ddp_table_schema_free(&schema);
}

static bool read_table(const char *path)
{
    const struct ddp_dataset_options options = {
        .path = path, .target = "y", .header_given = true, .header = true, .keep_rows = true};
    ddp_dataset *train = NULL;
    if (ddp_dataset_table.open(&options, &train, NULL) != DDP_OK) {
        ddp_dataset_close(train);
        return false;
    }
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    float *x = calloc(info->sample_values, sizeof *x);
    for (int64_t i = 0; x && i < info->sample_count && i < ROWS; i++) {
        int32_t label;
        assert(ddp_dataset_read(train, &i, 1, x, &label) == DDP_OK);
        assert(info->float_labels || (label >= 0 && label < info->class_count));
        assert(ddp_dataset_sample_name(train, i) != NULL);
        for (size_t k = 0; k < info->sample_values; k++)
            assert(x[k] - x[k] == 0); /* finite */
    }
    free(x);
    check_description(info->description);
    ddp_dataset_close(train);
    return true;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char path[64];
    const int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const bool accepted = read_table(path);
    close(fd);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: one IDX file, plain or gzip. */
#include "config.h"

#include "data/idx_file.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>

static volatile unsigned used;

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_idx_file idx = {0};
    FILE *file = size > 0 ? fmemopen((void *)(uintptr_t)data, size, "r") : fopen("/dev/null", "r");
    if (!file)
        return false;
    bool accepted = ddp_idx_file_read(&idx, file, "input", 1, DDP_IDX_MAX_DIMS) == DDP_OK;
    assert(accepted == (idx.values != NULL));
    if (accepted) {
        size_t product = 1;
        for (int i = 0; i < idx.dim_count; i++)
            product *= (size_t)idx.dims[i];
        assert(product == idx.bytes);
        for (size_t i = 0; i < idx.bytes; i++)
            used += idx.values[i];
    }
    free(idx.values);
    fclose(file);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}

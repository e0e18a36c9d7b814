/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a safetensors file with matrices of bitsandbytes' nf4, which have rows of 64. */
#include "config.h"

#include "core/blocks.h"
#include "tests/lib/fuzz.h"
#include "weights/bnb.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COLUMNS 64
#define MOST    4096 /* blocks of a matrix that is read */

static bool accepts_matrix(const ddp_safetensors *file, const struct ddp_safetensor *codes)
{
    struct ddp_bnb bnb;
    float *scales = NULL, values[DDP_BLOCK_MOST];
    const int64_t rows = (int64_t)codes->bytes * 2 / COLUMNS;
    if (ddp_bnb_find(&bnb, file, "input", codes, rows, COLUMNS) != DDP_OK)
        return false;
    const struct ddp_block *block = ddp_block_of(bnb.dtype);
    const int64_t count = (bnb.count + block->values - 1) / block->values;
    if (count > MOST || ddp_bnb_scales(&scales, &bnb) != DDP_OK)
        return false;
    uint8_t *blocks = malloc((size_t)(count * block->bytes) + 1);
    assert(blocks && ddp_bnb_blocks(&bnb, scales, 0, count, blocks) == DDP_OK);
    for (int64_t i = 0; i < count; i++) {
        ddp_blocks_unpack(block, blocks, i * block->values, block->values, values);
        assert(memcmp(blocks + i * block->bytes, &scales[i], sizeof *scales) == 0);
    }
    free(blocks);
    free(scales);
    return true;
}

/* All matrices, of which there is one. */
static bool accepts(const ddp_safetensors *file)
{
    bool all = true, some = false;
    for (size_t i = 0; i < ddp_safetensors_count(file); i++) {
        const struct ddp_safetensor *tensor = ddp_safetensors_at(file, i);
        size_t stem;
        if (!ddp_bnb_is(tensor) || ddp_bnb_belongs(tensor->name, &stem))
            continue;
        some = true;
        all = accepts_matrix(file, tensor) && all;
    }
    return some && all;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char path[64];
    ddp_safetensors *file = NULL;
    const int fd = memfd_create("bnb", 0);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const bool accepted = ddp_safetensors_open_header(&file, path, true) == DDP_OK && accepts(file);
    ddp_safetensors_close(file);
    close(fd);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}

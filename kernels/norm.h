/* SPDX-License-Identifier: MIT
 *
 * Sums of squares of fixed blocks of a flat array, the parts of a gradient's norm. Blocks lie at
 * multiples of DDP_NORM_BLOCK from the flat array's beginning, each is summed in double in one
 * order, and the norm adds the blocks in theirs, so it has the same bits however the blocks are
 * split over workers. */
#ifndef DDP_KERNELS_NORM_H
#define DDP_KERNELS_NORM_H

#include "ddp.h"

#include "kernels/check.h"

#define DDP_NORM_BLOCK 4096

/* The blocks that a flat array of n elements has. */
static inline int64_t ddp_norm_blocks(int64_t n)
{
    return n / DDP_NORM_BLOCK + (n % DDP_NORM_BLOCK != 0);
}

struct ddp_norm {
    int64_t begin, end; /* elements to sum; where they are not whole blocks, what is outside counts
                           as zero */
    const float *x;     /* element `begin`, and those behind it */
    double *sums;       /* by block, flat: written for all blocks that have elements in the range */
};

static inline enum ddp_status ddp_norm_check(const struct ddp_norm *args)
{
    if (args->begin < 0 || args->end < args->begin ||
        (args->end > args->begin && (!args->x || !args->sums)))
        return ddp_fail(DDP_ERR_INVALID, "norm: bad arguments (elements %lld to %lld)",
                        (long long)args->begin, (long long)args->end);
    return DDP_OK;
}

enum ddp_status ddp_norm(const struct ddp_norm *args, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The ordered sum under every mode: element by element over several sources, in one fixed binary
 * tree, sum(lo,hi) = sum(lo,mid) + sum(mid,hi),  mid = lo + the largest power of two below hi-lo,
 * written to one or more destinations. A block of 2^k aligned sources is a subtree, which is why
 * any split of the shards of a batch over workers gives the same bits. */
#ifndef DDP_KERNELS_REDUCE_H
#define DDP_KERNELS_REDUCE_H

#include "ddp.h"

#include "kernels/check.h"

#define DDP_REDUCE_MAX 64 /* sources, destinations */

struct ddp_reduce {
    int source_count;           /* 1 .. DDP_REDUCE_MAX */
    int destination_count;      /* 1 .. DDP_REDUCE_MAX */
    const void *const *sources; /* each (n); one may be a destination, no other overlap */
    void *const *destinations;  /* each (n) */
    int64_t count;              /* n */
    enum ddp_dtype dtype;
    enum ddp_redop op;
};

static inline enum ddp_status ddp_reduce_check(const struct ddp_reduce *args)
{
    bool missing = false;
    if (args->source_count < 1 || args->source_count > DDP_REDUCE_MAX ||
        args->destination_count < 1 || args->destination_count > DDP_REDUCE_MAX ||
        args->count < 0 || (unsigned)args->dtype > DDP_I64 || (unsigned)args->op > DDP_MAX)
        return ddp_fail(DDP_ERR_INVALID, "reduce: %d sources, %d destinations, %lld elements",
                        args->source_count, args->destination_count, (long long)args->count);
    for (int i = 0; i < args->source_count; i++)
        missing = missing || (args->count > 0 && !args->sources[i]);
    for (int i = 0; i < args->destination_count; i++)
        missing = missing || (args->count > 0 && !args->destinations[i]);
    return missing ? ddp_fail(DDP_ERR_INVALID, "reduce: an array is missing") : DDP_OK;
}

/* mid of the formula: the border between the two halves of [low, high). */
static inline int ddp_reduce_middle(int low, int high)
{
    int half = 1;
    while (half * 2 < high - low)
        half *= 2;
    return low + half;
}

/* Runs on the calling thread. */
enum ddp_status ddp_reduce(const struct ddp_reduce *args);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The ordered sum under every mode: element by element over several sources, in one fixed binary
 * tree, sum(lo,hi) = sum(lo,mid) + sum(mid,hi),  mid = lo + the largest power of two below hi-lo,
 * written to one or more destinations. A source may be the sum of a subtree already: whoever has a
 * run of leaves adds up the largest subtrees inside it, and the sum over all of those has the bits
 * of the one tree. */
#ifndef DDP_KERNELS_REDUCE_H
#define DDP_KERNELS_REDUCE_H

#include "ddp.h"

#include "kernels/check.h"

#define DDP_REDUCE_MAX    64   /* sources, destinations */
#define DDP_REDUCE_LEAVES 4096 /* leaves, and so sources, where these are sums of subtrees */
#define DDP_REDUCE_ROOTS  24   /* the most subtrees in a run of those */
#define DDP_REDUCE_DEVICE 288  /* ... in runs of 64 ranks with up to 1024 leaves */

struct ddp_reduce {
    int source_count;           /* 1 .. DDP_REDUCE_MAX, or with `ends` DDP_REDUCE_LEAVES */
    int destination_count;      /* 1 .. DDP_REDUCE_MAX */
    const void *const *sources; /* each (n); one may be a destination, no other overlap */
    void *const *destinations;  /* each (n) */
    int64_t count;              /* n */
    enum ddp_dtype dtype;
    enum ddp_redop op;
    const int *ends; /* (source_count): where each source's subtree ends, in leaves. NULL: each is
                        a leaf. GPUs add such up in float32, of at most DDP_REDUCE_DEVICE sources
                        with 1024 leaves, to one destination */
    int64_t rounded; /* of float32 sums, on the CPU: so many elements at the end are rounded to bf16
                        at each node of the tree, and at leaves with something to be added to */
};

static inline enum ddp_status ddp_reduce_check(const struct ddp_reduce *args)
{
    const int most = args->ends ? DDP_REDUCE_LEAVES : DDP_REDUCE_MAX;
    bool missing = false;
    if (args->source_count < 1 || args->source_count > most || args->destination_count < 1 ||
        args->destination_count > DDP_REDUCE_MAX || args->count < 0 || args->rounded < 0 ||
        args->rounded > args->count ||
        (args->rounded > 0 && (args->dtype != DDP_F32 || args->op != DDP_SUM)) ||
        (unsigned)args->dtype > DDP_I64 || (unsigned)args->op > DDP_MAX)
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

/* The largest subtrees of the tree over leaves [low, high) inside [begin, end), from the left:
 * `ends` gets where each ends, and their number is returned, at most DDP_REDUCE_ROOTS. */
static inline int ddp_reduce_run_roots(int low, int high, int begin, int end, int *ends)
{
    if (end <= low || high <= begin)
        return 0;
    if (begin <= low && high <= end) {
        *ends = high;
        return 1;
    }
    const int middle = ddp_reduce_middle(low, high);
    const int left = ddp_reduce_run_roots(low, middle, begin, end, ends);
    return left + ddp_reduce_run_roots(middle, high, begin, end, ends + left);
}

/* Runs on the calling thread. */
enum ddp_status ddp_reduce(const struct ddp_reduce *args);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The step of gradient accumulation: a new shard's gradient joins the partial sums to its left,
 * nearest first, destination = partial[k-1] + (... + (partial[1] + (partial[0] + leaf))), which is
 * the right-hand edge of the binary tree in reduce.h. */
#ifndef DDP_KERNELS_MERGE_H
#define DDP_KERNELS_MERGE_H

#include "ddp.h"

#include "kernels/check.h"

#define DDP_MERGE_MAX 32 /* partial sums: enough for 2^32 shards */

struct ddp_merge {
    int64_t count;
    int partial_count;            /* 0 .. DDP_MERGE_MAX; 0 copies the leaf */
    const float *const *partials; /* each (n) */
    const float *leaf;            /* (n) */
    float *destination;           /* (n) out; may equal the leaf or one of the partials */
    int64_t rounded; /* so many elements at the end: as in reduce.h; without partial sums the leaf
                        is rounded */
};

static inline enum ddp_status ddp_merge_check(const struct ddp_merge *args)
{
    bool missing = args->count > 0 && (!args->leaf || !args->destination);
    if (args->count < 0 || args->rounded < 0 || args->rounded > args->count ||
        args->partial_count < 0 || args->partial_count > DDP_MERGE_MAX)
        return ddp_fail(DDP_ERR_INVALID, "merge: %lld elements, %d partial sums",
                        (long long)args->count, args->partial_count);
    for (int p = 0; p < args->partial_count; p++)
        missing = missing || (args->count > 0 && !args->partials[p]);
    return missing ? ddp_fail(DDP_ERR_INVALID, "merge: an array is missing") : DDP_OK;
}

enum ddp_status ddp_merge(const struct ddp_merge *args, void *stream);

#endif

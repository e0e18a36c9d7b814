/* SPDX-License-Identifier: MIT
 *
 * The ordered sum under every mode: element by element over several sources, in one fixed binary
 * tree, sum(lo,hi) = sum(lo,mid) + sum(mid,hi),  mid = lo + the largest power of two below hi-lo,
 * written to one or more destinations. A block of 2^k aligned sources is a subtree, which is why
 * any split of the shards of a batch over workers gives the same bits. */
#ifndef DDP_KERNELS_REDUCE_H
#define DDP_KERNELS_REDUCE_H

#include "ddp.h"

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

/* Runs on the calling thread. */
enum ddp_status ddp_reduce(const struct ddp_reduce *args);
enum ddp_status ddp_reduce_reference(const struct ddp_reduce *args);

#endif

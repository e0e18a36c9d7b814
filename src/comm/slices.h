/* SPDX-License-Identifier: MIT
 *
 * How collectives on large arrays divide them, on the host and on devices alike. Each rank has a
 * slice, which it reduces for all or sends to all. Slices are processed piece by piece, as buffers
 * allow. */
#ifndef DDP_COMM_SLICES_H
#define DDP_COMM_SLICES_H

#include "comm/comm.h"

#include "kernels/reduce.h"

struct ddp_slices {
    char *memory;          /* of all slices */
    size_t count, element; /* elements in it, bytes of one */
    size_t grain, share;   /* elements; the first `longer` slices have a grain more than a share */
    int rank, size, longer;
    bool whole; /* every rank's slice is all of it */
    int root;   /* the only rank that has one; -1: all do */
};

/* Part of a slice, as bytes from the beginning of the memory. */
struct ddp_part {
    size_t at, bytes;
};

/* What a call works on. The slices of an all-reduce begin at multiples of `align` bytes. */
static inline struct ddp_slices ddp_slices_of(const struct ddp_comm_call *call,
                                              const struct ddp_comm_place *place, size_t align)
{
    struct ddp_slices all = {.memory = call->receive,
                             .count = call->count,
                             .element = ddp_dtype_bytes(call->dtype),
                             .grain = call->grain,
                             .rank = place->rank,
                             .size = place->size,
                             .root = -1};
    if (call->kind == DDP_COMM_REDUCE_SCATTER || call->kind == DDP_COMM_ALL_GATHER) {
        all.grain = all.count ? all.count : 1;
        all.count *= (size_t)place->size;
    } else if (call->kind == DDP_COMM_BROADCAST) {
        all.root = call->root;
    }
    if (call->kind == DDP_COMM_REDUCE_SCATTER)
        all.memory = (char *)call->send; /* which is not written, or was not const */
    if (all.grain == 0)
        all.grain = align / all.element;
    const size_t grains = all.count / all.grain + (all.count % all.grain != 0);
    all.share = grains / (size_t)all.size * all.grain;
    all.longer = (int)(grains % (size_t)all.size);
    return all;
}

/* The same as ddp_slice_begin(), without dividing again. */
static inline size_t ddp_slices_begin(const struct ddp_slices *all, int rank)
{
    const int before = rank < all->longer ? rank : all->longer;
    const size_t begin = (size_t)rank * all->share + (size_t)before * all->grain;
    if (all->whole || all->root >= 0)
        return all->whole || rank <= all->root ? 0 : all->count;
    return begin < all->count ? begin : all->count;
}

static inline size_t ddp_slices_length(const struct ddp_slices *all, int rank)
{
    const size_t end = all->whole ? all->count : ddp_slices_begin(all, rank + 1);
    return end - ddp_slices_begin(all, rank);
}

/* The first slice is as long as any, except a root's. */
static inline size_t ddp_slices_longest(const struct ddp_slices *all)
{
    return ddp_slices_length(all, all->root < 0 ? 0 : all->root);
}

static inline bool ddp_slices_even(const struct ddp_slices *all)
{
    return ddp_slices_longest(all) * (size_t)all->size == all->count;
}

/* The part of a rank's slice in elements [at, at + most). */
static inline struct ddp_part ddp_slices_part(const struct ddp_slices *all, int rank, size_t at,
                                              size_t most)
{
    const size_t length = ddp_slices_length(all, rank), from = at < length ? at : length;
    const size_t count = most < length - from ? most : length - from;
    return (struct ddp_part){.at = (ddp_slices_begin(all, rank) + from) * all->element,
                             .bytes = count * all->element};
}

/* How many elements of the part are among the last `rounded` of all. */
static inline size_t ddp_slices_rounded(const struct ddp_slices *all, struct ddp_part part,
                                        size_t rounded)
{
    const size_t count = part.bytes / all->element, end = part.at / all->element + count;
    const size_t border = all->count - rounded, most = end > border ? end - border : 0;
    return most < count ? most : count;
}

/* A sum of `count` elements over all ranks into one destination. */
static inline struct ddp_reduce ddp_slices_sum(const struct ddp_comm_call *call, int size,
                                               const void *const *sources, void *const *destination,
                                               size_t count)
{
    return (struct ddp_reduce){.source_count = size,
                               .destination_count = 1,
                               .sources = sources,
                               .destinations = destination,
                               .count = (int64_t)count,
                               .dtype = call->dtype,
                               .op = call->op};
}

#endif

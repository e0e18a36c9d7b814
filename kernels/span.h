/* SPDX-License-Identifier: MIT
 *
 * Parts of a flat array that an update treats in another way than the rest, such as the parameters
 * that weight decay leaves alone. */
#ifndef DDP_KERNELS_SPAN_H
#define DDP_KERNELS_SPAN_H

#include <stdbool.h>
#include <stdint.h>

/* Elements begin .. end-1. Lists of spans are sorted and do not overlap. */
struct ddp_span {
    int64_t begin, end;
};

/* Walks over [at, end) in pieces that lie either inside a span or outside all of them. */
struct ddp_span_walk {
    const struct ddp_span *spans;
    int count, next;
    int64_t at, end;
};

static inline struct ddp_span_walk ddp_span_walk_start(const struct ddp_span *spans, int count,
                                                       int64_t begin, int64_t end)
{
    int low = 0, high = count; /* the first span that ends behind `begin` */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (spans[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    struct ddp_span_walk walk = {spans, count, low, begin, end};
    return walk;
}

/* False when the walk is over. */
static inline bool ddp_span_walk_next(struct ddp_span_walk *walk, struct ddp_span *piece,
                                      bool *inside)
{
    if (walk->at >= walk->end)
        return false;
    int64_t until = walk->end;
    *inside = false;
    if (walk->next < walk->count) {
        const struct ddp_span *span = &walk->spans[walk->next];
        *inside = span->begin <= walk->at;
        int64_t border = *inside ? span->end : span->begin;
        if (border < until)
            until = border;
        if (*inside && until == span->end)
            walk->next++;
    }
    piece->begin = walk->at;
    piece->end = until;
    walk->at = until;
    return true;
}

#endif

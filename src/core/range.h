/* SPDX-License-Identifier: MIT
 *
 * Parts of a flat array that an update treats differently from the rest, such as the parameters
 * that weight decay leaves alone. */
#ifndef DDP_CORE_RANGE_H
#define DDP_CORE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Elements begin .. end-1. Lists of ranges are sorted and do not overlap. */
struct ddp_range {
    int64_t begin, end;
};

/* Walks over [at, end) in pieces that lie either inside a range or outside all of them. */
struct ddp_range_walk {
    const struct ddp_range *ranges;
    int count, next;
    int64_t at, end;
};

static inline struct ddp_range_walk ddp_range_walk_start(const struct ddp_range *ranges, int count,
                                                         int64_t begin, int64_t end)
{
    int low = 0, high = count; /* the first range that ends after `begin` */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ranges[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    struct ddp_range_walk walk = {ranges, count, low, begin, end};
    return walk;
}

/* False when the walk is over. */
static inline bool ddp_range_walk_next(struct ddp_range_walk *walk, struct ddp_range *piece,
                                       bool *inside)
{
    if (walk->at >= walk->end)
        return false;
    int64_t until = walk->end;
    *inside = false;
    if (walk->next < walk->count) {
        const struct ddp_range *range = &walk->ranges[walk->next];
        *inside = range->begin <= walk->at;
        int64_t border = *inside ? range->end : range->begin;
        if (border < until)
            until = border;
        if (*inside && until == range->end)
            walk->next++;
    }
    piece->begin = walk->at;
    piece->end = until;
    walk->at = until;
    return true;
}

#endif

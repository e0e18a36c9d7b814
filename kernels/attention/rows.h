/* SPDX-License-Identifier: MIT
 *
 * What attention on the CPU does with one row: of scores, of a query, of y; and which keys a query
 * sees. */
#ifndef DDP_KERNELS_ATTENTION_ROWS_H
#define DDP_KERNELS_ATTENTION_ROWS_H

#include "kernels/cpu/vmath.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

DDP_INLINE ddp_i32x16 lanes_below(int64_t n)
{
    const ddp_i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return lane < (int32_t)(n < DDP_LANES ? n : DDP_LANES);
}

/* What limits the keys of a query, beside its position. */
struct seen_by {
    int64_t window;           /* 0: none */
    const int32_t *documents; /* of its row; NULL: none */
    int64_t length;           /* all see the first keys, so many; 0: they see theirs and earlier */
};

/* The first key that query `at` sees. Later queries see no earlier ones. */
static inline int64_t first_seen(const struct seen_by *seen, int64_t at)
{
    const int64_t first = seen->window > 0 && at >= seen->window ? at - seen->window + 1 : 0;
    const int64_t begin = seen->documents ? seen->documents[at] : 0;
    return begin > first ? begin : first;
}

/* The key after the last one that it sees. */
static inline int64_t end_seen(const struct seen_by *seen, int64_t at)
{
    return seen->length > 0 ? seen->length : at + 1;
}

/* What a query sees of a block of keys, from its first one on: [first, end), whose lanes begin at
 * `start`. Nothing: all are equal. */
struct part {
    int64_t start, first, end;
};

DDP_INLINE struct part part_of(int64_t first, int64_t beyond, int64_t key, int64_t keys)
{
    const int64_t from = first > key ? first - key : 0;
    const int64_t end = beyond - key < keys ? beyond - key : keys;
    if (from >= end)
        return (struct part){0, 0, 0};
    return (struct part){from / DDP_LANES * DDP_LANES, from, end};
}

/* Zeros from `first` on, which begins lanes, to the end of those of `end`. */
DDP_INLINE void clear_lanes(float *row, int64_t first, int64_t end)
{
    const ddp_f32x16 zero = {0};
    for (; first < end; first += DDP_LANES)
        ddp_store16(row + first, zero);
}

DDP_INLINE float largest(const float *scores, int64_t n)
{
    const ddp_f32x16 lowest = ddp_splat16(-INFINITY);
    ddp_f32x16 max = lowest;
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        max = ddp_max16(max, ddp_load16(scores + i));
    if (i < n)
        max = ddp_max16(max, ddp_select16(lanes_below(n - i), ddp_load16(scores + i), lowest));
    return ddp_largest16(max);
}

/* Scores of n keys become e^(score scale - max), those behind them zeros; returns the sum. */
DDP_INLINE float exponentials(float *scores, int64_t n, int64_t keys, float scale, float max)
{
    const ddp_f32x16 zero = {0};
    ddp_f32x16 sums = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES) {
        ddp_f32x16 e = ddp_exp16_negative(ddp_load16(scores + i) * scale - max);
        sums += e;
        ddp_store16(scores + i, e);
    }
    if (i < n) {
        ddp_f32x16 e = ddp_exp16_negative(ddp_load16(scores + i) * scale - max);
        e = ddp_select16(lanes_below(n - i), e, zero);
        sums += e;
        ddp_store16(scores + i, e);
        i += DDP_LANES;
    }
    clear_lanes(scores, i, keys);
    return ddp_sum16(sums);
}

DDP_INLINE void scale_row(float *y, int64_t n, float factor)
{
    for (int64_t j = 0; j < n; j++)
        y[j] *= factor;
}

DDP_INLINE float row_dot(const float *a, const float *b, int64_t n)
{
    ddp_f32x16 sums = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        sums += ddp_load16(a + i) * ddp_load16(b + i);
    if (i < n)
        sums += ddp_load16_tail(a + i, n - i, 0) * ddp_load16_tail(b + i, n - i, 0);
    return ddp_sum16(sums);
}

#pragma GCC diagnostic pop

#endif

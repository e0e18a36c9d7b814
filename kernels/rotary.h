/* SPDX-License-Identifier: MIT
 *
 * Rotary positions (RoPE), half-split: of each head the first R features are turned in pairs, i
 * with i + R/2, by an angle that depends on the position; the others pass.
 * y[i] = x[i] cos - x[i+R/2] sin,  y[i+R/2] = x[i+R/2] cos + x[i] sin. Backward turns dy back. */
#ifndef DDP_KERNELS_ROTARY_H
#define DDP_KERNELS_ROTARY_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_rotary {
    int64_t batch, length;    /* B, T */
    int64_t heads, head_size; /* H, D */
    int64_t size;             /* R: even, at most D */
    int64_t first;            /* position of the first of the T rows */
    int64_t positions;        /* rows of the table: at least first + T */
    enum ddp_dtype dtype;     /* of x and y: DDP_F32 or DDP_BF16 */
    bool inverse;             /* turns by the negative angle: the gradient */
    bool accumulate;          /* add to what is in y; false: overwrite it */
    const float *table;       /* (positions,R): R/2 cosines, then their sines */
    const void *x;            /* (B,T,H,D) */
    void *y;                  /* (B,T,H,D) out; may be x, if it is not accumulated */
};

static inline enum ddp_status ddp_rotary_check(const struct ddp_rotary *args)
{
    const int64_t sizes[] = {args->batch, args->length, args->heads, args->head_size};
    int64_t count = 1;
    bool bad = false;
    for (int i = 0; i < 4; i++)
        bad = bad || sizes[i] < 0 || __builtin_mul_overflow(count, sizes[i], &count);
    if (bad || args->size < 0 || args->size % 2 || args->size > args->head_size)
        return ddp_fail(DDP_ERR_INVALID,
                        "rope: bad sizes (%lld x %lld rows, %lld heads of %lld, %lld turned)",
                        (long long)args->batch, (long long)args->length, (long long)args->heads,
                        (long long)args->head_size, (long long)args->size);
    if (args->first < 0 || args->first > args->positions - args->length)
        return ddp_fail(
            DDP_ERR_INVALID, "rope: %lld positions from %lld on do not fit into a table of %lld",
            (long long)args->length, (long long)args->first, (long long)args->positions);
    return ddp_check_elements("rope", count, args->table && args->x && args->y, args->dtype);
}

enum ddp_status ddp_rotary(const struct ddp_rotary *args, void *stream);

#endif

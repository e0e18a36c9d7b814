/* SPDX-License-Identifier: MIT
 *
 * The ordered sum, element by element; see reduce.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <string.h>

#define COMBINE(type, sum_type)                                                                    \
    do {                                                                                           \
        type x, y;                                                                                 \
        memcpy(&x, a, sizeof x);                                                                   \
        memcpy(&y, b, sizeof y);                                                                   \
        type result = (type)((sum_type)x + (sum_type)y);                                           \
        if (op == DDP_MIN)                                                                         \
            result = y < x ? y : x;                                                                \
        if (op == DDP_MAX)                                                                         \
            result = y > x ? y : x;                                                                \
        memcpy(out, &result, sizeof result);                                                       \
    } while (0)

/* Integers are added as unsigned numbers: they wrap. */
static void combine(enum ddp_dtype dtype, enum ddp_redop op, const void *a, const void *b,
                    void *out)
{
    if (dtype == DDP_F32)
        COMBINE(float, float);
    else if (dtype == DDP_F64)
        COMBINE(double, double);
    else if (dtype == DDP_I32)
        COMBINE(int32_t, uint32_t);
    else
        COMBINE(int64_t, uint64_t);
}

/* One element over sources [low, high), as the formula in reduce.h says it. */
static void reduce_element(const struct ddp_reduce *args, size_t size, int64_t i, int low, int high,
                           void *out)
{
    if (high - low == 1) {
        memcpy(out, (const char *)args->sources[low] + (size_t)i * size, size);
        return;
    }
    int half = 1; /* the largest power of two below high - low */
    while (half * 2 < high - low)
        half *= 2;
    char left[8], right[8];
    reduce_element(args, size, i, low, low + half, left);
    reduce_element(args, size, i, low + half, high, right);
    combine(args->dtype, args->op, left, right, out);
}

enum ddp_status ddp_reduce_reference(const struct ddp_reduce *args)
{
    enum ddp_status status = ddp_reduce_check(args);
    if (status)
        return status;
    const size_t size = ddp_dtype_bytes(args->dtype);
    for (int64_t i = 0; i < args->count; i++) {
        char value[8];
        reduce_element(args, size, i, 0, args->source_count, value);
        for (int d = 0; d < args->destination_count; d++)
            memcpy((char *)args->destinations[d] + (size_t)i * size, value, size);
    }
    return DDP_OK;
}

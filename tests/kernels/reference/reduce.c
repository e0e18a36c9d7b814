/* SPDX-License-Identifier: MIT
 *
 * The ordered sum, as the formula says it; see reduce.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <string.h>

#define BLOCK 256 /* elements that pass through the tree together */

#define COMBINE(type, sum_type)                                                                    \
    for (size_t i = 0; i < count; i++) {                                                           \
        type x, y;                                                                                 \
        memcpy(&x, (const char *)a + i * sizeof x, sizeof x);                                      \
        memcpy(&y, (const char *)b + i * sizeof y, sizeof y);                                      \
        type result = (type)((sum_type)x + (sum_type)y);                                           \
        if (op == DDP_MIN)                                                                         \
            result = y < x ? y : x;                                                                \
        if (op == DDP_MAX)                                                                         \
            result = y > x ? y : x;                                                                \
        memcpy((char *)out + i * sizeof result, &result, sizeof result);                           \
    }

/* Integers are added as unsigned numbers: they wrap. */
static void combine(enum ddp_dtype dtype, enum ddp_redop op, const void *a, const void *b,
                    size_t count, void *out)
{
    if (dtype == DDP_F32)
        COMBINE(float, float)
    else if (dtype == DDP_F64)
        COMBINE(double, double)
    else if (dtype == DDP_I32)
        COMBINE(int32_t, uint32_t)
    else
        COMBINE(int64_t, uint64_t)
}

/* `count` elements from `begin` on, over leaves [low, high), as the formula in reduce.h says it. */
static void reduce_block(const struct ddp_reduce *args, size_t begin, size_t count, int low,
                         int high, void *out)
{
    const size_t size = ddp_dtype_bytes(args->dtype);
    int source = 0;
    for (; args->ends && args->ends[source] <= low;)
        source++;
    source = args->ends ? source : low;
    if (args->ends ? args->ends[source] == high : high - low == 1) {
        memcpy(out, (const char *)args->sources[source] + begin * size, count * size);
        return;
    }
    int half = 1; /* the largest power of two below high - low */
    while (half * 2 < high - low)
        half *= 2;
    char left[BLOCK * 8], right[BLOCK * 8];
    reduce_block(args, begin, count, low, low + half, left);
    reduce_block(args, begin, count, low + half, high, right);
    combine(args->dtype, args->op, left, right, count, out);
}

enum ddp_status ddp_reduce_reference(const struct ddp_reduce *args)
{
    enum ddp_status status = ddp_reduce_check(args);
    if (status)
        return status;
    const size_t size = ddp_dtype_bytes(args->dtype), all = (size_t)args->count;
    for (size_t begin = 0, count; begin < all; begin += count) {
        char values[BLOCK * 8];
        count = all - begin < BLOCK ? all - begin : BLOCK;
        reduce_block(args, begin, count, 0,
                     args->ends ? args->ends[args->source_count - 1] : args->source_count, values);
        for (int d = 0; d < args->destination_count; d++)
            memcpy((char *)args->destinations[d] + begin * size, values, count * size);
    }
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * Attention with a cache on the CPU; see cached.h. The first positions are stored, and done by
 * ddp_attention_forward(). One position is bound by the bytes of its keys and values, which are
 * read once: a task is one head of one sample. */
#include "config.h"

#include "kernels/attention/cached.h"

#include "kernels/attention/rows.h"

#define KEYS 256 /* whose scores are made at once; a multiple of the lanes */

/* The cache of keys of one head; those of its values are `values` elements behind. */
static float *keys_of(const struct ddp_attention_cached *args, int64_t index)
{
    const int64_t b = index / args->heads, h = index % args->heads;
    return args->cache + b * args->cache_stride + h * args->capacity * args->head_size;
}

static int64_t values_behind(const struct ddp_attention_cached *args)
{
    return args->heads * args->capacity * args->head_size;
}

/* The query of one head; its key is C elements behind, its value as far again. */
static const float *query_of(const struct ddp_attention_cached *args, int64_t index)
{
    const int64_t b = index / args->heads, h = index % args->heads;
    const int64_t c = args->heads * args->head_size;
    return args->qkv + b * args->length * 3 * c + h * args->head_size;
}

static void store(const struct ddp_attention_cached *args, int64_t index)
{
    const int64_t d = args->head_size, c = args->heads * d;
    const float *from = query_of(args, index);
    float *keys = keys_of(args, index) + args->past * d, *values = keys + values_behind(args);
    for (int64_t t = 0; t < args->length; t++, from += 3 * c) {
        memcpy(keys + t * d, from + c, (size_t)d * sizeof *keys);
        memcpy(values + t * d, from + 2 * c, (size_t)d * sizeof *values);
    }
}

static void store_task(void *arg, size_t index)
{
    store(arg, (int64_t)index);
}

/* y = (old y) * factor + the sum of weights[i] values[i]. */
DDP_INLINE void add_values(float *restrict y, float factor, const float *weights,
                           const float *values, int64_t count, int64_t size)
{
    int64_t j = 0;
    for (; j + DDP_LANES <= size; j += DDP_LANES) {
        ddp_f32x16 sum = ddp_load16(y + j) * factor;
        for (int64_t i = 0; i < count; i++)
            sum += ddp_load16(values + i * size + j) * weights[i];
        ddp_store16(y + j, sum);
    }
    for (; j < size; j++) {
        float sum = y[j] * factor;
        for (int64_t i = 0; i < count; i++)
            sum += values[i * size + j] * weights[i];
        y[j] = sum;
    }
}

/* The same bits as exponentials() gives. x is not above 0. */
DDP_INLINE float exponential(float x)
{
    return ddp_exp16_negative(ddp_splat16(x))[0];
}

DDP_MULTIVERSION
static void decode(const struct ddp_attention_cached *args, int64_t index)
{
    const int64_t d = args->head_size, end = args->past + 1;
    const float *q = query_of(args, index), *keys = keys_of(args, index);
    const float *values = keys + values_behind(args);
    const float scale = 1 / sqrtf((float)d);
    float *y = args->y + index * d; /* (B,1,H,D) */
    _Alignas(64) float scores[KEYS];
    float max = 0, sum = 0;
    memset(y, 0, (size_t)d * sizeof *y);
    for (int64_t key = 0; key < end; key += KEYS) {
        const int64_t count = end - key < KEYS ? end - key : KEYS;
        for (int64_t i = 0; i < count; i++)
            scores[i] = row_dot(q, keys + (key + i) * d, d);
        float above = largest(scores, count) * scale, old = 0;
        if (key > 0) {
            above = above > max ? above : max;
            old = exponential(max - above);
        }
        max = above;
        sum = sum * old + exponentials(scores, count, KEYS, scale, max);
        add_values(y, old, scores, values + key * d, count, d);
    }
    scale_row(y, d, 1 / sum);
}

static void decode_task(void *arg, size_t index)
{
    store(arg, (int64_t)index);
    decode(arg, (int64_t)index);
}

enum ddp_status ddp_attention_cached(const struct ddp_attention_cached *args, void *stream)
{
    const enum ddp_status status = ddp_attention_check_cached(args);
    if (status || ddp_attention_cached_is_empty(args))
        return status;
    struct ddp_attention_cached copy = *args;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(args->batch * args->heads),
                 args->past > 0 ? decode_task : store_task, &copy);
    if (args->past > 0)
        return DDP_OK;
    const struct ddp_attention_forward first = {
        .batch = args->batch,
        .length = args->length,
        .heads = args->heads,
        .head_size = args->head_size,
        .dtype = DDP_F32,
        .qkv = args->qkv,
        .y = args->y,
    };
    return ddp_attention_forward(&first, stream);
}

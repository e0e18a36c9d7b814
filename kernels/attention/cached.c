/* SPDX-License-Identifier: MIT
 *
 * Attention with a cache on the CPU; see cached.h. The first positions are stored, and done by
 * ddp_attention_forward(). One position is bound by the bytes of its keys and values, which are
 * read once by the heads that share them: a task is one head of keys of one sample. */
#include "config.h"

#include "kernels/attention/cached.h"

#include "kernels/attention/rows.h"

#define KEYS 256 /* whose scores are made at once; a multiple of the lanes */

/* The cache of keys of one of their heads; those of its values are `values` elements behind. */
static float *keys_of(const struct ddp_attention_cached *args, int64_t index)
{
    const struct ddp_attention_shape *s = &args->shape;
    return args->cache + index / s->kv_heads * args->cache_stride +
           index % s->kv_heads * args->capacity * s->head_size;
}

static int64_t values_behind(const struct ddp_attention_cached *args)
{
    return args->shape.kv_heads * args->capacity * args->shape.head_size;
}

static void store(const struct ddp_attention_cached *args, int64_t index)
{
    const struct ddp_attention_shape *s = &args->shape;
    const int64_t d = s->head_size, row = index / s->kv_heads * s->length;
    const int64_t head = index % s->kv_heads * d;
    float *keys = keys_of(args, index) + args->past * d, *values = keys + values_behind(args);
    for (int64_t t = 0; t < s->length; t++) {
        memcpy(keys + t * d, args->k + (row + t) * s->k_stride + head, (size_t)d * sizeof *keys);
        memcpy(values + t * d, args->v + (row + t) * s->v_stride + head,
               (size_t)d * sizeof *values);
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

/* The one new position of query head h of sample b. */
DDP_MULTIVERSION
static void decode(const struct ddp_attention_cached *args, int64_t index, int64_t b, int64_t h)
{
    const struct ddp_attention_shape *s = &args->shape;
    const int64_t d = s->head_size, first = ddp_attention_cached_first(args), end = args->past + 1;
    const float *q = args->q + b * s->q_stride + h * d, *keys = keys_of(args, index);
    const float *values = keys + values_behind(args);
    const float scale = 1 / sqrtf((float)d);
    float *y = args->y + (b * s->heads + h) * d; /* (B,1,H,D) */
    _Alignas(64) float scores[KEYS];
    float max = 0, sum = 0;
    memset(y, 0, (size_t)d * sizeof *y);
    for (int64_t key = first; key < end; key += KEYS) {
        const int64_t count = end - key < KEYS ? end - key : KEYS;
        for (int64_t i = 0; i < count; i++)
            scores[i] = row_dot(q, keys + (key + i) * d, d);
        float above = largest(scores, count) * scale, old = 0;
        if (key > first) {
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
    const struct ddp_attention_cached *args = arg;
    const struct ddp_attention_shape *s = &args->shape;
    const int64_t b = (int64_t)index / s->kv_heads, group = s->heads / s->kv_heads;
    const int64_t first = (int64_t)index % s->kv_heads * group;
    store(args, (int64_t)index);
    for (int64_t h = first; h < first + group; h++)
        decode(args, (int64_t)index, b, h);
}

enum ddp_status ddp_attention_cached(const struct ddp_attention_cached *args, void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    const enum ddp_status status = ddp_attention_check_cached(args);
    if (status || ddp_attention_is_empty(s))
        return status;
    struct ddp_attention_cached copy = *args;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(s->batch * s->kv_heads),
                 args->past > 0 ? decode_task : store_task, &copy);
    if (args->past > 0)
        return DDP_OK;
    const struct ddp_attention_forward first = {
        .shape = *s, .q = args->q, .k = args->k, .v = args->v, .y = args->y};
    return ddp_attention_forward(&first, stream);
}

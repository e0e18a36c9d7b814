/* SPDX-License-Identifier: MIT
 *
 * Causal attention in double precision, with all scores made again wherever one is needed; see
 * attention.h. */
#include "config.h"

#include "tests/reference/reference.h"

#include <math.h>

/* Where head h of sample b lies, and how far its rows are apart. */
struct head {
    int64_t length, size;
    int64_t stride;   /* of q, k and v: 3 C */
    int64_t y_stride; /* of y: C */
    int64_t qkv, y, lse;
};

static struct head head_of(int64_t length, int64_t heads, int64_t size, int64_t index)
{
    const int64_t b = index / heads, h = index % heads, c = heads * size;
    return (struct head){
        .length = length,
        .size = size,
        .stride = 3 * c,
        .y_stride = c,
        .qkv = b * length * 3 * c + h * size,
        .y = b * length * c + h * size,
        .lse = index * length,
    };
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double score(const struct head *head, const float *q, const float *k, int64_t t, int64_t s)
{
    return dot(q + t * head->stride, k + s * head->stride, head->size) / sqrt((double)head->size);
}

static void reference_row(const struct ddp_attention_forward *args, const struct head *head,
                          int64_t t)
{
    const float *qkv = args->qkv;
    const float *q = qkv + head->qkv, *k = q + head->y_stride, *v = k + head->y_stride;
    float *y = (float *)args->y + head->y + t * head->y_stride;
    double max = -INFINITY, sum = 0;
    for (int64_t s = 0; s <= t; s++)
        max = fmax(max, score(head, q, k, t, s));
    for (int64_t s = 0; s <= t; s++)
        sum += exp(score(head, q, k, t, s) - max);
    if (args->lse)
        args->lse[head->lse + t] = (float)(max + log(sum));
    for (int64_t j = 0; j < head->size; j++) {
        double value = 0;
        for (int64_t s = 0; s <= t; s++)
            value += exp(score(head, q, k, t, s) - max) / sum * (double)v[s * head->stride + j];
        y[j] = (float)value;
    }
}

enum ddp_status ddp_attention_forward_reference(const struct ddp_attention_forward *args,
                                                void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_attention_check_forward(args);
    if (status || args->head_size == 0)
        return status;
    for (int64_t i = 0; i < args->batch * args->heads; i++) {
        const struct head head = head_of(args->length, args->heads, args->head_size, i);
        for (int64_t t = 0; t < args->length; t++)
            reference_row(args, &head, t);
    }
    return DDP_OK;
}

/* One head, as arrays of its own; strides as in struct head. */
struct rows {
    const float *q, *k, *v, *y, *dy, *lse;
    float *dq, *dk, *dv;
};

static struct rows rows_of(const struct ddp_attention_backward *args, const struct head *head)
{
    const float *y = args->y;
    const float *dy = args->dy;
    const int64_t c = head->y_stride;
    const float *qkv = (const float *)args->qkv + head->qkv;
    float *dqkv = (float *)args->dqkv + head->qkv;
    return (struct rows){
        .q = qkv,
        .k = qkv + c,
        .v = qkv + 2 * c,
        .y = y + head->y,
        .dy = dy + head->y,
        .lse = args->lse + head->lse,
        .dq = dqkv,
        .dk = dqkv + c,
        .dv = dqkv + 2 * c,
    };
}

static void reference_gradients(const struct head *head, const struct rows *rows, int64_t t)
{
    const float *dy = rows->dy + t * head->y_stride;
    const double mean = dot(dy, rows->y + t * head->y_stride, head->size);
    for (int64_t s = 0; s <= t; s++) {
        const int64_t key = s * head->stride, query = t * head->stride;
        const double p = exp(score(head, rows->q, rows->k, t, s) - (double)rows->lse[t]);
        const double dp = dot(dy, rows->v + key, head->size);
        const double gradient = p * (dp - mean) / sqrt((double)head->size);
        for (int64_t j = 0; j < head->size; j++) {
            rows->dv[key + j] += (float)(p * (double)dy[j]);
            rows->dk[key + j] += (float)(gradient * (double)rows->q[query + j]);
            rows->dq[query + j] += (float)(gradient * (double)rows->k[key + j]);
        }
    }
}

enum ddp_status ddp_attention_backward_reference(const struct ddp_attention_backward *args,
                                                 void *stream)
{
    float *dqkv = args->dqkv;
    (void)stream;
    enum ddp_status status = ddp_attention_check_backward(args);
    if (status)
        return status;
    const int64_t elements = args->batch * args->length * 3 * args->heads * args->head_size;
    for (int64_t i = 0; !args->accumulate_dqkv && i < elements; i++)
        dqkv[i] = 0;
    for (int64_t i = 0; i < args->batch * args->heads; i++) {
        const struct head head = head_of(args->length, args->heads, args->head_size, i);
        const struct rows rows = rows_of(args, &head);
        for (int64_t t = 0; t < args->length; t++)
            reference_gradients(&head, &rows, t);
    }
    return DDP_OK;
}

/* y of head h of sample b, new position t, from the keys and values in its cache. */
static void reference_cached(const struct ddp_attention_cached *args, int64_t b, int64_t h,
                             int64_t t)
{
    const int64_t d = args->head_size, c = args->heads * d, row = b * args->length + t;
    const float *q = args->qkv + row * 3 * c + h * d;
    const float *keys = args->cache + b * args->cache_stride + h * args->capacity * d;
    const float *values = keys + args->capacity * c;
    double max = -INFINITY, sum = 0;
    for (int64_t s = 0; s <= args->past + t; s++)
        max = fmax(max, dot(q, keys + s * d, d) / sqrt((double)d));
    for (int64_t s = 0; s <= args->past + t; s++)
        sum += exp(dot(q, keys + s * d, d) / sqrt((double)d) - max);
    for (int64_t j = 0; j < d; j++) {
        double value = 0;
        for (int64_t s = 0; s <= args->past + t; s++)
            value += exp(dot(q, keys + s * d, d) / sqrt((double)d) - max) / sum *
                     (double)values[s * d + j];
        args->y[row * c + h * d + j] = (float)value;
    }
}

enum ddp_status ddp_attention_cached_reference(const struct ddp_attention_cached *args,
                                               void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_attention_check_cached(args);
    if (status || ddp_attention_cached_is_empty(args))
        return status;
    const int64_t d = args->head_size, c = args->heads * d;
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t t = 0; t < args->length; t++)
            for (int64_t i = 0; i < 2 * c; i++) /* keys, then values, head by head */
                args->cache[b * args->cache_stride + (i / d * args->capacity + args->past + t) * d +
                            i % d] = args->qkv[((b * args->length + t) * 3 + 1) * c + i];
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t h = 0; h < args->heads; h++)
            for (int64_t t = 0; t < args->length; t++)
                reference_cached(args, b, h, t);
    return DDP_OK;
}

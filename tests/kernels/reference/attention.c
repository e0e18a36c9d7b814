/* SPDX-License-Identifier: MIT
 *
 * Attention in double precision, one query's scores at a time; see attention.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>

/* Where query head h of sample b lies, and how far its rows are apart. */
struct head {
    int64_t length, size, window;
    int64_t q_stride, k_stride, v_stride, y_stride;
    int64_t q, k, v, y, lse;
    const int32_t *documents;
    bool whole; /* all queries see all keys; else causal */
};

static struct head head_of(const struct ddp_attention_shape *s, int64_t index)
{
    const int64_t b = index / s->heads, h = index % s->heads;
    const int64_t row = s->bounds ? s->bounds[b] : b * s->length;
    const int64_t kv = h * s->kv_heads / s->heads;
    return (struct head){
        .length = s->bounds ? s->bounds[b + 1] - s->bounds[b] : s->length,
        .size = s->head_size,
        .window = s->window,
        .q_stride = s->q_stride,
        .k_stride = s->k_stride,
        .v_stride = s->v_stride,
        .y_stride = s->heads * s->head_size,
        .q = row * s->q_stride + h * s->head_size,
        .k = row * s->k_stride + kv * s->head_size,
        .v = row * s->v_stride + kv * s->head_size,
        .y = (row * s->heads + h) * s->head_size,
        .lse = index * s->length,
        .documents = s->documents ? s->documents + b * s->length : NULL,
        .whole = s->bounds != NULL,
    };
}

static bool sees(const struct head *head, int64_t i, int64_t j)
{
    if (head->whole)
        return true;
    return j <= i && (head->window == 0 || j > i - head->window) &&
           (!head->documents || j >= head->documents[i]);
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
    return dot(q + t * head->q_stride, k + s * head->k_stride, head->size) /
           sqrt((double)head->size);
}

/* `p` has room for a number a position. */
static void reference_row(const struct ddp_attention_forward *args, const struct head *head,
                          int64_t t, double *p)
{
    const float *q = (const float *)args->q + head->q, *k = (const float *)args->k + head->k;
    const float *v = (const float *)args->v + head->v;
    float *y = (float *)args->y + head->y + t * head->y_stride;
    double max = -INFINITY, sum = 0;
    for (int64_t s = 0; s < head->length; s++)
        if (sees(head, t, s)) {
            p[s] = score(head, q, k, t, s);
            max = fmax(max, p[s]);
        }
    for (int64_t s = 0; s < head->length; s++)
        if (sees(head, t, s)) {
            p[s] = exp(p[s] - max);
            sum += p[s];
        }
    if (args->lse)
        args->lse[head->lse + t] = (float)(max + log(sum));
    for (int64_t j = 0; j < head->size; j++) {
        double value = 0;
        for (int64_t s = 0; s < head->length; s++)
            if (sees(head, t, s))
                value += p[s] / sum * (double)v[s * head->v_stride + j];
        y[j] = (float)value;
    }
}

enum ddp_status ddp_attention_forward_reference(const struct ddp_attention_forward *args,
                                                void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_attention_check_forward(args);
    if (status || args->shape.head_size == 0)
        return status;
    double *p = malloc((size_t)(args->shape.length + 1) * sizeof *p);
    if (!p)
        return DDP_ERR_MEMORY;
    for (int64_t i = 0; i < args->shape.batch * args->shape.heads; i++) {
        const struct head head = head_of(&args->shape, i);
        for (int64_t t = 0; t < head.length; t++)
            reference_row(args, &head, t, p);
    }
    free(p);
    return DDP_OK;
}

static void reference_gradients(const struct ddp_attention_backward *args, const struct head *head,
                                int64_t t)
{
    const float *q = (const float *)args->q + head->q + t * head->q_stride;
    const float *k = (const float *)args->k + head->k, *v = (const float *)args->v + head->v;
    const float *dy = (const float *)args->dy + head->y + t * head->y_stride;
    const float *y = (const float *)args->y + head->y + t * head->y_stride;
    const double mean = dot(dy, y, head->size);
    for (int64_t s = 0; s < head->length; s++) {
        if (!sees(head, t, s))
            continue;
        const double p = exp(score(head, (const float *)args->q + head->q, k, t, s) -
                             (double)args->lse[head->lse + t]);
        const double dp = dot(dy, v + s * head->v_stride, head->size);
        const double gradient = p * (dp - mean) / sqrt((double)head->size);
        for (int64_t j = 0; j < head->size; j++) {
            if (args->dv)
                ((float *)args->dv)[head->v + s * head->v_stride + j] += (float)(p * (double)dy[j]);
            if (args->dk)
                ((float *)args->dk)[head->k + s * head->k_stride + j] +=
                    (float)(gradient * (double)q[j]);
            if (args->dq)
                ((float *)args->dq)[head->q + t * head->q_stride + j] +=
                    (float)(gradient * (double)k[s * head->k_stride + j]);
        }
    }
}

static void clear(float *rows, int64_t count, int64_t width, int64_t stride)
{
    for (int64_t i = 0; rows && i < count * width; i++)
        rows[i / width * stride + i % width] = 0;
}

enum ddp_status ddp_attention_backward_reference(const struct ddp_attention_backward *args,
                                                 void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    (void)stream;
    enum ddp_status status = ddp_attention_check_backward(args);
    if (status)
        return status;
    const int64_t rows = s->bounds ? s->bounds[s->batch] : s->batch * s->length;
    const int64_t width = s->kv_heads * s->head_size;
    if (!args->accumulate_dq)
        clear(args->dq, rows, s->heads * s->head_size, s->q_stride);
    if (!args->accumulate_dk)
        clear(args->dk, rows, width, s->k_stride);
    if (!args->accumulate_dv)
        clear(args->dv, rows, width, s->v_stride);
    for (int64_t i = 0; i < s->batch * s->heads; i++) {
        const struct head head = head_of(s, i);
        for (int64_t t = 0; t < head.length; t++)
            reference_gradients(args, &head, t);
    }
    return DDP_OK;
}

/* y of query head h of sample b, new position t, from the keys and values in its cache; `p` has
 * room for a number a position. */
static void reference_cached(const struct ddp_attention_cached *args, int64_t b, int64_t h,
                             int64_t t, double *p)
{
    const struct ddp_attention_shape *s = &args->shape;
    const int64_t d = s->head_size, row = b * s->length + t, at = args->past + t;
    const int64_t first = s->window > 0 && at >= s->window ? at - s->window + 1 : 0;
    const float *q = args->q + row * s->q_stride + h * d;
    const float *keys =
        args->cache + b * args->cache_stride + h * s->kv_heads / s->heads * args->capacity * d;
    const float *values = keys + args->capacity * s->kv_heads * d;
    double max = -INFINITY, sum = 0;
    for (int64_t i = first; i <= at; i++) {
        p[i] = dot(q, keys + i * d, d) / sqrt((double)d);
        max = fmax(max, p[i]);
    }
    for (int64_t i = first; i <= at; i++) {
        p[i] = exp(p[i] - max);
        sum += p[i];
    }
    for (int64_t j = 0; j < d; j++) {
        double value = 0;
        for (int64_t i = first; i <= at; i++)
            value += p[i] / sum * (double)values[i * d + j];
        args->y[(row * s->heads + h) * d + j] = (float)value;
    }
}

enum ddp_status ddp_attention_cached_reference(const struct ddp_attention_cached *args,
                                               void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    (void)stream;
    enum ddp_status status = ddp_attention_check_cached(args);
    if (status || ddp_attention_is_empty(s))
        return status;
    const int64_t d = s->head_size, c = s->kv_heads * d;
    for (int64_t row = 0; row < s->batch * s->length; row++)
        for (int64_t i = 0; i < c; i++) {
            float *to = args->cache + row / s->length * args->cache_stride +
                        (i / d * args->capacity + args->past + row % s->length) * d + i % d;
            to[0] = args->k[row * s->k_stride + i];
            to[c * args->capacity] = args->v[row * s->v_stride + i];
        }
    double *p = malloc((size_t)(args->past + s->length) * sizeof *p);
    if (!p)
        return DDP_ERR_MEMORY;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t t = 0; t < s->length; t++)
                reference_cached(args, b, h, t, p);
    free(p);
    return DDP_OK;
}

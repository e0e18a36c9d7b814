/* SPDX-License-Identifier: MIT
 *
 * Causal attention on the CPU; see attention.h. Scores exist only as a block of 64 queries by 256
 * keys on the stack; blocks above the diagonal are never made. A task of forward is one block of
 * queries of one head; a task of backward one head, since all its queries add to all its keys. */
#include "config.h"

#include "kernels/attention/attention.h"

#include "kernels/attention/rows.h"
#include "kernels/cpu/gemm.h"

#include <stdatomic.h>

#define QUERIES 64
#define KEYS    256 /* a multiple of QUERIES and of the lanes */

/* Where head h of sample b lies, and how far its rows are apart. */
struct head {
    int64_t length, size;
    int64_t stride;   /* of q, k and v: 3 C */
    int64_t y_stride; /* of y: C */
    int64_t qkv, y, lse;
    float scale;
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
        .scale = 1 / sqrtf((float)size),
    };
}

/* One product of a task; the first failure of any is kept. */
static void multiply(atomic_int *failed, const struct ddp_gemm *gemm)
{
    enum ddp_status status = ddp_gemm_serial(gemm);
    if (status)
        atomic_store(failed, (int)status);
}

/* queries x keys scores: rows of `from` against rows of `with`, `stride`s apart. */
static void scores_of(atomic_int *failed, float *scores, const float *from, int64_t from_stride,
                      int64_t queries, const float *with, int64_t with_stride, int64_t keys,
                      int64_t size)
{
    multiply(failed, &(struct ddp_gemm){.transpose_b = true,
                                        .m = queries,
                                        .n = keys,
                                        .k = size,
                                        .a = from,
                                        .lda = from_stride,
                                        .b = with,
                                        .ldb = with_stride,
                                        .c = scores,
                                        .ldc = KEYS});
}

/* How many of the keys [key, key+keys) query `at` sees. */
static int64_t seen(int64_t at, int64_t key, int64_t keys)
{
    const int64_t n = at - key + 1;
    return n < keys ? n : keys;
}

/* --- forward ---------------------------------------------------------------------------------- */

struct forward {
    const struct ddp_attention_forward *args;
    int64_t blocks; /* of queries */
    atomic_int failed;
};

/* What is known of a block's softmax so far. */
struct running {
    float max[QUERIES], sum[QUERIES];
};

/* Takes in the scores of one block of keys; what y holds is brought to the new maximum. */
DDP_INLINE void take_in_rows(const struct head *head, float *scores, struct running *running,
                             float *y, int64_t query, int64_t queries, int64_t key, int64_t keys)
{
    for (int64_t i = 0; i < queries; i++) {
        float *row = scores + i * KEYS;
        const int64_t n = seen(query + i, key, keys);
        float max = largest(row, n) * head->scale;
        if (key > 0) {
            max = max > running->max[i] ? max : running->max[i];
            const float old = ddp_exp16_negative(ddp_splat16(running->max[i] - max))[0];
            running->sum[i] *= old;
            if (old != 1)
                scale_row(y + i * head->y_stride, head->size, old);
        }
        running->max[i] = max;
        running->sum[i] += exponentials(row, n, keys, head->scale, max);
    }
}

DDP_MULTIVERSION
static void take_in(const struct head *head, float *scores, struct running *running, float *y,
                    int64_t query, int64_t queries, int64_t key, int64_t keys)
{
    take_in_rows(head, scores, running, y, query, queries, key, keys);
}

DDP_MULTIVERSION
static void finish_rows(const struct head *head, const struct running *running, float *y,
                        float *lse, int64_t queries)
{
    for (int64_t i = 0; i < queries; i++) {
        scale_row(y + i * head->y_stride, head->size, 1 / running->sum[i]);
        if (lse)
            lse[i] = (float)((double)running->max[i] + log((double)running->sum[i]));
    }
}

static void forward_task(void *arg, size_t index)
{
    struct forward *forward = arg;
    const struct ddp_attention_forward *args = forward->args;
    const struct head head =
        head_of(args->length, args->heads, args->head_size, (int64_t)index / forward->blocks);
    /* the longest rows first, so that none is left over at the end */
    const int64_t query = (forward->blocks - 1 - (int64_t)index % forward->blocks) * QUERIES;
    const int64_t left = head.length - query, queries = left < QUERIES ? left : QUERIES;
    const int64_t end = query + queries, c = head.y_stride;
    const float *q = (const float *)args->qkv + head.qkv + query * head.stride;
    float *y = (float *)args->y + head.y + query * c;
    _Alignas(64) float scores[QUERIES * KEYS];
    struct running running = {.sum = {0}};
    for (int64_t key = 0; key < end; key += KEYS) {
        const int64_t keys = end - key < KEYS ? end - key : KEYS;
        const float *k = (const float *)args->qkv + head.qkv + c + key * head.stride, *v = k + c;
        scores_of(&forward->failed, scores, q, head.stride, queries, k, head.stride, keys,
                  head.size);
        take_in(&head, scores, &running, y, query, queries, key, keys);
        multiply(&forward->failed, &(struct ddp_gemm){.m = queries,
                                                      .n = head.size,
                                                      .k = keys,
                                                      .a = scores,
                                                      .lda = KEYS,
                                                      .b = v,
                                                      .ldb = head.stride,
                                                      .c = y,
                                                      .ldc = c,
                                                      .beta = key > 0 ? 1 : 0});
    }
    finish_rows(&head, &running, y, args->lse ? args->lse + head.lse + query : NULL, queries);
}

enum ddp_status ddp_attention_forward(const struct ddp_attention_forward *args, void *stream)
{
    enum ddp_status status = ddp_attention_check_forward(args);
    if (status || ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size))
        return status;
    struct forward forward = {.args = args, .blocks = (args->length + QUERIES - 1) / QUERIES};
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(args->batch * args->heads * forward.blocks),
                 forward_task, &forward);
    return (enum ddp_status)atomic_load(&forward.failed);
}

/* --- backward --------------------------------------------------------------------------------- */

struct backward {
    const struct ddp_attention_backward *args;
    atomic_int failed;
};

/* One head, as arrays of its own; strides as in struct head. */
struct rows {
    const float *q, *k, *v, *y, *dy, *lse;
    float *dq, *dk, *dv;
};

/* Scores become probabilities p, and dp = dy . v becomes the gradient of the scores,
 * p (dp - dy . y) scale. */
DDP_INLINE void score_gradient_rows(const struct head *head, const struct rows *rows, float *scores,
                                    float *dp, int64_t query, int64_t queries, int64_t key,
                                    int64_t keys)
{
    const ddp_f32x16 zero = {0};
    for (int64_t i = 0; i < queries; i++) {
        const int64_t n = seen(query + i, key, keys), at = (query + i) * head->y_stride;
        const float lse = rows->lse[query + i];
        const float mean = row_dot(rows->y + at, rows->dy + at, head->size);
        float *p = scores + i * KEYS, *d = dp + i * KEYS;
        int64_t j = 0;
        for (; j < n; j += DDP_LANES) {
            const ddp_i32x16 mask = lanes_below(n - j);
            ddp_f32x16 e = ddp_exp16(ddp_load16(p + j) * head->scale - lse);
            e = ddp_select16(mask, e, zero);
            ddp_f32x16 gradient = e * (ddp_load16(d + j) - mean) * head->scale;
            ddp_store16(p + j, e);
            ddp_store16(d + j, ddp_select16(mask, gradient, zero));
        }
        for (; j < keys; j += DDP_LANES) {
            ddp_store16(p + j, zero);
            ddp_store16(d + j, zero);
        }
    }
}

DDP_MULTIVERSION
static void score_gradients(const struct head *head, const struct rows *rows, float *scores,
                            float *dp, int64_t query, int64_t queries, int64_t key, int64_t keys)
{
    score_gradient_rows(head, rows, scores, dp, query, queries, key, keys);
}

static void clear_rows(float *out, int64_t count, int64_t size, int64_t stride)
{
    for (int64_t i = 0; i < count; i++)
        memset(out + i * stride, 0, (size_t)size * sizeof *out);
}

/* out (keys, D) += weights^T in, where weights is queries x keys. */
static void add_to_keys(atomic_int *failed, const struct head *head, float *out,
                        const float *weights, int64_t keys, const float *in, int64_t in_stride,
                        int64_t queries)
{
    multiply(failed, &(struct ddp_gemm){.transpose_a = true,
                                        .m = keys,
                                        .n = head->size,
                                        .k = queries,
                                        .a = weights,
                                        .lda = KEYS,
                                        .b = in,
                                        .ldb = in_stride,
                                        .c = out,
                                        .ldc = head->stride,
                                        .beta = 1});
}

/* The gradients that one block of queries and one of keys give each other. */
static void backward_block(atomic_int *failed, const struct head *head, const struct rows *rows,
                           int64_t query, int64_t queries, int64_t key, int64_t keys)
{
    _Alignas(64) float scores[QUERIES * KEYS], dp[QUERIES * KEYS];
    const int64_t step = head->stride, c = head->y_stride;
    const float *q = rows->q + query * step, *dy = rows->dy + query * c;
    const float *k = rows->k + key * step, *v = rows->v + key * step;
    scores_of(failed, scores, q, step, queries, k, step, keys, head->size);
    scores_of(failed, dp, dy, c, queries, v, step, keys, head->size);
    score_gradients(head, rows, scores, dp, query, queries, key, keys);
    add_to_keys(failed, head, rows->dv + key * step, scores, keys, dy, c, queries);
    add_to_keys(failed, head, rows->dk + key * step, dp, keys, q, step, queries);
    multiply(failed, &(struct ddp_gemm){.m = queries,
                                        .n = head->size,
                                        .k = keys,
                                        .a = dp,
                                        .lda = KEYS,
                                        .b = k,
                                        .ldb = step,
                                        .c = rows->dq + query * step,
                                        .ldc = step,
                                        .beta = 1});
}

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

static void backward_task(void *arg, size_t index)
{
    struct backward *backward = arg;
    const struct ddp_attention_backward *args = backward->args;
    const struct head head = head_of(args->length, args->heads, args->head_size, (int64_t)index);
    const struct rows rows = rows_of(args, &head);
    if (!args->accumulate_dqkv) {
        clear_rows(rows.dq, head.length, head.size, head.stride);
        clear_rows(rows.dk, head.length, head.size, head.stride);
        clear_rows(rows.dv, head.length, head.size, head.stride);
    }
    for (int64_t query = 0; query < head.length; query += QUERIES) {
        const int64_t left = head.length - query, queries = left < QUERIES ? left : QUERIES;
        const int64_t end = query + queries;
        for (int64_t key = 0; key < end; key += KEYS)
            backward_block(&backward->failed, &head, &rows, query, queries, key,
                           end - key < KEYS ? end - key : KEYS);
    }
}

enum ddp_status ddp_attention_backward(const struct ddp_attention_backward *args, void *stream)
{
    enum ddp_status status = ddp_attention_check_backward(args);
    if (status || ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size))
        return status;
    struct backward backward = {.args = args};
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(args->batch * args->heads), backward_task,
                 &backward);
    return (enum ddp_status)atomic_load(&backward.failed);
}

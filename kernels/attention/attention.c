/* SPDX-License-Identifier: MIT
 *
 * Attention on the CPU; see attention.h. Scores exist only as a block of 64 queries by 256
 * keys on the stack; blocks that no query sees are never made. A task of forward is one block of
 * queries of one head; a task of backward one query head, since all its queries add to all its
 * keys. Query heads that share keys add to arrays of their own, which are added up afterwards in
 * the order of the heads: as many tasks whatever the number of heads of keys. */
#include "config.h"

#include "core/portable_math.h"
#include "kernels/attention/attention.h"

#include "kernels/attention/rows.h"
#include "kernels/cpu/gemm.h"

#include <stdatomic.h>

#define QUERIES 64
#define KEYS    256 /* a multiple of QUERIES and of the lanes */

/* Where query head h of sample b lies, and how far its rows are apart. */
struct head {
    int64_t length, size;
    int64_t q_stride, k_stride, v_stride, y_stride;
    int64_t q, k, v, y, lse;
    struct seen_by seen;
    float scale;
};

static struct head head_of(const struct ddp_attention_shape *s, int64_t index)
{
    const int64_t b = index / s->heads, h = index % s->heads;
    const int64_t row = s->bounds ? s->bounds[b] : b * s->length;
    const int64_t whole = s->bounds ? s->bounds[b + 1] - row : 0; /* 0: it is causal */
    const int64_t kv = h / (s->heads / s->kv_heads) * s->head_size;
    return (struct head){
        .length = whole ? whole : s->length,
        .size = s->head_size,
        .q_stride = s->q_stride,
        .k_stride = s->k_stride,
        .v_stride = s->v_stride,
        .y_stride = s->heads * s->head_size,
        .q = row * s->q_stride + h * s->head_size,
        .k = row * s->k_stride + kv,
        .v = row * s->v_stride + kv,
        .y = (row * s->heads + h) * s->head_size,
        .lse = index * s->length,
        .seen = {s->window, s->documents ? s->documents + row : NULL, whole},
        .scale = 1 / sqrtf((float)s->head_size),
    };
}

/* Positions of a row begin their documents in order, and at or before themselves. */
static enum ddp_status check_seen(const struct ddp_attention_shape *s)
{
    if (s->bounds && (s->bounds[0] != 0 || s->kv_heads != s->heads))
        return ddp_fail(DDP_ERR_INVALID, "attention: texts begin at 0, and heads are not shared");
    for (int64_t b = 0; s->bounds && b < s->batch; b++)
        if (s->bounds[b + 1] <= s->bounds[b] || s->bounds[b + 1] - s->bounds[b] > s->length)
            return ddp_fail(
                DDP_ERR_INVALID, "attention: text %lld, from %d to %d, is not of 1 to %lld tokens",
                (long long)b, (int)s->bounds[b], (int)s->bounds[b + 1], (long long)s->length);
    for (int64_t i = 0; s->documents && i < s->batch * s->length; i++) {
        const int64_t t = i % s->length, begin = s->documents[i];
        const int64_t least = t > 0 ? s->documents[i - 1] : 0;
        if (begin < least || begin > t)
            return ddp_fail(DDP_ERR_INVALID,
                            "attention: row %lld, position %lld: its document begins at %lld, "
                            "which is not from %lld to %lld",
                            (long long)(i / s->length), (long long)t, (long long)begin,
                            (long long)least, (long long)t);
    }
    return DDP_OK;
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

static void clear_rows(float *out, int64_t count, int64_t size, int64_t stride)
{
    for (int64_t i = 0; out && i < count; i++)
        memset(out + i * stride, 0, (size_t)size * sizeof *out);
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
        const int64_t first = first_seen(&head->seen, query + i);
        const struct part part = part_of(first, end_seen(&head->seen, query + i), key, keys);
        clear_lanes(row, 0, part.start);
        if (part.start == part.end) {
            clear_lanes(row, part.start, keys);
            continue;
        }
        for (int64_t j = part.start; j < part.first; j++)
            row[j] = -INFINITY;
        row += part.start;
        const int64_t n = part.end - part.start;
        float max = largest(row, n) * head->scale;
        if (first < key) {
            max = max > running->max[i] ? max : running->max[i];
            const float old = ddp_exp16_negative(ddp_splat16(running->max[i] - max))[0];
            running->sum[i] *= old;
            if (old != 1)
                scale_row(y + i * head->y_stride, head->size, old);
        }
        running->max[i] = max;
        running->sum[i] += exponentials(row, n, keys - part.start, head->scale, max);
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
            lse[i] = (float)((double)running->max[i] + ddp_math_log((double)running->sum[i]));
    }
}

static void forward_task(void *arg, size_t index)
{
    struct forward *forward = arg;
    const struct ddp_attention_forward *args = forward->args;
    const struct head head = head_of(&args->shape, (int64_t)index / forward->blocks);
    /* the longest rows first, so that none is left over at the end */
    const int64_t query = (forward->blocks - 1 - (int64_t)index % forward->blocks) * QUERIES;
    const int64_t left = head.length - query, queries = left < QUERIES ? left : QUERIES;
    if (queries <= 0) /* of a text that is shorter than others */
        return;
    const int64_t first = first_seen(&head.seen, query);
    const int64_t end = end_seen(&head.seen, query + queries - 1);
    const float *q = (const float *)args->q + head.q + query * head.q_stride;
    float *y = (float *)args->y + head.y + query * head.y_stride;
    _Alignas(64) float scores[QUERIES * KEYS];
    struct running running = {.sum = {0}};
    for (int64_t key = first; key < end; key += KEYS) {
        const int64_t keys = end - key < KEYS ? end - key : KEYS;
        const float *k = (const float *)args->k + head.k + key * head.k_stride;
        const float *v = (const float *)args->v + head.v + key * head.v_stride;
        scores_of(&forward->failed, scores, q, head.q_stride, queries, k, head.k_stride, keys,
                  head.size);
        take_in(&head, scores, &running, y, query, queries, key, keys);
        multiply(&forward->failed, &(struct ddp_gemm){.m = queries,
                                                      .n = head.size,
                                                      .k = keys,
                                                      .a = scores,
                                                      .lda = KEYS,
                                                      .b = v,
                                                      .ldb = head.v_stride,
                                                      .c = y,
                                                      .ldc = head.y_stride,
                                                      .beta = key > first ? 1 : 0});
    }
    finish_rows(&head, &running, y, args->lse ? args->lse + head.lse + query : NULL, queries);
}

enum ddp_status ddp_attention_forward(const struct ddp_attention_forward *args, void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    enum ddp_status status = ddp_attention_check_forward(args);
    if (status || ddp_attention_is_empty(s) || (status = check_seen(s)) != DDP_OK)
        return status;
    struct forward forward = {.args = args, .blocks = (s->length + QUERIES - 1) / QUERIES};
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(s->batch * s->heads * forward.blocks),
                 forward_task, &forward);
    return (enum ddp_status)atomic_load(&forward.failed);
}

/* --- backward --------------------------------------------------------------------------------- */

struct backward {
    const struct ddp_attention_backward *args;
    bool apart;     /* the gradients of keys and values go to the scratch */
    int64_t blocks; /* of keys, when they are added up */
    atomic_int failed;
};

/* One query head, as arrays of its own; strides as in struct head, except dk and dv. */
struct rows {
    const float *q, *k, *v, *y, *dy, *lse;
    float *dq, *dk, *dv; /* NULL: not needed */
    int64_t dk_stride, dv_stride;
};

/* Scores become probabilities p, and dp = dy . v becomes the gradient of the scores,
 * p (dp - dy . y) scale. */
DDP_INLINE void score_gradient_rows(const struct head *head, const struct rows *rows, float *scores,
                                    float *dp, int64_t query, int64_t queries, int64_t key,
                                    int64_t keys)
{
    const ddp_f32x16 zero = {0};
    for (int64_t i = 0; i < queries; i++) {
        const struct part part = part_of(first_seen(&head->seen, query + i),
                                         end_seen(&head->seen, query + i), key, keys);
        const int64_t at = (query + i) * head->y_stride;
        const float lse = rows->lse[query + i];
        const float mean = row_dot(rows->y + at, rows->dy + at, head->size);
        float *p = scores + i * KEYS, *d = dp + i * KEYS;
        clear_lanes(p, 0, part.start);
        clear_lanes(d, 0, part.start);
        int64_t j = part.start;
        for (; j < part.end; j += DDP_LANES) {
            const ddp_i32x16 mask = lanes_below(part.end - j) & ~lanes_below(part.first - j);
            ddp_f32x16 e = ddp_exp16(ddp_load16(p + j) * head->scale - lse);
            e = ddp_select16(mask, e, zero);
            ddp_f32x16 gradient = e * (ddp_load16(d + j) - mean) * head->scale;
            ddp_store16(p + j, e);
            ddp_store16(d + j, ddp_select16(mask, gradient, zero));
        }
        clear_lanes(p, j, keys);
        clear_lanes(d, j, keys);
    }
}

DDP_MULTIVERSION
static void score_gradients(const struct head *head, const struct rows *rows, float *scores,
                            float *dp, int64_t query, int64_t queries, int64_t key, int64_t keys)
{
    score_gradient_rows(head, rows, scores, dp, query, queries, key, keys);
}

/* out (keys, D) += weights^T in, where weights is queries x keys. */
static void add_to_keys(atomic_int *failed, int64_t size, float *out, int64_t out_stride,
                        const float *weights, int64_t keys, const float *in, int64_t in_stride,
                        int64_t queries)
{
    multiply(failed, &(struct ddp_gemm){.transpose_a = true,
                                        .m = keys,
                                        .n = size,
                                        .k = queries,
                                        .a = weights,
                                        .lda = KEYS,
                                        .b = in,
                                        .ldb = in_stride,
                                        .c = out,
                                        .ldc = out_stride,
                                        .beta = 1});
}

/* The gradients that one block of queries and one of keys give each other. */
static void backward_block(atomic_int *failed, const struct head *head, const struct rows *rows,
                           int64_t query, int64_t queries, int64_t key, int64_t keys)
{
    _Alignas(64) float scores[QUERIES * KEYS], dp[QUERIES * KEYS];
    const int64_t c = head->y_stride;
    const float *q = rows->q + query * head->q_stride, *dy = rows->dy + query * c;
    const float *k = rows->k + key * head->k_stride, *v = rows->v + key * head->v_stride;
    scores_of(failed, scores, q, head->q_stride, queries, k, head->k_stride, keys, head->size);
    scores_of(failed, dp, dy, c, queries, v, head->v_stride, keys, head->size);
    score_gradients(head, rows, scores, dp, query, queries, key, keys);
    if (rows->dv)
        add_to_keys(failed, head->size, rows->dv + key * rows->dv_stride, rows->dv_stride, scores,
                    keys, dy, c, queries);
    if (rows->dk)
        add_to_keys(failed, head->size, rows->dk + key * rows->dk_stride, rows->dk_stride, dp, keys,
                    q, head->q_stride, queries);
    if (rows->dq)
        multiply(failed, &(struct ddp_gemm){.m = queries,
                                            .n = head->size,
                                            .k = keys,
                                            .a = dp,
                                            .lda = KEYS,
                                            .b = k,
                                            .ldb = head->k_stride,
                                            .c = rows->dq + query * head->q_stride,
                                            .ldc = head->q_stride,
                                            .beta = 1});
}

/* The gradients of keys and values that query head `index` has in the scratch. */
static float *apart_of(const struct ddp_attention_backward *args, int64_t index, bool values)
{
    const int64_t count = args->shape.length * args->shape.head_size;
    return args->scratch + (2 * index + values) * count;
}

static float *gradient_at(void *gradient, int64_t at)
{
    return gradient ? (float *)gradient + at : NULL;
}

static struct rows rows_of(const struct backward *backward, const struct head *head, int64_t index)
{
    const struct ddp_attention_backward *args = backward->args;
    struct rows rows = {
        .q = (const float *)args->q + head->q,
        .k = (const float *)args->k + head->k,
        .v = (const float *)args->v + head->v,
        .y = (const float *)args->y + head->y,
        .dy = (const float *)args->dy + head->y,
        .lse = args->lse + head->lse,
        .dq = gradient_at(args->dq, head->q),
        .dk = gradient_at(args->dk, head->k),
        .dv = gradient_at(args->dv, head->v),
        .dk_stride = head->k_stride,
        .dv_stride = head->v_stride,
    };
    if (backward->apart) {
        rows.dk_stride = rows.dv_stride = head->size;
        rows.dk = args->dk ? apart_of(args, index, false) : NULL;
        rows.dv = args->dv ? apart_of(args, index, true) : NULL;
    }
    return rows;
}

static void backward_task(void *arg, size_t index)
{
    struct backward *backward = arg;
    const struct ddp_attention_backward *args = backward->args;
    const struct head head = head_of(&args->shape, (int64_t)index);
    const struct rows rows = rows_of(backward, &head, (int64_t)index);
    if (!args->accumulate_dq)
        clear_rows(rows.dq, head.length, head.size, head.q_stride);
    if (backward->apart || !args->accumulate_dk)
        clear_rows(rows.dk, head.length, head.size, rows.dk_stride);
    if (backward->apart || !args->accumulate_dv)
        clear_rows(rows.dv, head.length, head.size, rows.dv_stride);
    for (int64_t query = 0; query < head.length; query += QUERIES) {
        const int64_t left = head.length - query, queries = left < QUERIES ? left : QUERIES;
        const int64_t end = end_seen(&head.seen, query + queries - 1);
        for (int64_t key = first_seen(&head.seen, query); key < end; key += KEYS)
            backward_block(&backward->failed, &head, &rows, query, queries, key,
                           end - key < KEYS ? end - key : KEYS);
    }
}

/* to = (what is there, if it adds) + the row of each head, in their order; these are `apart`
 * elements from each other. */
DDP_INLINE void add_heads_block(float *to, bool add, const float *from, int64_t apart,
                                int64_t heads, int64_t size)
{
    int64_t j = 0;
    for (; j + DDP_LANES <= size; j += DDP_LANES) {
        ddp_f32x16 sum = ddp_load16(from + j);
        for (int64_t h = 1; h < heads; h++)
            sum += ddp_load16(from + h * apart + j);
        ddp_store16(to + j, add ? ddp_load16(to + j) + sum : sum);
    }
    for (; j < size; j++) {
        float sum = from[j];
        for (int64_t h = 1; h < heads; h++)
            sum += from[h * apart + j];
        to[j] = add ? to[j] + sum : sum;
    }
}

DDP_MULTIVERSION
static void add_heads(float *to, bool add, const float *from, int64_t apart, int64_t heads,
                      int64_t size)
{
    add_heads_block(to, add, from, apart, heads, size);
}

/* A block of keys of one of their heads. */
static void add_up_task(void *arg, size_t index)
{
    struct backward *backward = arg;
    const struct ddp_attention_backward *args = backward->args;
    const struct ddp_attention_shape *s = &args->shape;
    const int64_t group = s->heads / s->kv_heads, d = s->head_size;
    const int64_t first_head = (int64_t)index / backward->blocks * group;
    const struct head head = head_of(s, first_head);
    const int64_t first = (int64_t)index % backward->blocks * QUERIES;
    const int64_t end = first + QUERIES < s->length ? first + QUERIES : s->length;
    const float *dk = apart_of(args, first_head, false), *dv = apart_of(args, first_head, true);
    for (int64_t t = first; t < end; t++) {
        if (args->dk)
            add_heads(gradient_at(args->dk, head.k + t * head.k_stride), args->accumulate_dk,
                      dk + t * d, 2 * s->length * d, group, d);
        if (args->dv)
            add_heads(gradient_at(args->dv, head.v + t * head.v_stride), args->accumulate_dv,
                      dv + t * d, 2 * s->length * d, group, d);
    }
}

enum ddp_status ddp_attention_backward(const struct ddp_attention_backward *args, void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    enum ddp_status status = ddp_attention_check_backward(args);
    if (status || ddp_attention_is_empty(s) || (status = check_seen(s)) != DDP_OK)
        return status;
    const bool apart = s->kv_heads < s->heads && (args->dk || args->dv);
    if (apart && !args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "attention backward: scratch is NULL");
    struct backward backward = {
        .args = args, .apart = apart, .blocks = (s->length + QUERIES - 1) / QUERIES};
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(s->batch * s->heads), backward_task, &backward);
    if (apart)
        ddp_pool_run(ddp_stream_pool(stream), (size_t)(s->batch * s->kv_heads * backward.blocks),
                     add_up_task, &backward);
    return (enum ddp_status)atomic_load(&backward.failed);
}

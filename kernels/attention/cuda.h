/* SPDX-License-Identifier: MIT
 *
 * What the CUDA versions of attention share, and the entry of the one on tensor cores. Private to
 * this folder. */
#ifndef DDP_KERNELS_ATTENTION_CUDA_H
#define DDP_KERNELS_ATTENTION_CUDA_H

#include "kernels/attention/attention.h"
#include "kernels/cuda/cuda.h"

#include <math.h>

/* The shape, and which heads of the batch a launch is for. */
struct ddp_heads {
    int64_t length, size; /* T, D */
    int64_t heads;        /* of a token's queries */
    int64_t group;        /* heads of queries that share one of keys */
    int64_t q_stride, k_stride, v_stride;
    int64_t first;  /* head of queries of the batch that this launch begins with; of a group */
    int64_t count;  /* heads of queries of this launch, of whole groups */
    int64_t blocks; /* of rows, per head */
    float scale;
    float log2_scale;         /* of scores that are exponents of 2 */
    bool wide;                /* rows may be read in accesses of four elements */
    bool bounded;             /* queries do not see all keys before them, because of: */
    int window;               /* at most the length */
    const int32_t *documents; /* or NULL */
};

struct ddp_attention_gradient {
    const void *q, *k, *v, *dy;
    const float *lse;
    const float *mean;  /* dy . y of each query, from the head `first` on */
    void *dq, *dk, *dv; /* NULL: not needed */
    bool add_q, add_k, add_v;
};

/* mean[i] = dy . y of query i, of all heads of the launch. */
void ddp_cuda_attention_means(const struct ddp_heads *g, const struct ddp_attention_backward *args,
                              float *mean, struct ddp_cuda *cuda);

/* Tensor cores: bf16 on devices of compute capability 8.0 and newer, float16 of float32 from 7.5
 * on, heads of up to 128 features, a multiple of eight, rows aligned to 16 bytes (which the caller
 * looks at). Probabilities and their gradients are operands of products too, and rounded. */
bool ddp_cuda_attention_has_mma(struct ddp_cuda *cuda, const struct ddp_attention_shape *s);
void ddp_cuda_attention_mma_forward(struct ddp_heads g, const struct ddp_attention_forward *args,
                                    struct ddp_cuda *cuda);
void ddp_cuda_attention_mma_backward(struct ddp_heads g, const struct ddp_attention_gradient *b,
                                     enum ddp_dtype dtype, struct ddp_cuda *cuda);

/* --- for .cu files --- */
#if defined(__CUDACC__) || (defined(DDP_CUDASIM) && defined(__cplusplus))

/* All heads; `wide` if memory allows it too. */
static inline struct ddp_heads ddp_heads_of(const struct ddp_attention_shape *s)
{
    struct ddp_heads g = {};
    g.length = s->length;
    g.size = s->head_size;
    g.heads = s->heads;
    g.group = s->heads / s->kv_heads;
    g.q_stride = s->q_stride;
    g.k_stride = s->k_stride;
    g.v_stride = s->v_stride;
    g.count = s->batch * s->heads;
    g.scale = 1 / sqrtf((float)s->head_size);
    g.log2_scale = g.scale * 1.44269504f;
    g.wide = (s->head_size | s->q_stride | s->k_stride | s->v_stride) % 4 == 0;
    g.window = (int)(s->window > 0 && s->window < s->length ? s->window : s->length);
    g.documents = s->documents;
    g.bounded = g.documents || g.window < g.length;
    return g;
}

/* Where one head lies. */
struct ddp_head {
    int64_t y_stride, q, k, v, y, lse;
    int64_t row; /* of the documents */
};

static __device__ inline struct ddp_head ddp_head_of(const struct ddp_heads *g, int64_t index)
{
    const int64_t b = index / g->heads, h = index % g->heads, kv = h / g->group * g->size;
    struct ddp_head head;
    head.row = b * g->length;
    head.y_stride = g->heads * g->size;
    head.q = head.row * g->q_stride + h * g->size;
    head.k = head.row * g->k_stride + kv;
    head.v = head.row * g->v_stride + kv;
    head.y = head.row * head.y_stride + h * g->size;
    head.lse = index * g->length;
    return head;
}

/* The first key that a query sees, 0 or more; of one behind the end that of the last. Documents
 * that are not as they should be do no harm: a query sees itself. */
static __device__ inline int ddp_first_seen(const struct ddp_heads *g, int64_t row, int query)
{
    const int length = (int)g->length, at = query < length ? query : length - 1;
    int first = at >= g->window ? at - g->window + 1 : 0;
    if (g->documents) {
        const int begin = g->documents[row + at];
        first = begin > first ? begin : first;
    }
    return first < at ? first : at;
}

/* The end of the queries that see this key or one before it. */
static __device__ inline int ddp_end_of_seers(const struct ddp_heads *g, int64_t row, int key)
{
    const int length = (int)g->length, last = key < length ? key : length - 1;
    int from = last + 1, end = length - last > g->window ? last + g->window : length;
    while (g->documents && from < end) { /* documents begin in order */
        const int middle = from + (end - from) / 2;
        if (g->documents[row + middle] > last)
            end = middle;
        else
            from = middle + 1;
    }
    return end;
}

#endif
#endif

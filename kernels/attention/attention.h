/* SPDX-License-Identifier: MIT
 *
 * Causal self-attention of several heads: y[i] = sum over the keys j that query i sees of
 * softmax(q[i] . k[j] / sqrt(D)) v[j]. Query i sees key j if j <= i, and, with a window W,
 * j > i - W, and, with documents, j >= documents[i]. Several query heads may share a head of keys
 * and values. With bounds, which the CPU alone has, it is not causal, and rows are texts of their
 * own lengths, one directly after the other: a query sees all keys of its text.
 * No matrix of T x T is kept: forward leaves the logarithm of each softmax's denominator, and
 * backward makes the probabilities again, block by block; what no query sees is left out. */
#ifndef DDP_KERNELS_ATTENTION_ATTENTION_H
#define DDP_KERNELS_ATTENTION_ATTENTION_H

#include "ddp.h"

#include "kernels/check.h"

/* What both passes know of the tensors. A row of q has H heads of D elements, one of k and v K. */
struct ddp_attention_shape {
    int64_t batch, length;                /* B, T */
    int64_t heads, kv_heads;              /* H, K: query head h reads head h / (H / K) of k, v */
    int64_t head_size;                    /* D */
    int64_t q_stride, k_stride, v_stride; /* elements from one token to the next */
    int64_t window;                       /* keys that a query sees, its own included; 0: all */
    const int32_t *documents; /* (B,T) the first position of each one's document, which never
                                 falls within a row; NULL: a row is one document */
    const int32_t *bounds;    /* (B+1) the tokens at which each text, of 1 to T, begins, from 0, and
                                 the last one ends: q, k, v, y are (N,H,D). Without a window or
                                 documents, H = K. NULL: attention is causal */
    enum ddp_dtype dtype;     /* of q, k, v, y and their gradients: DDP_F32 or DDP_BF16 */
    bool f16; /* of DDP_F32: operands of products may be rounded to float16, as CUDA's are */
};

struct ddp_attention_forward {
    struct ddp_attention_shape shape;
    const void *q, *k, *v; /* (B,T,H,D), (B,T,K,D), (B,T,K,D) */
    void *y;               /* (B,T,H,D) out, without gaps */
    float *lse;            /* (B,H,T) out: log of the sum of the exponentials; NULL: not needed */
};

struct ddp_attention_backward {
    struct ddp_attention_shape shape;
    const void *q, *k, *v; /* the inputs of forward */
    const void *y;         /* (B,T,H,D) the output of forward */
    const float *lse;      /* (B,H,T) from forward */
    const void *dy;        /* (B,T,H,D) */
    void *dq, *dk, *dv;    /* out, with the strides of q, k and v; NULL: not needed */
    /* Add to what is there; false: overwrite it, whatever it is. */
    bool accumulate_dq, accumulate_dk, accumulate_dv;
    float *scratch; /* ddp_attention_scratch() elements; on CUDA it may be NULL */
};

/* The shape of q, k and v that lie side by side, (B,T,3,H,D). */
static inline struct ddp_attention_shape ddp_attention_packed(int64_t batch, int64_t length,
                                                              int64_t heads, int64_t head_size,
                                                              enum ddp_dtype dtype)
{
    const int64_t stride = 3 * heads * head_size;
    struct ddp_attention_shape shape;
    shape.batch = batch;
    shape.length = length;
    shape.heads = shape.kv_heads = heads;
    shape.head_size = head_size;
    shape.q_stride = shape.k_stride = shape.v_stride = stride;
    shape.window = 0;
    shape.documents = NULL;
    shape.bounds = NULL;
    shape.dtype = dtype;
    shape.f16 = false;
    return shape;
}

/* The gradients of keys and values of each query head, before they are added up. */
static inline int64_t ddp_attention_scratch(const struct ddp_attention_shape *s)
{
    return s->kv_heads == s->heads ? 0 : 2 * s->batch * s->length * s->heads * s->head_size;
}

static inline bool ddp_attention_is_empty(const struct ddp_attention_shape *s)
{
    return s->batch == 0 || s->length == 0 || s->heads == 0 || s->head_size == 0;
}

static inline enum ddp_status ddp_attention_check_shape(const char *name,
                                                        const struct ddp_attention_shape *s)
{
    if (s->batch < 0 || s->length < 0 || s->heads < 0 || s->kv_heads < 0 || s->head_size < 0 ||
        s->window < 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: negative size (%lld x %lld tokens, %lld and %lld heads of %lld, "
                        "window %lld)",
                        name, (long long)s->batch, (long long)s->length, (long long)s->heads,
                        (long long)s->kv_heads, (long long)s->head_size, (long long)s->window);
    if (s->heads > 0 && (s->kv_heads == 0 || s->heads % s->kv_heads != 0))
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld heads cannot share %lld of keys and values",
                        name, (long long)s->heads, (long long)s->kv_heads);
    if (s->q_stride < s->heads * s->head_size || s->k_stride < s->kv_heads * s->head_size ||
        s->v_stride < s->kv_heads * s->head_size)
        return ddp_fail(DDP_ERR_INVALID, "%s: tokens overlap", name);
    return ddp_check_dtype(name, s->dtype);
}

static inline enum ddp_status ddp_attention_check_forward(const struct ddp_attention_forward *args)
{
    enum ddp_status status = ddp_attention_check_shape("attention", &args->shape);
    if (status)
        return status;
    if (!ddp_attention_is_empty(&args->shape) && (!args->q || !args->k || !args->v || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "attention: q, k, v or y is NULL");
    return DDP_OK;
}

static inline enum ddp_status
ddp_attention_check_backward(const struct ddp_attention_backward *args)
{
    enum ddp_status status = ddp_attention_check_shape("attention backward", &args->shape);
    if (status)
        return status;
    if (!ddp_attention_is_empty(&args->shape) &&
        (!args->q || !args->k || !args->v || !args->y || !args->lse || !args->dy))
        return ddp_fail(DDP_ERR_INVALID, "attention backward: q, k, v, y, lse or dy is NULL");
    return DDP_OK;
}

/* On the CPU DDP_ERR_INVALID for documents or bounds that are not as they should be; elsewhere the
 * result is then wrong, and nothing else. */
enum ddp_status ddp_attention_forward(const struct ddp_attention_forward *args, void *stream);
enum ddp_status ddp_attention_backward(const struct ddp_attention_backward *args, void *stream);

#endif

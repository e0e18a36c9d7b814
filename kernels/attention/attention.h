/* SPDX-License-Identifier: MIT
 *
 * Causal self-attention of several heads on packed queries, keys and values, as GPT-2 has it:
 * y[t] = sum over s <= t of softmax(q[t] . k[s] / sqrt(D)) v[s]. No matrix of T x T is kept:
 * forward leaves the logarithm of each softmax's denominator, and backward makes the
 * probabilities again, block by block. */
#ifndef DDP_KERNELS_ATTENTION_ATTENTION_H
#define DDP_KERNELS_ATTENTION_ATTENTION_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_attention_forward {
    int64_t batch, length;    /* B, T */
    int64_t heads, head_size; /* H, D; C = H D */
    enum ddp_dtype dtype;     /* of qkv and y: DDP_F32 or DDP_BF16 */
    const void *qkv;          /* (B,T,3,H,D) */
    void *y;                  /* (B,T,H,D) out */
    float *lse; /* (B,H,T) out: log of the sum of the exponentials; NULL: not needed */
};

struct ddp_attention_backward {
    int64_t batch, length, heads, head_size;
    enum ddp_dtype dtype; /* of qkv, y and their gradients: DDP_F32 or DDP_BF16 */
    const void *qkv;      /* (B,T,3,H,D) the input of forward */
    const void *y;        /* (B,T,H,D) the output of forward */
    const float *lse;     /* (B,H,T) from forward */
    const void *dy;       /* (B,T,H,D) */
    void *dqkv;           /* (B,T,3,H,D) out */
    bool accumulate_dqkv; /* add to what is in dqkv; false: overwrite it, whatever it is */
};

static inline bool ddp_attention_is_empty(int64_t batch, int64_t length, int64_t heads,
                                          int64_t head_size)
{
    return batch == 0 || length == 0 || heads == 0 || head_size == 0;
}

static inline enum ddp_status ddp_attention_check_shape(const char *name, int64_t batch,
                                                        int64_t length, int64_t heads,
                                                        int64_t head_size, enum ddp_dtype dtype)
{
    if (batch < 0 || length < 0 || heads < 0 || head_size < 0)
        return ddp_fail(
            DDP_ERR_INVALID, "%s: negative size (%lld x %lld tokens, %lld heads of %lld)", name,
            (long long)batch, (long long)length, (long long)heads, (long long)head_size);
    return ddp_check_dtype(name, dtype);
}

static inline enum ddp_status ddp_attention_check_forward(const struct ddp_attention_forward *args)
{
    enum ddp_status status = ddp_attention_check_shape("attention", args->batch, args->length,
                                                       args->heads, args->head_size, args->dtype);
    if (status)
        return status;
    if (!ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size) &&
        (!args->qkv || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "attention: qkv or y is NULL");
    return DDP_OK;
}

static inline enum ddp_status
ddp_attention_check_backward(const struct ddp_attention_backward *args)
{
    enum ddp_status status = ddp_attention_check_shape(
        "attention backward", args->batch, args->length, args->heads, args->head_size, args->dtype);
    if (status)
        return status;
    if (!ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size) &&
        (!args->qkv || !args->y || !args->lse || !args->dy || !args->dqkv))
        return ddp_fail(DDP_ERR_INVALID, "attention backward: qkv, y, lse, dy or dqkv is NULL");
    return DDP_OK;
}

enum ddp_status ddp_attention_forward(const struct ddp_attention_forward *args, void *stream);
enum ddp_status ddp_attention_backward(const struct ddp_attention_backward *args, void *stream);

#endif

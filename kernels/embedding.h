/* SPDX-License-Identifier: MIT
 *
 * Rows of a table, one for each token, plus one for its position, as GPT-2 begins:
 * y[b,t] = wte[tokens[b,t]] + wpe[first + t]. Without wpe it is torch.nn.Embedding. */
#ifndef DDP_KERNELS_EMBEDDING_H
#define DDP_KERNELS_EMBEDDING_H

#include "ddp.h"

#include "kernels/check.h"

/* A token that is not 0 .. V-1 is DDP_ERR_INVALID, which names its row and place, in both passes;
 * so are more positions than wpe has. */

struct ddp_embedding_forward {
    int64_t batch, length, features;     /* B, T, C */
    int64_t vocabulary;                  /* V */
    int64_t positions;                   /* P, rows of wpe: at least first + T */
    int64_t first;                       /* position of each row's first token */
    enum ddp_dtype dtype;                /* of y: DDP_F32 or DDP_BF16 */
    const int32_t *tokens;               /* (B,T) */
    const float *wte;                    /* (V,C) */
    const float *wpe;                    /* (P,C), or NULL: none */
    const uint16_t *wte_bf16, *wpe_bf16; /* the same of bf16, each where the other is NULL */
    void *y;                             /* (B,T,C) out */
};

struct ddp_embedding_backward {
    int64_t batch, length, features, vocabulary, positions;
    enum ddp_dtype dtype;  /* of dy: DDP_F32 or DDP_BF16 */
    const int32_t *tokens; /* (B,T) */
    const void *dy;        /* (B,T,C) */
    float *dwte;           /* (V,C) out, or NULL: not needed; rows are added first to last */
    float *dwpe;           /* (P,C) out, or NULL */
    bool accumulate_dwte;  /* add each row of dy to what is in dwte; false: start from zeros */
    bool accumulate_dwpe;  /* likewise */
};

/* All except the tokens themselves, which may be on a device. `wanted`: whether the pass uses
 * positions. */
static inline enum ddp_status ddp_embedding_check(const char *operation, int64_t batch,
                                                  int64_t length, int64_t features,
                                                  int64_t vocabulary, bool wanted,
                                                  int64_t positions, enum ddp_dtype dtype)
{
    if (batch < 0 || length < 0 || features < 0 || vocabulary < 0 || vocabulary > INT32_MAX)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: bad size (%lld x %lld tokens, %lld features, %lld rows)", operation,
                        (long long)batch, (long long)length, (long long)features,
                        (long long)vocabulary);
    if (wanted && length > positions)
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld tokens in a row, but %lld positions", operation,
                        (long long)length, (long long)positions);
    return ddp_check_dtype(operation, dtype);
}

static inline enum ddp_status ddp_embedding_check_forward(const struct ddp_embedding_forward *args)
{
    const bool any = args->batch > 0 && args->length > 0;
    if (any &&
        (!args->tokens || (args->features > 0 && ((!args->wte && !args->wte_bf16) || !args->y))))
        return ddp_fail(DDP_ERR_INVALID, "embedding: tokens, wte or y is NULL");
    const enum ddp_status status = ddp_embedding_check(
        "embedding", args->batch, args->length, args->features, args->vocabulary,
        args->wpe || args->wpe_bf16, args->positions, args->dtype);
    if (status == DDP_OK && (args->wpe || args->wpe_bf16) &&
        (args->first < 0 || args->first > args->positions - args->length))
        return ddp_fail(
            DDP_ERR_INVALID, "embedding: %lld tokens from position %lld on, but %lld positions",
            (long long)args->length, (long long)args->first, (long long)args->positions);
    return status;
}

static inline enum ddp_status
ddp_embedding_check_backward(const struct ddp_embedding_backward *args)
{
    const bool any = args->batch > 0 && args->length > 0;
    if (any && (!args->tokens || (args->features > 0 && !args->dy)))
        return ddp_fail(DDP_ERR_INVALID, "embedding backward: tokens or dy is NULL");
    return ddp_embedding_check("embedding backward", args->batch, args->length, args->features,
                               args->vocabulary, args->dwpe, args->positions, args->dtype);
}

/* The tokens themselves, where the host can read them. */
static inline enum ddp_status ddp_embedding_check_tokens(const char *name, const int32_t *tokens,
                                                         int64_t count, int64_t length,
                                                         int64_t vocabulary)
{
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: token %d in row %lld, place %lld, but the vocabulary has %lld",
                            name, (int)tokens[i], (long long)(i / length), (long long)(i % length),
                            (long long)vocabulary);
    return DDP_OK;
}

enum ddp_status ddp_embedding_forward(const struct ddp_embedding_forward *args, void *stream);
enum ddp_status ddp_embedding_backward(const struct ddp_embedding_backward *args, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Causal self-attention of positions that follow others, whose keys and values are in a cache: what
 * a model that generates text runs for each token. The new keys and values are stored first; y is
 * then that of ddp_attention_forward() at these positions. A sample's bits do not depend on the
 * other samples. Float32. */
#ifndef DDP_KERNELS_ATTENTION_CACHED_H
#define DDP_KERNELS_ATTENTION_CACHED_H

#include "kernels/attention/attention.h"

struct ddp_attention_cached {
    int64_t batch, length;    /* B, T new positions: the first ones (past 0), or one */
    int64_t heads, head_size; /* H, D */
    int64_t past;             /* positions in the cache */
    int64_t capacity;         /* P, positions that it has room for: at least past + T */
    int64_t cache_stride;     /* elements from a sample's cache to the next's: at least 2 H P D */
    const float *qkv;         /* (B,T,3,H,D) */
    float *cache;             /* (2,H,P,D) of each sample: keys, values; in and out */
    float *y;                 /* (B,T,H,D) out */
};

static inline bool ddp_attention_cached_is_empty(const struct ddp_attention_cached *args)
{
    return ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size);
}

static inline enum ddp_status ddp_attention_check_cached(const struct ddp_attention_cached *args)
{
    const char *name = "attention with a cache";
    const enum ddp_status status = ddp_attention_check_shape(name, args->batch, args->length,
                                                             args->heads, args->head_size, DDP_F32);
    if (status || ddp_attention_cached_is_empty(args))
        return status;
    if (args->past < 0 || (args->past > 0 && args->length > 1))
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld tokens after %lld: not one", name,
                        (long long)args->length, (long long)args->past);
    if (args->length > args->capacity - args->past)
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld and %lld positions, but room for %lld", name,
                        (long long)args->past, (long long)args->length, (long long)args->capacity);
    if (args->batch > 1 && args->cache_stride / 2 / args->heads / args->head_size < args->capacity)
        return ddp_fail(DDP_ERR_INVALID, "%s: the samples' caches overlap", name);
    if (!args->qkv || !args->cache || !args->y)
        return ddp_fail(DDP_ERR_INVALID, "%s: qkv, cache or y is NULL", name);
    return DDP_OK;
}

enum ddp_status ddp_attention_cached(const struct ddp_attention_cached *args, void *stream);

#endif

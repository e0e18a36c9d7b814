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
    /* T new positions: the first ones (past 0), or one. Float32, without documents. */
    struct ddp_attention_shape shape;
    int64_t past;           /* positions in the cache */
    int64_t capacity;       /* P, positions that it has room for: at least past + T */
    int64_t cache_stride;   /* elements from a sample's cache to the next's: at least 2 K P D */
    const float *q, *k, *v; /* (B,T,H,D), (B,T,K,D), (B,T,K,D) */
    float *cache;           /* (2,K,P,D) of each sample: keys, values; in and out */
    float *y;               /* (B,T,H,D) out */
};

static inline enum ddp_status ddp_attention_check_cached(const struct ddp_attention_cached *args)
{
    const char *name = "attention with a cache";
    const struct ddp_attention_shape *s = &args->shape;
    const enum ddp_status status = ddp_attention_check_shape(name, s);
    if (status || ddp_attention_is_empty(s))
        return status;
    if (s->dtype != DDP_F32 || s->documents)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: it is float32, and without documents", name);
    if (args->past < 0 || (args->past > 0 && s->length > 1))
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld tokens after %lld: not one", name,
                        (long long)s->length, (long long)args->past);
    if (s->length > args->capacity - args->past)
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld and %lld positions, but room for %lld", name,
                        (long long)args->past, (long long)s->length, (long long)args->capacity);
    if (s->batch > 1 && args->cache_stride / 2 / s->kv_heads / s->head_size < args->capacity)
        return ddp_fail(DDP_ERR_INVALID, "%s: the samples' caches overlap", name);
    if (!args->q || !args->k || !args->v || !args->cache || !args->y)
        return ddp_fail(DDP_ERR_INVALID, "%s: q, k, v, cache or y is NULL", name);
    return DDP_OK;
}

/* The first of the keys in the cache that the one new position sees. */
static inline int64_t ddp_attention_cached_first(const struct ddp_attention_cached *args)
{
    const int64_t window = args->shape.window;
    return window > 0 && args->past >= window ? args->past - window + 1 : 0;
}

enum ddp_status ddp_attention_cached(const struct ddp_attention_cached *args, void *stream);

#endif

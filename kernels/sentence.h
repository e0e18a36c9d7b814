/* SPDX-License-Identifier: MIT
 *
 * What encoders of sentences do with the vectors of tokens, on the CPU: their mean, the tanh of a
 * pooler, and the loss that tells apart the sentences of a shard. */
#ifndef DDP_KERNELS_SENTENCE_H
#define DDP_KERNELS_SENTENCE_H

#include "ddp.h"

#include "kernels/check.h"

/* y = mean of a text's vectors, or the first of them. */
struct ddp_token_mean_forward {
    int64_t batch, features; /* B, C */
    bool first;
    enum ddp_dtype dtype;  /* of x and y: DDP_F32 */
    const int32_t *bounds; /* (B+1) where each text begins, from 0, and the last one ends, at N; of
                              an empty one, as in passes over zeros that measure time, y is any */
    const void *x;         /* (N,C) */
    void *y;               /* (B,C) out */
};

struct ddp_token_mean_backward {
    int64_t batch, features;
    bool first;
    enum ddp_dtype dtype;
    const int32_t *bounds;
    const void *dy;  /* (B,C) */
    void *dx;        /* (N,C) out */
    bool accumulate; /* add to what is there; false: overwrite it, whatever it is */
};

/* y = tanh(x), to the last bit of float32 but one. */
struct ddp_tanh_forward {
    int64_t count;
    enum ddp_dtype dtype; /* DDP_F32 */
    const void *x;        /* (n) */
    void *y;              /* (n) out; may be x */
};

struct ddp_tanh_backward {
    int64_t count;
    enum ddp_dtype dtype;
    const void *y, *dy; /* (n) */
    void *dx;           /* (n) out; may be dy */
    bool accumulate;
};

/* sentence-transformers' MultipleNegativesRankingLoss: of each sample the first text, the anchor,
 * is to be nearer to the second than to all other texts of the shard that are no anchors. Nearness
 * is the cosine of two vectors, and the loss the mean of the cross-entropies of scale x cosine. */
struct ddp_contrastive {
    int64_t samples, texts, features; /* B, P from 2, C */
    enum ddp_dtype dtype;             /* DDP_F32 */
    float scale;
    const void *x;      /* (B,P,C) */
    float *loss;        /* (1) out */
    void *dx;           /* (B,P,C) out: its gradient; may be x; NULL: not needed */
    const float *dloss; /* (1) the gradient of the loss itself; NULL: 1 */
    float *scratch;     /* ddp_contrastive_scratch() elements */
};

/* Unit vectors and their gradients, the cosines, and the vectors' lengths. */
static inline int64_t ddp_contrastive_scratch(int64_t samples, int64_t texts, int64_t features)
{
    return 2 * samples * texts * features + samples * samples * (texts - 1) + samples * texts;
}

enum ddp_status ddp_token_mean_forward(const struct ddp_token_mean_forward *args, void *stream);
enum ddp_status ddp_token_mean_backward(const struct ddp_token_mean_backward *args, void *stream);
enum ddp_status ddp_tanh_forward(const struct ddp_tanh_forward *args, void *stream);
enum ddp_status ddp_tanh_backward(const struct ddp_tanh_backward *args, void *stream);
enum ddp_status ddp_contrastive(const struct ddp_contrastive *args, void *stream);

#endif

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
    int64_t heads;        /* of a token */
    int64_t first;        /* head of the batch that this launch begins with */
    int64_t count;        /* heads of this launch */
    int64_t blocks;       /* of rows, per head */
    float scale;
    float log2_scale; /* of scores that are exponents of 2 */
    bool wide;        /* rows may be read in accesses of four elements */
};

struct ddp_attention_gradient {
    const void *qkv, *dy;
    const float *lse;
    const float *mean; /* dy . y of each query, from the head `first` on */
    void *dqkv;
    bool add;
};

/* mean[i] = dy . y of query i, of all heads of the launch. */
void ddp_cuda_attention_means(const struct ddp_heads *g, const struct ddp_attention_backward *args,
                              float *mean, struct ddp_cuda *cuda);

/* Tensor cores: bf16 on devices of compute capability 8.0 and newer, heads of up to 128 features,
 * a multiple of eight, arrays aligned to 16 bytes. Probabilities and their gradients are operands
 * of products too, and rounded. */
bool ddp_cuda_attention_has_mma(struct ddp_cuda *cuda, enum ddp_dtype dtype, int64_t size,
                                const void *qkv, const void *y, const void *other);
void ddp_cuda_attention_mma_forward(struct ddp_heads g, const struct ddp_attention_forward *args,
                                    struct ddp_cuda *cuda);
void ddp_cuda_attention_mma_backward(struct ddp_heads g, const struct ddp_attention_gradient *b,
                                     struct ddp_cuda *cuda);

/* --- for .cu files --- */
#if defined(__CUDACC__) || (defined(DDP_CUDASIM) && defined(__cplusplus))

/* All heads; `wide` if memory allows it too. */
static inline struct ddp_heads ddp_heads_of(int64_t batch, int64_t length, int64_t heads,
                                            int64_t size)
{
    struct ddp_heads g = {};
    g.length = length;
    g.size = size;
    g.heads = heads;
    g.count = batch * heads;
    g.scale = 1 / sqrtf((float)size);
    g.log2_scale = g.scale * 1.44269504f;
    g.wide = size % 4 == 0;
    return g;
}

/* Where one head lies. */
struct ddp_head {
    int64_t stride, y_stride, qkv, y, lse;
};

static __device__ inline struct ddp_head ddp_head_of(const struct ddp_heads *g, int64_t index)
{
    const int64_t b = index / g->heads, h = index % g->heads, c = g->heads * g->size;
    struct ddp_head head;
    head.stride = 3 * c;
    head.y_stride = c;
    head.qkv = b * g->length * 3 * c + h * g->size;
    head.y = b * g->length * c + h * g->size;
    head.lse = index * g->length;
    return head;
}

#endif
#endif

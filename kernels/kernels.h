/* SPDX-License-Identifier: MIT
 *
 * Every operation of one kind of device in one table: a new operation is its own files and one line
 * here. Contracts stand in the operations' headers; who calls one includes its header. */
#ifndef DDP_KERNELS_KERNELS_H
#define DDP_KERNELS_KERNELS_H

#include "ddp.h"

/* Operation NAME takes a struct ddp_NAME; the CPU's function is ddp_NAME(), CUDA's
 * ddp_cuda_NAME(). */
/* clang-format off */
#define DDP_KERNELS(X)                                                                             \
    X(linear_forward)             /* y = activation(x W^T + b) */                                  \
    X(linear_backward)            /* gradients of x, W and b */                                    \
    X(layer_norm_forward)         /* each row to mean 0 and variance 1, times gamma plus beta; */  \
                                  /* or, without a mean, to mean square 1 */                       \
    X(layer_norm_backward)                                                                         \
    X(embedding_forward)          /* rows of a table by token and by position */                   \
    X(embedding_backward)                                                                          \
    X(attention_forward)          /* causal self-attention */                                      \
    X(attention_backward)                                                                          \
    X(attention_cached)           /* the same of new positions, after those in a cache */          \
    X(add)                        /* y = a + b, a copy, or added to y */                           \
    X(dropout)                    /* y = x with elements zeroed at random, in both passes */       \
    X(to_bf16)                    /* y = x rounded to bf16 */                                      \
    X(softmax_cross_entropy)      /* mean loss of labels, its gradient, predictions */             \
    X(mse)                        /* mean squared error of numbers, its gradient */                \
    X(sum_forward)                /* y = sum of all elements */                                    \
    X(sum_backward)                                                                                \
    X(merge)                      /* a shard's gradient joins the partial sums */                  \
    X(sgd)                        /* one step of the optimizer over a flat array */                \
    X(adamw)                                                                                       \
    X(norm)                       /* sums of squares of blocks, for a gradient's norm */           \
    X(clip)                       /* from these: the gradient's scale, or no step */               \
    X(conv2d_forward)             /* images, channels-last, with bias and activation */            \
    X(conv2d_backward)                                                                             \
    X(max_pool2d_forward)                                                                          \
    X(max_pool2d_backward)                                                                         \
    X(avg_pool2d_forward)                                                                          \
    X(avg_pool2d_backward)                                                                         \
    X(batch_norm_sums)            /* with residual and activation, in halves */                    \
    X(batch_norm_forward)                                                                          \
    X(batch_norm_backward_sums)                                                                    \
    X(batch_norm_backward)                                                                         \
    X(ema)                        /* running statistics of batch norm */                           \
    X(relu_forward)               /* y = max(x, 0) */                                              \
    X(relu_backward)                                                                               \
    X(transpose)                  /* between (B,C,H*W) and channels-last */                        \
    X(rotary)                     /* features of heads turned by position, and back */             \
    X(swiglu_forward)             /* y = silu(gate) * up */                                        \
    X(swiglu_backward)
/* clang-format on */

#define DDP_KERNEL_STRUCT(name) struct ddp_##name;
#define DDP_KERNEL_MEMBER(name)                                                                    \
    enum ddp_status (*name)(const struct ddp_##name *args, void *stream);

DDP_KERNELS(DDP_KERNEL_STRUCT)
struct ddp_add_layer_norm_forward;
struct ddp_preference;
struct ddp_reduce;

/* The stream is the device's own: on the CPU a ddp_pool, or NULL for the calling thread alone. */
struct ddp_kernels {
    const char *name; /* "cpu", "cuda" */
    /* They take activations and their gradients in bf16: `dtype` may be DDP_BF16. */
    bool bf16_activations;
    /* Products are faster with a round number of columns: a model's classes are padded. */
    bool pads_classes;
    /* Products of float32 read weights of bf16 as they are, and all products those in blocks,
     * without scratch memory. */
    bool reads_bf16_weights;
    DDP_KERNELS(DDP_KERNEL_MEMBER)
    /* a + b and the norm of its rows in one pass; NULL: none, add and layer_norm_forward do it */
    DDP_KERNEL_MEMBER(add_layer_norm_forward)
    /* losses of preferences: which labels they take, and the losses */
    enum ddp_status (*preference_targets)(const struct ddp_preference *args, void *stream);
    DDP_KERNEL_MEMBER(preference)
    /* the ordered reduction on device memory; NULL where the host reaches it, with ddp_reduce() */
    DDP_KERNEL_MEMBER(reduce)
};

extern const struct ddp_kernels ddp_kernels_cpu;

#endif

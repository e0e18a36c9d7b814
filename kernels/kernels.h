/* SPDX-License-Identifier: MIT
 *
 * Every operation of one kind of device in one table: a new operation is its own files and one line
 * here, in kernels_cpu.c and in each plugin. */
#ifndef DDP_KERNELS_KERNELS_H
#define DDP_KERNELS_KERNELS_H

#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/attention/attention.h"
#include "kernels/batch_norm.h"
#include "kernels/bf16.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/dropout.h"
#include "kernels/ema.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/pool2d.h"
#include "kernels/reduce.h"
#include "kernels/relu.h"
#include "kernels/sgd.h"
#include "kernels/softmax_cross_entropy.h"
#include "kernels/sum.h"
#include "kernels/transpose.h"

/* The stream is the device's own: on the CPU a ddp_pool, or NULL for the calling thread alone. */
struct ddp_kernels {
    const char *name; /* "cpu", "cuda" */
    /* They take activations and their gradients in bf16: `dtype` may be DDP_BF16. */
    bool bf16_activations;
    /* What takes time or memory once, before a graph with large products is run; NULL: nothing. */
    enum ddp_status (*prepare)(void);

    /* y = activation(x W^T + b) */
    enum ddp_status (*linear_forward)(const struct ddp_linear_forward *args, void *stream);
    /* gradients of x, W and b */
    enum ddp_status (*linear_backward)(const struct ddp_linear_backward *args, void *stream);
    /* each row to mean 0 and variance 1, then times gamma plus beta */
    enum ddp_status (*layer_norm_forward)(const struct ddp_layer_norm_forward *args, void *stream);
    enum ddp_status (*layer_norm_backward)(const struct ddp_layer_norm_backward *args,
                                           void *stream);
    /* a + b and the norm of its rows in one pass; NULL: none, the two above do it */
    enum ddp_status (*add_layer_norm_forward)(const struct ddp_add_layer_norm_forward *args,
                                              void *stream);
    /* rows of a table by token and by position */
    enum ddp_status (*embedding_forward)(const struct ddp_embedding_forward *args, void *stream);
    enum ddp_status (*embedding_backward)(const struct ddp_embedding_backward *args, void *stream);
    /* causal self-attention on packed qkv */
    enum ddp_status (*attention_forward)(const struct ddp_attention_forward *args, void *stream);
    enum ddp_status (*attention_backward)(const struct ddp_attention_backward *args, void *stream);
    /* y = a + b, a copy, or added to y */
    enum ddp_status (*add)(const struct ddp_add *args, void *stream);
    /* y = x with elements zeroed at random, in both passes */
    enum ddp_status (*dropout)(const struct ddp_dropout *args, void *stream);
    /* y = x rounded to bf16 */
    enum ddp_status (*to_bf16)(const struct ddp_to_bf16 *args, void *stream);
    /* mean loss of class labels, with its gradient and the predictions */
    enum ddp_status (*softmax_cross_entropy)(const struct ddp_softmax_cross_entropy *args,
                                             void *stream);
    /* y = sum of all elements */
    enum ddp_status (*sum_forward)(const struct ddp_sum_forward *args, void *stream);
    /* its gradient */
    enum ddp_status (*sum_backward)(const struct ddp_sum_backward *args, void *stream);
    /* a shard's gradient joins the partial sums */
    enum ddp_status (*merge)(const struct ddp_merge *args, void *stream);
    /* one step of the optimizer over a flat array */
    enum ddp_status (*sgd)(const struct ddp_sgd *args, void *stream);
    enum ddp_status (*adamw)(const struct ddp_adamw *args, void *stream);
    /* sums of squares of fixed blocks, for the norm of a gradient */
    enum ddp_status (*norm)(const struct ddp_norm *args, void *stream);
    /* images, channels-last: convolution with bias and activation, and its gradients */
    enum ddp_status (*conv2d_forward)(const struct ddp_conv2d_forward *args, void *stream);
    enum ddp_status (*conv2d_backward)(const struct ddp_conv2d_backward *args, void *stream);
    /* pooling */
    enum ddp_status (*max_pool2d_forward)(const struct ddp_max_pool2d_forward *args, void *stream);
    enum ddp_status (*max_pool2d_backward)(const struct ddp_max_pool2d_backward *args,
                                           void *stream);
    enum ddp_status (*avg_pool2d_forward)(const struct ddp_avg_pool2d_forward *args, void *stream);
    enum ddp_status (*avg_pool2d_backward)(const struct ddp_avg_pool2d_backward *args,
                                           void *stream);
    /* batch norm with residual and activation, in halves; its running statistics */
    enum ddp_status (*batch_norm_sums)(const struct ddp_batch_norm_sums *args, void *stream);
    enum ddp_status (*batch_norm_forward)(const struct ddp_batch_norm_forward *args, void *stream);
    enum ddp_status (*batch_norm_backward_sums)(const struct ddp_batch_norm_backward_sums *args,
                                                void *stream);
    enum ddp_status (*batch_norm_backward)(const struct ddp_batch_norm_backward *args,
                                           void *stream);
    enum ddp_status (*ema)(const struct ddp_ema *args, void *stream);
    /* y = max(x, 0), and its gradient */
    enum ddp_status (*relu_forward)(const struct ddp_relu_forward *args, void *stream);
    enum ddp_status (*relu_backward)(const struct ddp_relu_backward *args, void *stream);
    /* between (B,C,H*W) and channels-last */
    enum ddp_status (*transpose)(const struct ddp_transpose *args, void *stream);
    /* the ordered reduction on device memory; NULL where the host reaches it, with ddp_reduce() */
    enum ddp_status (*reduce)(const struct ddp_reduce *args, void *stream);
};

extern const struct ddp_kernels ddp_kernels_cpu;

#endif

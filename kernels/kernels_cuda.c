/* SPDX-License-Identifier: MIT
 *
 * The table of operations of a CUDA device; see kernels.h. */
#include "config.h"

#include "kernels/kernels_cuda.h"

#include "kernels/check.h"

enum ddp_status ddp_check_dtype(const char *operation, enum ddp_dtype dtype)
{
    if (dtype != DDP_F32 && dtype != DDP_BF16)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: CUDA keeps activations in float32 or bf16, not dtype %d", operation,
                        (int)dtype);
    return DDP_OK;
}

const struct ddp_kernels ddp_kernels_cuda = {
    .name = "cuda",
    .bf16_activations = true,
    .linear_forward = ddp_cuda_linear_forward,
    .linear_backward = ddp_cuda_linear_backward,
    .layer_norm_forward = ddp_cuda_layer_norm_forward,
    .layer_norm_backward = ddp_cuda_layer_norm_backward,
    .embedding_forward = ddp_cuda_embedding_forward,
    .embedding_backward = ddp_cuda_embedding_backward,
    .attention_forward = ddp_cuda_attention_forward,
    .attention_backward = ddp_cuda_attention_backward,
    .add = ddp_cuda_add,
    .add_layer_norm_forward = ddp_cuda_add_layer_norm_forward,
    .dropout = ddp_cuda_dropout,
    .to_bf16 = ddp_cuda_to_bf16,
    .softmax_cross_entropy = ddp_cuda_softmax_cross_entropy,
    .sum_forward = ddp_cuda_sum_forward,
    .sum_backward = ddp_cuda_sum_backward,
    .merge = ddp_cuda_merge,
    .sgd = ddp_cuda_sgd,
    .adamw = ddp_cuda_adamw,
    .norm = ddp_cuda_norm,
    .conv2d_forward = ddp_cuda_conv2d_forward,
    .conv2d_backward = ddp_cuda_conv2d_backward,
    .max_pool2d_forward = ddp_cuda_max_pool2d_forward,
    .max_pool2d_backward = ddp_cuda_max_pool2d_backward,
    .avg_pool2d_forward = ddp_cuda_avg_pool2d_forward,
    .avg_pool2d_backward = ddp_cuda_avg_pool2d_backward,
    .batch_norm_sums = ddp_cuda_batch_norm_sums,
    .batch_norm_forward = ddp_cuda_batch_norm_forward,
    .batch_norm_backward_sums = ddp_cuda_batch_norm_backward_sums,
    .batch_norm_backward = ddp_cuda_batch_norm_backward,
    .ema = ddp_cuda_ema,
    .relu_forward = ddp_cuda_relu_forward,
    .relu_backward = ddp_cuda_relu_backward,
    .transpose = ddp_cuda_transpose,
    .reduce = ddp_cuda_reduce,
};

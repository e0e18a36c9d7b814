/* SPDX-License-Identifier: MIT
 *
 * The CPU's tables of operations; see kernels.h. */
#include "config.h"

#include "kernels/kernels.h"

#include "kernels/check.h"
#include "kernels/cpu/onednn.h"

enum ddp_status ddp_check_dtype(const char *operation, enum ddp_dtype dtype)
{
    if (dtype != DDP_F32)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: the CPU keeps activations in float32, not dtype %d", operation,
                        (int)dtype);
    return DDP_OK;
}

static enum ddp_status prepare(void)
{
    return ddp_onednn_prepare(false);
}

const struct ddp_kernels ddp_kernels_cpu = {
    .name = "cpu",
    .prepare = prepare,
    .linear_forward = ddp_linear_forward,
    .linear_backward = ddp_linear_backward,
    .layer_norm_forward = ddp_layer_norm_forward,
    .layer_norm_backward = ddp_layer_norm_backward,
    .embedding_forward = ddp_embedding_forward,
    .embedding_backward = ddp_embedding_backward,
    .attention_forward = ddp_attention_forward,
    .attention_backward = ddp_attention_backward,
    .add = ddp_add,
    .dropout = ddp_dropout,
    .to_bf16 = ddp_to_bf16,
    .softmax_cross_entropy = ddp_softmax_cross_entropy,
    .sum_forward = ddp_sum_forward,
    .sum_backward = ddp_sum_backward,
    .merge = ddp_merge,
    .sgd = ddp_sgd,
    .conv2d_forward = ddp_conv2d_forward,
    .conv2d_backward = ddp_conv2d_backward,
    .max_pool2d_forward = ddp_max_pool2d_forward,
    .max_pool2d_backward = ddp_max_pool2d_backward,
    .avg_pool2d_forward = ddp_avg_pool2d_forward,
    .avg_pool2d_backward = ddp_avg_pool2d_backward,
    .batch_norm_sums = ddp_batch_norm_sums,
    .batch_norm_forward = ddp_batch_norm_forward,
    .batch_norm_backward_sums = ddp_batch_norm_backward_sums,
    .batch_norm_backward = ddp_batch_norm_backward,
    .ema = ddp_ema,
    .relu_forward = ddp_relu_forward,
    .relu_backward = ddp_relu_backward,
    .transpose = ddp_transpose,
    .adamw = ddp_adamw,
    .norm = ddp_norm,
};

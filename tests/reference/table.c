/* SPDX-License-Identifier: MIT
 *
 * The plain versions in a table; see kernels.h. */
#include "config.h"

#include "tests/reference/reference.h"

const struct ddp_kernels ddp_kernels_reference = {
    .name = "reference",
    .linear_forward = ddp_linear_forward_reference,
    .linear_backward = ddp_linear_backward_reference,
    .layer_norm_forward = ddp_layer_norm_forward_reference,
    .layer_norm_backward = ddp_layer_norm_backward_reference,
    .embedding_forward = ddp_embedding_forward_reference,
    .embedding_backward = ddp_embedding_backward_reference,
    .attention_forward = ddp_attention_forward_reference,
    .attention_backward = ddp_attention_backward_reference,
    .add = ddp_add_reference,
    .dropout = ddp_dropout_reference,
    .to_bf16 = ddp_to_bf16_reference,
    .softmax_cross_entropy = ddp_softmax_cross_entropy_reference,
    .sum_forward = ddp_sum_forward_reference,
    .sum_backward = ddp_sum_backward_reference,
    .merge = ddp_merge_reference,
    .sgd = ddp_sgd_reference,
    .conv2d_forward = ddp_conv2d_forward_reference,
    .conv2d_backward = ddp_conv2d_backward_reference,
    .max_pool2d_forward = ddp_max_pool2d_forward_reference,
    .max_pool2d_backward = ddp_max_pool2d_backward_reference,
    .avg_pool2d_forward = ddp_avg_pool2d_forward_reference,
    .avg_pool2d_backward = ddp_avg_pool2d_backward_reference,
    .batch_norm_sums = ddp_batch_norm_sums_reference,
    .batch_norm_forward = ddp_batch_norm_forward_reference,
    .batch_norm_backward_sums = ddp_batch_norm_backward_sums_reference,
    .batch_norm_backward = ddp_batch_norm_backward_reference,
    .ema = ddp_ema_reference,
    .relu_forward = ddp_relu_forward_reference,
    .relu_backward = ddp_relu_backward_reference,
    .transpose = ddp_transpose_reference,
    .adamw = ddp_adamw_reference,
    .norm = ddp_norm_reference,
};

/* SPDX-License-Identifier: MIT
 *
 * The CPU's tables of operations; see kernels.h. */
#include "config.h"

#include "kernels/kernels.h"

const struct ddp_kernels ddp_kernels_cpu = {
    .name = "cpu",
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
    .adamw = ddp_adamw,
    .norm = ddp_norm,
};

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
    .adamw = ddp_adamw_reference,
    .norm = ddp_norm_reference,
};

/* SPDX-License-Identifier: MIT
 *
 * The operations in plain C, as their formulas say them, most of them in double precision: what the
 * tests of kernels compare with. They take the arguments of the fast versions, and check them too;
 * scratch memory and the stream are not used. */
#ifndef DDP_TESTS_REFERENCE_H
#define DDP_TESTS_REFERENCE_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/kernels.h"

extern const struct ddp_kernels ddp_kernels_reference;

/* They call the epilogue once for the whole of C. */
enum ddp_status ddp_gemm_reference(const struct ddp_gemm *gemm, void *stream);
enum ddp_status ddp_gemm_bf16_reference(const struct ddp_gemm_bf16 *gemm, void *stream);

enum ddp_status ddp_adamw_reference(const struct ddp_adamw *args, void *stream);
enum ddp_status ddp_add_reference(const struct ddp_add *args, void *stream);
enum ddp_status ddp_attention_forward_reference(const struct ddp_attention_forward *args,
                                                void *stream);
enum ddp_status ddp_attention_backward_reference(const struct ddp_attention_backward *args,
                                                 void *stream);
enum ddp_status ddp_batch_norm_sums_reference(const struct ddp_batch_norm_sums *args, void *stream);
enum ddp_status ddp_batch_norm_forward_reference(const struct ddp_batch_norm_forward *args,
                                                 void *stream);
enum ddp_status
ddp_batch_norm_backward_sums_reference(const struct ddp_batch_norm_backward_sums *args,
                                       void *stream);
enum ddp_status ddp_batch_norm_backward_reference(const struct ddp_batch_norm_backward *args,
                                                  void *stream);
enum ddp_status ddp_to_bf16_reference(const struct ddp_to_bf16 *args, void *stream);
enum ddp_status ddp_conv2d_forward_reference(const struct ddp_conv2d_forward *args, void *stream);
enum ddp_status ddp_conv2d_backward_reference(const struct ddp_conv2d_backward *args, void *stream);
enum ddp_status ddp_dropout_reference(const struct ddp_dropout *args, void *stream);
enum ddp_status ddp_ema_reference(const struct ddp_ema *args, void *stream);
enum ddp_status ddp_embedding_forward_reference(const struct ddp_embedding_forward *args,
                                                void *stream);
enum ddp_status ddp_embedding_backward_reference(const struct ddp_embedding_backward *args,
                                                 void *stream);
enum ddp_status ddp_layer_norm_forward_reference(const struct ddp_layer_norm_forward *args,
                                                 void *stream);
enum ddp_status ddp_layer_norm_backward_reference(const struct ddp_layer_norm_backward *args,
                                                  void *stream);
enum ddp_status ddp_linear_forward_reference(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_linear_backward_reference(const struct ddp_linear_backward *args, void *stream);
enum ddp_status ddp_norm_reference(const struct ddp_norm *args, void *stream);
enum ddp_status ddp_max_pool2d_forward_reference(const struct ddp_max_pool2d_forward *args,
                                                 void *stream);
enum ddp_status ddp_max_pool2d_backward_reference(const struct ddp_max_pool2d_backward *args,
                                                  void *stream);
enum ddp_status ddp_avg_pool2d_forward_reference(const struct ddp_avg_pool2d_forward *args,
                                                 void *stream);
enum ddp_status ddp_avg_pool2d_backward_reference(const struct ddp_avg_pool2d_backward *args,
                                                  void *stream);
enum ddp_status ddp_reduce_reference(const struct ddp_reduce *args);
enum ddp_status ddp_relu_forward_reference(const struct ddp_relu_forward *args, void *stream);
enum ddp_status ddp_relu_backward_reference(const struct ddp_relu_backward *args, void *stream);
enum ddp_status ddp_sgd_reference(const struct ddp_sgd *args, void *stream);
enum ddp_status ddp_softmax_cross_entropy_reference(const struct ddp_softmax_cross_entropy *args,
                                                    void *stream);
enum ddp_status ddp_sum_forward_reference(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_sum_backward_reference(const struct ddp_sum_backward *args, void *stream);
enum ddp_status ddp_transpose_reference(const struct ddp_transpose *args, void *stream);

#endif

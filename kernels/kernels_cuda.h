/* SPDX-License-Identifier: MIT
 *
 * The CUDA versions of the operations: the same contracts, on device memory. `stream` is a struct
 * ddp_cuda (kernels/cuda/cuda.h). They return as soon as the work is on its stream. */
#ifndef DDP_KERNELS_KERNELS_CUDA_H
#define DDP_KERNELS_KERNELS_CUDA_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_status ddp_cuda_linear_forward(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_cuda_linear_backward(const struct ddp_linear_backward *args, void *stream);
enum ddp_status ddp_cuda_layer_norm_forward(const struct ddp_layer_norm_forward *args,
                                            void *stream);
enum ddp_status ddp_cuda_add_layer_norm_forward(const struct ddp_add_layer_norm_forward *args,
                                                void *stream);
enum ddp_status ddp_cuda_layer_norm_backward(const struct ddp_layer_norm_backward *args,
                                             void *stream);
enum ddp_status ddp_cuda_embedding_forward(const struct ddp_embedding_forward *args, void *stream);
enum ddp_status ddp_cuda_embedding_backward(const struct ddp_embedding_backward *args,
                                            void *stream);
enum ddp_status ddp_cuda_attention_forward(const struct ddp_attention_forward *args, void *stream);
enum ddp_status ddp_cuda_attention_backward(const struct ddp_attention_backward *args,
                                            void *stream);
enum ddp_status ddp_cuda_add(const struct ddp_add *args, void *stream);
enum ddp_status ddp_cuda_dropout(const struct ddp_dropout *args, void *stream);
enum ddp_status ddp_cuda_to_bf16(const struct ddp_to_bf16 *args, void *stream);
enum ddp_status ddp_cuda_softmax_cross_entropy(const struct ddp_softmax_cross_entropy *args,
                                               void *stream);
enum ddp_status ddp_cuda_sum_forward(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_cuda_sum_backward(const struct ddp_sum_backward *args, void *stream);
enum ddp_status ddp_cuda_merge(const struct ddp_merge *args, void *stream);
enum ddp_status ddp_cuda_sgd(const struct ddp_sgd *args, void *stream);
enum ddp_status ddp_cuda_adamw(const struct ddp_adamw *args, void *stream);
enum ddp_status ddp_cuda_norm(const struct ddp_norm *args, void *stream);
enum ddp_status ddp_cuda_conv2d_forward(const struct ddp_conv2d_forward *args, void *stream);
enum ddp_status ddp_cuda_conv2d_backward(const struct ddp_conv2d_backward *args, void *stream);
enum ddp_status ddp_cuda_max_pool2d_forward(const struct ddp_max_pool2d_forward *args,
                                            void *stream);
enum ddp_status ddp_cuda_max_pool2d_backward(const struct ddp_max_pool2d_backward *args,
                                             void *stream);
enum ddp_status ddp_cuda_avg_pool2d_forward(const struct ddp_avg_pool2d_forward *args,
                                            void *stream);
enum ddp_status ddp_cuda_avg_pool2d_backward(const struct ddp_avg_pool2d_backward *args,
                                             void *stream);
enum ddp_status ddp_cuda_batch_norm_sums(const struct ddp_batch_norm_sums *args, void *stream);
enum ddp_status ddp_cuda_batch_norm_forward(const struct ddp_batch_norm_forward *args,
                                            void *stream);
enum ddp_status ddp_cuda_batch_norm_backward_sums(const struct ddp_batch_norm_backward_sums *args,
                                                  void *stream);
enum ddp_status ddp_cuda_batch_norm_backward(const struct ddp_batch_norm_backward *args,
                                             void *stream);
enum ddp_status ddp_cuda_ema(const struct ddp_ema *args, void *stream);
enum ddp_status ddp_cuda_relu_forward(const struct ddp_relu_forward *args, void *stream);
enum ddp_status ddp_cuda_relu_backward(const struct ddp_relu_backward *args, void *stream);
enum ddp_status ddp_cuda_transpose(const struct ddp_transpose *args, void *stream);
enum ddp_status ddp_cuda_reduce(const struct ddp_reduce *args, void *stream);

extern const struct ddp_kernels ddp_kernels_cuda; /* kernels_cuda.c */

#ifdef __cplusplus
}
#endif

#endif

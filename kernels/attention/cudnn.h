/* SPDX-License-Identifier: MIT
 *
 * Attention by cuDNN: the contract of attention.h, and *done as kernels/cuda/cudnn.h says. */
#ifndef DDP_KERNELS_ATTENTION_CUDNN_H
#define DDP_KERNELS_ATTENTION_CUDNN_H

#include "kernels/attention/attention.h"

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DDP_WITH_CUDNN
enum ddp_status ddp_cudnn_attention_forward(const struct ddp_attention_forward *args,
                                            struct ddp_cuda *cuda, bool *done);
enum ddp_status ddp_cudnn_attention_backward(const struct ddp_attention_backward *args,
                                             struct ddp_cuda *cuda, bool *done);
#else
static inline enum ddp_status ddp_cudnn_attention_forward(const struct ddp_attention_forward *args,
                                                          struct ddp_cuda *cuda, bool *done)
{
    (void)args, (void)cuda, *done = false;
    return DDP_OK;
}

static inline enum ddp_status
ddp_cudnn_attention_backward(const struct ddp_attention_backward *args, struct ddp_cuda *cuda,
                             bool *done)
{
    (void)args, (void)cuda, *done = false;
    return DDP_OK;
}
#endif

#ifdef __cplusplus
}
#endif

#endif

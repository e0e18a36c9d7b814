/* SPDX-License-Identifier: MIT
 *
 * Attention and convolution on a CUDA device by cuDNN, where its library is present. Each function
 * sets *done: false when cuDNN has nothing for the case (no library, no plan for the shape, a dtype
 * that is not bf16), which is no error and leaves all memory as it was; the caller then runs our
 * own kernel. The contracts are those of attention.h and conv2d.h.
 *
 * Bits: only engines are taken that cuDNN calls deterministic, the first that it proposes for a
 * shape, without measuring, so that all runs and ranks with the same library and model of GPU take
 * the same one.
 *
 * DDP_CUDNN=0 in the environment switches it off, as does DDP_CUDA_PLAIN=1. */
#ifndef DDP_KERNELS_CUDNN_H
#define DDP_KERNELS_CUDNN_H

#include "kernels/attention.h"
#include "kernels/conv2d.h"
#include "kernels/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DDP_WITH_CUDNN
enum ddp_status ddp_cudnn_attention_forward(const struct ddp_attention_forward *args,
                                            struct ddp_cuda *cuda, bool *done);
enum ddp_status ddp_cudnn_attention_backward(const struct ddp_attention_backward *args,
                                             struct ddp_cuda *cuda, bool *done);

/* y, with the bias and activation. */
enum ddp_status ddp_cudnn_conv2d_forward(const struct ddp_conv2d_forward *args,
                                         struct ddp_cuda *cuda, bool *done);
/* dx alone, from a gradient that is the convolution's own: after the activation's, if it has one.
 */
enum ddp_status ddp_cudnn_conv2d_dx(const struct ddp_conv2d_backward *args, struct ddp_cuda *cuda,
                                    bool *done);
/* dweight alone, likewise. */
enum ddp_status ddp_cudnn_conv2d_dweight(const struct ddp_conv2d_backward *args,
                                         struct ddp_cuda *cuda, bool *done);

/* Frees what this device has of cuDNN; when the device is closed. */
void ddp_cudnn_forget(struct ddp_cuda *cuda);
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

static inline enum ddp_status ddp_cudnn_conv2d_forward(const struct ddp_conv2d_forward *args,
                                                       struct ddp_cuda *cuda, bool *done)
{
    (void)args, (void)cuda, *done = false;
    return DDP_OK;
}

static inline enum ddp_status ddp_cudnn_conv2d_dx(const struct ddp_conv2d_backward *args,
                                                  struct ddp_cuda *cuda, bool *done)
{
    (void)args, (void)cuda, *done = false;
    return DDP_OK;
}

static inline enum ddp_status ddp_cudnn_conv2d_dweight(const struct ddp_conv2d_backward *args,
                                                       struct ddp_cuda *cuda, bool *done)
{
    (void)args, (void)cuda, *done = false;
    return DDP_OK;
}

static inline void ddp_cudnn_forget(struct ddp_cuda *cuda)
{
    (void)cuda;
}
#endif

#ifdef __cplusplus
}
#endif

#endif

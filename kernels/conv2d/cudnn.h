/* SPDX-License-Identifier: MIT
 *
 * Convolution by cuDNN: the contract of conv2d.h, and *done as kernels/cuda/cudnn.h says. */
#ifndef DDP_KERNELS_CONV2D_CUDNN_H
#define DDP_KERNELS_CONV2D_CUDNN_H

#include "kernels/conv2d/conv2d.h"

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DDP_WITH_CUDNN
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
#else
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
#endif

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * cuDNN on a CUDA device, where its library is present: it convolves. Each of the functions of
 * kernels/conv2d/cudnn.h sets *done: false when cuDNN has nothing for the case (no library, no plan
 * for the shape, a dtype that is not bf16), which is not an error and leaves all memory as it was;
 * the caller then runs our own kernel.
 *
 * Bits: only engines are taken that cuDNN calls deterministic, the first that it proposes for a
 * shape, without measuring, so that all runs and ranks with the same library and model of GPU take
 * the same one.
 *
 * DDP_CUDNN=0 in the environment switches it off, as does DDP_CUDA_PLAIN=1. */
#ifndef DDP_KERNELS_CUDA_CUDNN_H
#define DDP_KERNELS_CUDA_CUDNN_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DDP_WITH_CUDNN
/* Frees what this device has of cuDNN; when the device is closed. */
void ddp_cudnn_forget(struct ddp_cuda *cuda);
#else
static inline void ddp_cudnn_forget(struct ddp_cuda *cuda)
{
    (void)cuda;
}
#endif

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * Attention and convolution on a CUDA device by cuDNN, where its library is present. Each of their
 * functions (kernels/attention/cudnn.h, kernels/conv2d/cudnn.h) sets *done: false when cuDNN has
 * nothing for the case (no library, no plan for the shape, a dtype that is not bf16), which is not
 * an error and leaves all memory as it was; the caller then runs our own kernel.
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

/* From this compute capability on NVIDIA's frontend names an engine and its knobs for attention's
 * backward pass with the same bits every time; heuristics are not asked there. */
#define DDP_CUDNN_NAMED_ENGINES 100

#ifdef DDP_WITH_CUDNN
/* Bytes of workspace for attention's backward pass: 1/64 of the GPU's memory, from 64 to 512 MiB,
 * or what DDP_CUDNN_WORKSPACE says; 0 where cuDNN does not compute it. Depends on the kind of GPU
 * alone, not on what is free. DDP_ERR_INVALID (logged): the variable is not a size.
 *   memory_bytes  of the GPU, all of it */
enum ddp_status ddp_cudnn_workspace(struct ddp_cuda *cuda, size_t memory_bytes, size_t *bytes);
/* Frees what this device has of cuDNN; when the device is closed. */
void ddp_cudnn_forget(struct ddp_cuda *cuda);
#else
static inline enum ddp_status ddp_cudnn_workspace(struct ddp_cuda *cuda, size_t memory_bytes,
                                                  size_t *bytes)
{
    (void)cuda, (void)memory_bytes, *bytes = 0;
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

/* SPDX-License-Identifier: MIT
 *
 * The CUDA versions of the operations: the same contracts, on device memory. `stream` is a struct
 * ddp_cuda (kernels/cuda/cuda.h). They return as soon as the work is on its stream. */
#ifndef DDP_KERNELS_KERNELS_CUDA_H
#define DDP_KERNELS_KERNELS_CUDA_H

#include "kernels/bf16.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_CUDA_KERNEL(name)                                                                      \
    enum ddp_status ddp_cuda_##name(const struct ddp_##name *args, void *stream);

DDP_KERNELS(DDP_CUDA_KERNEL)
DDP_CUDA_KERNEL(add_layer_norm_forward)
DDP_CUDA_KERNEL(preference)
enum ddp_status ddp_cuda_preference_targets(const struct ddp_preference *args, void *stream);
DDP_CUDA_KERNEL(reduce)
DDP_CUDA_KERNEL(from_bf16) /* kernels/bf16.h */
DDP_CUDA_KERNEL(round_f16) /* likewise */

extern const struct ddp_kernels ddp_kernels_cuda; /* kernels_cuda.c */

#ifdef __cplusplus
}
#endif

#endif

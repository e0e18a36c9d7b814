/* SPDX-License-Identifier: MIT
 *
 * Whether products are right on this device. A kernel that was compiled for another one may do
 * nothing, a library may be broken, and training would go on with garbage. */
#ifndef DDP_KERNELS_CUDA_SELF_TEST_H
#define DDP_KERNELS_CUDA_SELF_TEST_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Multiplies two small matrices of whole numbers on each path that products may take, and compares
 * with what is exact. Waits for the stream; for a device that has just been opened.
 *   fault  what cuda->fault is to the host
 * DDP_ERR_SYSTEM: names the path, and says what to do. */
enum ddp_status ddp_cuda_self_test(struct ddp_cuda *cuda, const struct ddp_cuda_fault *fault);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * Which of several ways to compute something is the fastest on this device. */
#ifndef DDP_KERNELS_CUDA_TIMING_H
#define DDP_KERNELS_CUDA_TIMING_H

#include "kernels/cuda/cuda.h"

enum { DDP_CUDA_TIMED = 8 }; /* ways at most */

/* Puts the work of one way on the stream; false: this way cannot be taken. */
typedef bool ddp_cuda_way(void *arg, int way);

/* Runs each way a few times, in turn, and waits for them. The fastest by its best time; an earlier
 * one, unless a later one is clearly faster, so that noise does not decide.
 *   fastest [out]  -1: none can be taken
 *   ms [out]       of each way; negative: it cannot be taken */
enum ddp_status ddp_cuda_time(int count, ddp_cuda_way *way, void *arg, struct ddp_cuda *cuda,
                              int *fastest, float ms[DDP_CUDA_TIMED]);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Sums and maxima over the threads of a warp or a block, in one fixed tree: neighbours first, then
 * neighbours of neighbours. For .cu files. */
#ifndef DDP_KERNELS_CUDA_REDUCE_H
#define DDP_KERNELS_CUDA_REDUCE_H

#include "kernels/cuda.h"

#define DDP_WARPS_MAX 32 /* of a block */

/* Every lane gets the sum. All lanes of the warp call it. */
template <typename T> static __device__ inline T ddp_warp_sum(T value)
{
#pragma unroll
    for (int step = 1; step < DDP_WARP; step *= 2)
        value += __shfl_xor_sync(DDP_FULL_MASK, value, step);
    return value;
}

static __device__ inline float ddp_warp_max(float value)
{
#pragma unroll
    for (int step = 1; step < DDP_WARP; step *= 2)
        value = fmaxf(value, __shfl_xor_sync(DDP_FULL_MASK, value, step));
    return value;
}

/* Every thread gets the sum; blockDim.x is a multiple of 32. `partial` is shared memory with
 * DDP_WARPS_MAX elements, which may be used again at once. All threads of the block call it. */
template <typename T> static __device__ inline T ddp_block_sum(T value, T *partial)
{
    value = ddp_warp_sum(value);
    if (blockDim.x == DDP_WARP)
        return value;
    const int lane = (int)threadIdx.x % DDP_WARP;
    if (lane == 0)
        partial[threadIdx.x / DDP_WARP] = value;
    __syncthreads();
    value = ddp_warp_sum(lane < (int)(blockDim.x / DDP_WARP) ? partial[lane] : T(0));
    __syncthreads();
    return value;
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * Sums and maxima over the threads of a warp or a block, in one fixed tree: neighbours first, then
 * neighbours of neighbours. For .cu files. */
#ifndef DDP_KERNELS_CUDA_REDUCE_H
#define DDP_KERNELS_CUDA_REDUCE_H

#include "kernels/cuda/cuda.h"

#define DDP_WARPS_MAX 32 /* of a block */

/* In a maximum of floats a number wins over NaN. */
template <int OP, typename T> static __device__ inline T ddp_combined(T a, T b)
{
    if constexpr (OP == DDP_SUM)
        return a + b;
    else if constexpr (OP == DDP_MIN)
        return b < a ? b : a;
    else
        return fmaxf(a, b);
}

/* Every lane gets the result: OP is a DDP_SUM, DDP_MIN or, of floats, DDP_MAX. All lanes of the
 * warp call it. */
template <int OP, typename T> static __device__ inline T ddp_warp_reduce(T value)
{
#pragma unroll
    for (int step = 1; step < DDP_WARP; step *= 2)
        value = ddp_combined<OP>(value, __shfl_xor_sync(DDP_FULL_MASK, value, step));
    return value;
}

/* The same over WARPS warps, which have one row together: one warp, several such groups to a block,
 * or the whole block. Every thread gets the result. `partial` is shared memory with DDP_WARPS_MAX
 * elements, free again at once; a single warp does not touch it. All threads of the warps call
 * these. */
template <int WARPS, int OP, typename T>
static __device__ inline T ddp_warps_reduce(T value, T *partial)
{
    value = ddp_warp_reduce<OP>(value);
    if (WARPS == 1)
        return value;
    const int lane = (int)threadIdx.x % DDP_WARP;
    if (lane == 0)
        partial[threadIdx.x / DDP_WARP] = value;
    __syncthreads();
    if (OP == DDP_SUM)
        value = lane < WARPS ? partial[lane] : T(0);
    else
        value = partial[lane % WARPS];
    value = ddp_warp_reduce<OP>(value);
    __syncthreads();
    return value;
}

/* What the warps' threads wrote before, all of them see afterwards. */
template <int WARPS> static __device__ inline void ddp_warps_barrier(void)
{
    if (WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}

#endif

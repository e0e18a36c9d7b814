/* SPDX-License-Identifier: MIT
 *
 * Sums and maxima over the threads of a warp or a block, in one fixed tree: neighbours first, then
 * neighbours of neighbours. For .cu files. */
#ifndef DDP_KERNELS_CUDA_REDUCE_H
#define DDP_KERNELS_CUDA_REDUCE_H

#include "kernels/cuda/cuda.h"

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

template <typename T> static __device__ inline T ddp_warp_min(T value)
{
#pragma unroll
    for (int step = 1; step < DDP_WARP; step *= 2) {
        const T other = __shfl_xor_sync(DDP_FULL_MASK, value, step);
        value = other < value ? other : value;
    }
    return value;
}

/* A team is the WARPS warps of one row: one warp, several teams to a block, or the whole block.
 * Every thread gets the result. `partial` is shared memory with DDP_WARPS_MAX elements, free again
 * at once; a team of one warp does not touch it. All threads of the team call these. */
template <int WARPS, typename T>
static __device__ inline T ddp_replica_threads_sum(T value, T *partial)
{
    value = ddp_warp_sum(value);
    if (WARPS == 1)
        return value;
    const int lane = (int)threadIdx.x % DDP_WARP;
    if (lane == 0)
        partial[threadIdx.x / DDP_WARP] = value;
    __syncthreads();
    value = ddp_warp_sum(lane < WARPS ? partial[lane] : T(0));
    __syncthreads();
    return value;
}

template <int WARPS>
static __device__ inline float ddp_replica_threads_max(float value, float *partial)
{
    value = ddp_warp_max(value);
    if (WARPS == 1)
        return value;
    const int lane = (int)threadIdx.x % DDP_WARP;
    if (lane == 0)
        partial[threadIdx.x / DDP_WARP] = value;
    __syncthreads();
    value = ddp_warp_max(partial[lane % WARPS]);
    __syncthreads();
    return value;
}

template <int WARPS, typename T>
static __device__ inline T ddp_replica_threads_min(T value, T *partial)
{
    value = ddp_warp_min(value);
    if (WARPS == 1)
        return value;
    const int lane = (int)threadIdx.x % DDP_WARP;
    if (lane == 0)
        partial[threadIdx.x / DDP_WARP] = value;
    __syncthreads();
    value = ddp_warp_min(partial[lane % WARPS]);
    __syncthreads();
    return value;
}

/* What the team's threads wrote before, all of them see afterwards. */
template <int WARPS> static __device__ inline void ddp_replica_threads_barrier(void)
{
    if (WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}

#endif

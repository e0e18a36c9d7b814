/* SPDX-License-Identifier: MIT
 *
 * Bugs within a kernel. Each kernel runs in blocks of 64 threads; what it does wrong stands above
 * it. */
#include "config.h"

#include <cuda_runtime.h>

#include <cudasim.h>

#include "tests/cudasim/bugs.h"

#include <stdint.h>

enum { THREADS = 64, ALL = BUG_RESULTS };

/* Every input and output of a launch has ALL elements. */
#define RUN(kernel, blocks)                                                                        \
    [](float *results) {                                                                           \
        cudaStream_t stream = bug_stream();                                                        \
        float *in = bug_device(ALL), *out = bug_device(ALL);                                       \
        bug_fill(in, ALL, stream);                                                                 \
        MUST(cudaMemsetAsync(out, 0, ALL * sizeof(float), stream));                                \
        cudasim_launch(kernel, blocks, THREADS, THREADS * sizeof(float), stream, out,              \
                       (const float *)in, (int)ALL);                                               \
        MUST(cudaGetLastError());                                                                  \
        bug_fetch(results, out, ALL, stream);                                                      \
    }

/* Nothing is wrong: a sum over a block, by shared memory and shuffles. */
static __global__ void block_sum(float *out, const float *in, int count)
{
    __shared__ float parts[THREADS / 32];
    int at = (int)(blockIdx.x * THREADS + threadIdx.x);
    float sum = at < count ? in[at] : 0;
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = parts[0] + parts[1];
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = in[at] - sum;
    __syncthreads();
    out[at] = parts[threadIdx.x / 32] + sum * (float)__syncthreads_count(in[at] > 5) +
              (float)__syncthreads_and(in[at] >= 0) + (float)__syncthreads_or(in[at] > 12);
}

/* Nothing is wrong: lanes of half a warp by themselves, dynamic shared memory, ballots. */
static __global__ void warp_work(float *out, const float *in, int)
{
    float *mine = (float *)cudasim_dynamic_shared();
    unsigned lane = threadIdx.x % 32, half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    int at = (int)(blockIdx.x * THREADS + threadIdx.x);
    mine[threadIdx.x] = in[at];
    __syncwarp(half);
    float value = mine[threadIdx.x ^ 1];
    if (lane < 16)
        value += __shfl_down_sync(half, value, 1, 16);
    else
        value += __shfl_up_sync(half, value, 2, 16);
    unsigned large = __ballot_sync(0xffffffffu, value > 10);
    out[at] = value + (float)__popc(large) + (float)__any_sync(0xffffffffu, value > 20) +
              (float)__reduce_max_sync(0xffffffffu, (int)value) +
              __shfl_sync(0xffffffffu, value, 5);
}

/* The neighbour's word is read before all have written. */
static __global__ void read_after_write(float *out, const float *in, int)
{
    __shared__ float tile[THREADS];
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    tile[threadIdx.x] = in[at];
    out[at] = tile[(threadIdx.x + 1) % THREADS];
}

/* The tile is written again while others still read it. */
static __global__ void write_after_read(float *out, const float *in, int)
{
    __shared__ float tile[THREADS];
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    tile[threadIdx.x] = in[at];
    __syncthreads();
    float value = tile[(threadIdx.x + 7) % THREADS];
    tile[threadIdx.x] = value * 2;
    __syncthreads();
    out[at] = value + tile[threadIdx.x];
}

/* One thread computes for all, who do not wait for it. */
static __global__ void one_for_all(float *out, const float *in, int)
{
    __shared__ float common;
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x == 33)
        common = in[at];
    out[at] = in[at] + common;
}

/* Lanes of a warp do not run in step. */
static __global__ void no_syncwarp(float *out, const float *in, int)
{
    __shared__ float tile[THREADS];
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    tile[threadIdx.x] = in[at];
    out[at] = tile[threadIdx.x ^ 1];
}

/* Half of the block passes by the barrier. */
static __global__ void half_barrier(float *out, const float *in, int)
{
    __shared__ float tile[THREADS];
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    tile[threadIdx.x] = in[at];
    if (threadIdx.x < THREADS / 2)
        __syncthreads();
    out[at] = tile[THREADS - 1 - threadIdx.x];
}

static __global__ void two_barriers(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x < THREADS / 2)
        __syncthreads();
    else
        __syncthreads();
    out[at] = in[at];
}

/* A lane leaves before the others shuffle with it. */
static __global__ void exited_lane(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x == 3)
        return;
    out[at] = __shfl_xor_sync(0xffffffffu, in[at], 1);
}

/* Some wait for a barrier, some for their warp: nobody can go on. */
static __global__ void deadlock(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncwarp();
    out[at] = in[at];
}

static __global__ void not_in_mask(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    out[at] = __shfl_xor_sync(0x7fffffffu, in[at], 0);
}

/* A value from a lane that takes no part. */
static __global__ void source_not_in_mask(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x % 32 < 16)
        out[at] = __shfl_sync(0xffffu, in[at], 20);
}

/* Both halves of a warp shuffle with all of it, each in a branch of its own. */
static __global__ void divergent_shuffle(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    float value = in[at];
    if (threadIdx.x % 32 < 16)
        value += __shfl_xor_sync(0xffffffffu, value, 1);
    else
        value -= __shfl_xor_sync(0xffffffffu, value, 1);
    out[at] = value;
}

static __global__ void read_past(float *out, const float *in, int count)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    out[at] = in[at] + ((int)at == count - 1 ? in[at + 1] : 0);
}

static __global__ void write_past(float *out, const float *in, int count)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    out[at + ((int)at == count - 1)] = in[at];
}

static __global__ void past_static_shared(float *out, const float *in, int count)
{
    __shared__ float tile[THREADS];
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    tile[threadIdx.x] = in[at];
    __syncthreads();
    const float *next = tile + (count == ALL);
    out[at] = next[threadIdx.x];
}

/* Behind the bytes that were asked for. */
static __global__ void past_dynamic_shared(float *out, const float *in, int)
{
    float *tile = (float *)cudasim_dynamic_shared();
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    tile[threadIdx.x + 1] = in[at];
    out[at] = in[at];
}

static __global__ void uninitialised_shared(float *out, const float *in, int)
{
    __shared__ float tile[THREADS];
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x > 0)
        tile[threadIdx.x] = in[at];
    __syncthreads();
    out[at] = tile[(threadIdx.x + 1) % THREADS];
}

static __global__ void uninitialised_dynamic(float *out, const float *in, int)
{
    float *tile = (float *)cudasim_dynamic_shared();
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x > 0)
        tile[threadIdx.x] = in[at];
    __syncthreads();
    out[at] = tile[(threadIdx.x + 1) % THREADS];
}

static __global__ void misaligned(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (at < 4) {
        const float4 *four = (const float4 *)(in + 1);
        out[at] = four[at].x;
    }
}

/* rows * columns * 4 leaves int behind. */
static __global__ void index_overflow(float *out, const float *in, int count)
{
    int at = (int)(blockIdx.x * THREADS + threadIdx.x), rows = count * 100000;
    out[at] = in[(unsigned)(at + rows * 100) % ALL];
}

/* Read, add, write: without an atomic two threads lose one of their additions. */
static __global__ void shared_counter(float *out, const float *in, int)
{
    __shared__ float sum;
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    float before = sum;
    __shfl_xor_sync(0xffffffffu, before, 1);
    sum = before + in[at];
    __syncthreads();
    out[at] = sum;
}

static __global__ void blocks_write_one(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    out[threadIdx.x] = in[at];
}

/* Takes the blocks for running in order. */
static __global__ void reads_neighbour(float *out, const float *in, int)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    out[at] = in[at] + (blockIdx.x > 0 ? out[at - THREADS] : 0);
}

static __global__ void atomic_sum(float *out, const float *in, int)
{
    atomicAdd(out, in[blockIdx.x * THREADS + threadIdx.x] * 1e-3f);
}

const struct bug bug_kernels[] = {
    {"control-block-sum", RUN(block_sum, ALL / THREADS)},
    {"control-warp", RUN(warp_work, ALL / THREADS)},
    {"read-after-write", RUN(read_after_write, ALL / THREADS)},
    {"write-after-read", RUN(write_after_read, ALL / THREADS)},
    {"one-for-all", RUN(one_for_all, ALL / THREADS)},
    {"no-syncwarp", RUN(no_syncwarp, ALL / THREADS)},
    {"half-barrier", RUN(half_barrier, ALL / THREADS)},
    {"two-barriers", RUN(two_barriers, ALL / THREADS)},
    {"exited-lane", RUN(exited_lane, ALL / THREADS)},
    {"deadlock", RUN(deadlock, ALL / THREADS)},
    {"not-in-mask", RUN(not_in_mask, ALL / THREADS)},
    {"source-not-in-mask", RUN(source_not_in_mask, ALL / THREADS)},
    {"divergent-shuffle", RUN(divergent_shuffle, ALL / THREADS)},
    {"read-past", RUN(read_past, ALL / THREADS)},
    {"write-past", RUN(write_past, ALL / THREADS)},
    {"past-static-shared", RUN(past_static_shared, ALL / THREADS)},
    {"past-dynamic-shared", RUN(past_dynamic_shared, ALL / THREADS)},
    {"uninitialised-shared", RUN(uninitialised_shared, ALL / THREADS)},
    {"uninitialised-dynamic", RUN(uninitialised_dynamic, ALL / THREADS)},
    {"misaligned", RUN(misaligned, ALL / THREADS)},
    {"index-overflow", RUN(index_overflow, ALL / THREADS)},
    {"shared-counter", RUN(shared_counter, ALL / THREADS)},
    {"blocks-write-one", RUN(blocks_write_one, ALL / THREADS)},
    {"reads-neighbour", RUN(reads_neighbour, ALL / THREADS)},
    {"atomic-sum", RUN(atomic_sum, ALL / THREADS)},
    {},
};

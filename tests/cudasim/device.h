/* SPDX-License-Identifier: MIT
 *
 * Inside the simulated CUDA: what device code, as cudasim.h has it compiled, calls in the
 * scheduler of threads. */
#ifndef DDP_TESTS_CUDASIM_DEVICE_H
#define DDP_TESTS_CUDASIM_DEVICE_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the running thread: written at every switch between threads. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
extern const int warpSize;

/* What a launch knows of its kernel. */
struct cudasim_kernel {
    const char *name;
    const void *address;
    void (*call)(void *arguments);   /* with the arguments as they were at the launch */
    const unsigned *pointer_offsets; /* of those arguments that are pointers */
    unsigned pointer_count;
    unsigned bytes;          /* of arguments */
    int thread_local_shared; /* __shared__ is thread-local: to be poisoned before each block */
    int all_blocks;          /* one call runs all threads of all blocks */
};

/* Enqueues a kernel. An error is the calling thread's last error, as CUDA has it. */
void cudasim_launch_kernel(const struct cudasim_kernel *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, cudaStream_t stream, const void *arguments);

enum cudasim_barrier { CUDASIM_BARRIER, CUDASIM_COUNT, CUDASIM_AND, CUDASIM_OR };

/* __syncthreads() and similar: the value is what all threads' predicates give. */
int cudasim_barrier(enum cudasim_barrier kind, int predicate, const char *file, int line);

enum cudasim_warp {
    CUDASIM_SYNC,
    CUDASIM_SHUFFLE,
    CUDASIM_SHUFFLE_UP,
    CUDASIM_SHUFFLE_DOWN,
    CUDASIM_SHUFFLE_XOR,
    CUDASIM_BALLOT,
    CUDASIM_REDUCE_ADD,
    CUDASIM_REDUCE_MIN,
    CUDASIM_REDUCE_MAX
};

/* One operation of the lanes in `mask`; parameter and width as in __shfl_sync. */
uint64_t cudasim_warp(enum cudasim_warp kind, unsigned mask, uint64_t value, int parameter,
                      int width, const char *file, int line);

/* The block's dynamic shared memory; 16-byte aligned. */
void *cudasim_dynamic_shared(void);

/* Whether products by this path are to be wrong (DDP_CUDASIM_WRONG). */
bool cudasim_wrong(const char *path);

#ifdef __cplusplus
}
#endif

#endif

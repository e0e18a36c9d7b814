/* SPDX-License-Identifier: MIT
 *
 * Planted bugs, each as a program would have it, and programs without one. cudasim_bugs NAME runs
 * one and prints a hash of its results and how many of them are NaN. */
#ifndef DDP_TESTS_CUDASIM_BUGS_H
#define DDP_TESTS_CUDASIM_BUGS_H

#include <cuda_runtime_api.h>

#include <stddef.h>

#define BUG_RESULTS 512

struct bug {
    const char *name;
    void (*run)(float *results); /* BUG_RESULTS of them, zero at first */
};

extern const struct bug bug_kernels[], bug_streams[]; /* end with an empty one */

/* Dies with what CUDA says. */
void bug_must(cudaError_t error, const char *call);
#define MUST(call) bug_must(call, #call)

/* Memory that no test frees: the process ends. */
float *bug_device(size_t count);
float *bug_pinned(size_t count);

/* Copies `count` results out of a device, after all that `stream` has to do. */
void bug_fetch(float *results, const float *device, size_t count, cudaStream_t stream);
void bug_fill(float *device, size_t count, cudaStream_t stream);
cudaStream_t bug_stream(void);

#endif

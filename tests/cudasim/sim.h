/* SPDX-License-Identifier: MIT
 *
 * Inside the simulated CUDA: what a simulated library (cuBLAS, NCCL) needs of the simulated
 * runtime. A library call checks its arguments and enqueues an operation on a stream; the runtime
 * decides when it runs. Not for programs, which see NVIDIA's interface only. */
#ifndef DDP_TESTS_CUDASIM_SIM_H
#define DDP_TESTS_CUDASIM_SIM_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One operation, called with a copy of the argument bytes that it was enqueued with. That copy is
 * the operation's own: it may keep its state there (a launch of a graph starts from the bytes as
 * enqueued). Runs with the simulation's lock held, on any thread, on the stream's device: it must
 * not block, take long waits or call cuda functions.
 *
 * cudaSuccess: done. cudaErrorNotReady: not yet, call again (SIM_POLL only). Any other: the device
 * has failed, which every later call reports, as a kernel that faulted would. */
typedef cudaError_t sim_operation(void *args);

enum sim_kind {
    SIM_RUN, /* does its work in one call */
    SIM_POLL /* waits for other processes or streams: the progress thread calls it as well */
};

/* Puts an operation at the end of a stream (or into the graph that the stream captures).
 *   name   of a static string, for reports: "cublasLtMatmul"
 *   args   copied, `bytes` of them, aligned to 16; no pointers into itself */
cudaError_t sim_enqueue(cudaStream_t stream, const char *name, enum sim_kind kind,
                        sim_operation *operation, const void *args, size_t bytes);

/* The device of a stream; the calling thread's device for the default stream. */
int sim_stream_device(cudaStream_t stream);

/* The program has a bug: prints "cudasim: ..." and aborts. */
void sim_report(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Reports (and aborts) unless [pointer, pointer + bytes) is memory that a device may use: live, in
 * one allocation, not of the plain host and, with device >= 0, of that device or pinned.
 *   call, what   for the report: "ncclAllReduce", "sendbuff" */
void sim_check_pointer(const char *call, const char *what, const void *pointer, size_t bytes,
                       int device);

/* Tells ThreadSanitizer (where the program has it) that the running operation reads or writes
 * memory: code of the simulation is not instrumented. For each operand of an operation that is not
 * touched through memcpy, memmove or memset. */
void sim_reads(const void *memory, size_t bytes);
void sim_writes(void *memory, size_t bytes);

/* Whether this call of a function is the one that DDP_CUDASIM_FAIL (name:n[:code],...) fails; *code
 * is written only if a code is given. The first line of every simulated function. */
bool sim_fault(const char *name, int *code);

/* One lock for the whole simulation, recursive. */
void sim_lock(void);
void sim_unlock(void);

/* Device memory that a library allocates for its user (ncclMemAlloc); guarded and checked like
 * cudaMalloc's. */
cudaError_t sim_malloc(void **memory, size_t bytes, int device);
cudaError_t sim_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * The launch of a kernel: its shape and its pointers are checked now, and it becomes an operation.
 */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FUNCTIONS = 256, MAX_ARGUMENTS = 4096 };

/* Kernels that may have more than the usual dynamic shared memory. */
static struct {
    const void *address;
    size_t shared_bytes;
} functions[MAX_FUNCTIONS];
static int function_count;

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t error = sim_enter("cudaFuncSetAttribute");
    if (error == cudaSuccess &&
        (!function || (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
                       (value < 0 || value > SIM_SHARED_OPTIN_BYTES))))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return sim_leave(error);
    int at = 0;
    while (at < function_count && functions[at].address != function)
        at++;
    if (at == MAX_FUNCTIONS)
        sim_report("more than %d kernels with an attribute", MAX_FUNCTIONS);
    functions[at].address = function;
    functions[at].shared_bytes = (size_t)value;
    if (at == function_count)
        function_count++;
    return sim_leave(cudaSuccess);
}

/* The code of every kernel is what the driver made for device 9.0 of PTX for an older one, perhaps.
 */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    cudaError_t error = sim_enter("cudaFuncGetAttributes");
    if (error == cudaSuccess && !function)
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return sim_leave(error);
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = SIM_MAX_THREADS;
    attributes->ptxVersion = sim_settings.ptx_version;
    attributes->binaryVersion = 90;
    return sim_leave(cudaSuccess);
}

static size_t shared_limit(const void *function)
{
    for (int i = 0; i < function_count; i++)
        if (functions[i].address == function)
            return functions[i].shared_bytes;
    return SIM_SHARED_BYTES;
}

static cudaError_t check_shape(dim3 grid, dim3 block, size_t shared_bytes, const void *function)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
        grid.z > 65535 || threads == 0 || block.x > SIM_MAX_THREADS || block.y > SIM_MAX_THREADS ||
        block.z > 64 || threads > SIM_MAX_THREADS)
        return cudaErrorInvalidConfiguration;
    return shared_bytes > shared_limit(function) ? cudaErrorInvalidValue : cudaSuccess;
}

struct call {
    struct sim_launch launch;
    char arguments[] __attribute__((aligned(16)));
};

static cudaError_t run_kernel(void *bytes)
{
    struct call *call = bytes;
    int code = 0;
    if (sim_fault("kernel", &code))
        return code != 0 ? (cudaError_t)code : cudaErrorIllegalAddress;
    if (call->launch.all_blocks)
        call->launch.call(call->arguments);
    else
        sim_run_kernel(&call->launch, call->arguments, sim_running_stream());
    return cudaSuccess;
}

void cudasim_launch_kernel(const struct cudasim_kernel *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, cudaStream_t handle, const void *arguments)
{
    cudaError_t error = sim_enter("launch");
    struct CUstream_st *stream = error == cudaSuccess ? sim_stream(handle) : NULL;
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && stream->device != sim_host_thread.device)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess)
        error = check_shape(grid, block, shared_bytes, kernel->address);
    if (error == cudaSuccess && kernel->bytes > MAX_ARGUMENTS)
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess) {
        sim_leave(error);
        return;
    }
    for (unsigned i = 0; i < kernel->pointer_count; i++) {
        const void *pointer;
        memcpy(&pointer, (const char *)arguments + kernel->pointer_offsets[i], sizeof pointer);
        if (pointer)
            sim_check_pointer(kernel->name, "argument", pointer, 0, stream->device);
    }
    size_t bytes = sizeof(struct call) + kernel->bytes;
    struct call *call = aligned_alloc(16, (bytes + 15) / 16 * 16);
    if (!call)
        sim_report("no memory");
    memset(call, 0, sizeof *call);
    call->launch = (struct sim_launch){.name = kernel->name,
                                       .call = kernel->call,
                                       .grid = grid,
                                       .block = block,
                                       .shared_bytes = shared_bytes,
                                       .thread_local_shared = kernel->thread_local_shared != 0,
                                       .all_blocks = kernel->all_blocks != 0};
    memcpy(call->arguments, arguments, kernel->bytes);
    error = sim_enqueue(stream->flags & SIM_STREAM_DEFAULT ? NULL : stream, kernel->name, SIM_RUN,
                        run_kernel, call, bytes);
    free(call);
    sim_leave(error);
}

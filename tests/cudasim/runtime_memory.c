/* SPDX-License-Identifier: MIT
 *
 * The runtime's functions that allocate, copy and set memory. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <stdlib.h>
#include <string.h>

static cudaError_t enter_unless_capturing(const char *name)
{
    cudaError_t error = sim_enter(name);
    return error == cudaSuccess ? sim_capture_forbids() : error;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    cudaError_t error = enter_unless_capturing("cudaMalloc");
    if (error == cudaSuccess)
        error = sim_malloc(memory, bytes, sim_host_thread.device);
    return sim_leave(error == cudaErrorUnknown ? cudaErrorMemoryAllocation : error);
}

/* Waits for all that the device has to do, as CUDA does. */
cudaError_t cudaFree(void *memory)
{
    cudaError_t error = enter_unless_capturing("cudaFree");
    const struct sim_allocation *known = memory ? sim_find(memory) : NULL;
    if (known && known->kind == SIM_DEVICE && error == cudaSuccess)
        error = sim_wait_device(known->device);
    cudaError_t freed = sim_free(memory);
    return sim_leave(error != cudaSuccess ? error : freed);
}

static cudaError_t host_alloc(const char *name, void **memory, size_t bytes)
{
    cudaError_t error = enter_unless_capturing(name);
    if (error == cudaSuccess)
        error = sim_pinned_malloc(memory, bytes);
    return sim_leave(error == cudaErrorUnknown ? cudaErrorMemoryAllocation : error);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return host_alloc("cudaMallocHost", memory, bytes);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags; /* all of it is mapped and portable */
    return host_alloc("cudaHostAlloc", memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    cudaError_t error = enter_unless_capturing("cudaFreeHost"), freed = sim_pinned_free(memory);
    return sim_leave(error != cudaSuccess ? error : freed);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    cudaError_t error = enter_unless_capturing("cudaHostRegister");
    (void)flags;
    if (error == cudaSuccess)
        error = sim_register(memory, bytes);
    return sim_leave(error);
}

cudaError_t cudaHostUnregister(void *memory)
{
    cudaError_t error = enter_unless_capturing("cudaHostUnregister");
    if (error == cudaSuccess)
        error = sim_unregister(memory);
    return sim_leave(error);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    cudaError_t error = sim_enter("cudaHostGetDevicePointer");
    const struct sim_allocation *known = sim_find(host);
    if (error == cudaSuccess &&
        (flags != 0 || !known || (known->kind != SIM_PINNED && known->kind != SIM_REGISTERED)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        *device = host;
    return sim_leave(error);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    cudaError_t error = sim_enter("cudaPointerGetAttributes");
    const struct sim_allocation *known = sim_find(pointer);
    if (error != cudaSuccess)
        return sim_leave(error);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2; /* cudaInvalidDeviceId */
    if (known && known->kind == SIM_DEVICE) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = known->device;
        attributes->devicePointer = (void *)(uintptr_t)pointer;
    } else if (known && known->kind != SIM_FREED) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = sim_host_thread.device;
        attributes->devicePointer = attributes->hostPointer = (void *)(uintptr_t)pointer;
    }
    return sim_leave(cudaSuccess);
}

/* --- copies --- */

struct copy {
    void *destination;
    const void *source;
    size_t bytes;
    void *staged; /* bytes of pageable memory, as they were at the call */
};

static cudaError_t run_copy(void *arguments)
{
    struct copy *copy = arguments;
    memmove(copy->destination, copy->staged ? copy->staged : copy->source, copy->bytes);
    free(copy->staged);
    return cudaSuccess;
}

static bool pageable(const void *memory)
{
    return sim_find(memory) == NULL;
}

/* The sides that the kind says: a device's is checked, a host's may be anything but a device's. */
static cudaError_t check_sides(const char *call, const struct copy *copy, enum cudaMemcpyKind kind,
                               int device)
{
    const struct sim_allocation *to = sim_find(copy->destination), *from = sim_find(copy->source);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    (void)device;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (to_device || to)
        sim_check_pointer(call, "destination", copy->destination, copy->bytes, -1);
    if (from_device || from)
        sim_check_pointer(call, "source", copy->source, copy->bytes, -1);
    if (kind == cudaMemcpyDefault)
        return cudaSuccess;
    if ((!to_device && to && to->kind == SIM_DEVICE) ||
        (!from_device && from && from->kind == SIM_DEVICE))
        sim_report("%s: memory of a device where the kind of copy has the host's", call);
    return cudaSuccess;
}

static cudaError_t submit_copy(const char *call, struct copy copy, enum cudaMemcpyKind kind,
                               struct CUstream_st *stream, bool *waits)
{
    if (copy.bytes == 0)
        return cudaSuccess;
    cudaError_t error = check_sides(call, &copy, kind, stream->device);
    if (error != cudaSuccess)
        return error;
    /* CUDA reads pageable memory before it returns, and has written it when it returns. */
    if (!stream->capture && pageable(copy.source)) {
        copy.staged = malloc(copy.bytes);
        if (!copy.staged)
            return cudaErrorMemoryAllocation;
        memcpy(copy.staged, copy.source, copy.bytes);
    }
    *waits = *waits || (!stream->capture && pageable(copy.destination));
    return sim_enqueue(stream->flags & SIM_STREAM_DEFAULT ? NULL : stream, call, SIM_RUN, run_copy,
                       &copy, sizeof copy);
}

static cudaError_t copy_call(const char *call, struct copy copy, enum cudaMemcpyKind kind,
                             cudaStream_t handle, bool waits)
{
    cudaError_t error = waits ? enter_unless_capturing(call) : sim_enter(call);
    struct CUstream_st *stream = error == cudaSuccess ? sim_stream(handle) : NULL;
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess)
        error = submit_copy(call, copy, kind, stream, &waits);
    if (error == cudaSuccess && waits)
        error = sim_wait(stream, stream->submitted);
    return sim_leave(error);
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    return copy_call("cudaMemcpy", (struct copy){destination, source, bytes, NULL}, kind, NULL,
                     true);
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_call("cudaMemcpyAsync", (struct copy){destination, source, bytes, NULL}, kind,
                     stream, false);
}

cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t stream)
{
    const struct sim_allocation *to, *from;
    sim_lock();
    to = sim_find(destination);
    from = sim_find(source);
    if ((to && to->kind == SIM_DEVICE && to->device != destination_device) ||
        (from && from->kind == SIM_DEVICE && from->device != source_device))
        sim_report("cudaMemcpyPeerAsync: the memory is not of the devices %d and %d",
                   destination_device, source_device);
    sim_unlock();
    return copy_call("cudaMemcpyPeerAsync", (struct copy){destination, source, bytes, NULL},
                     cudaMemcpyDeviceToDevice, stream, false);
}

/* --- memset --- */

struct set {
    void *memory;
    int value;
    size_t bytes;
};

static cudaError_t run_set(void *arguments)
{
    struct set *set = arguments;
    memset(set->memory, set->value, set->bytes);
    return cudaSuccess;
}

static cudaError_t set_call(const char *call, struct set set, cudaStream_t handle)
{
    cudaError_t error = sim_enter(call);
    struct CUstream_st *stream = error == cudaSuccess ? sim_stream(handle) : NULL;
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && set.bytes > 0) {
        sim_check_pointer(call, "memory", set.memory, set.bytes, stream->device);
        error = sim_enqueue(stream->flags & SIM_STREAM_DEFAULT ? NULL : stream, call, SIM_RUN,
                            run_set, &set, sizeof set);
    }
    return sim_leave(error);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    return set_call("cudaMemset", (struct set){memory, value, bytes}, NULL);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    return set_call("cudaMemsetAsync", (struct set){memory, value, bytes}, stream);
}

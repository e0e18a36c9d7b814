/* SPDX-License-Identifier: MIT
 *
 * Memory of a GPU, page-locked memory of the host, and copies between them. Ordinary host memory is
 * copied through a few page-locked chunks: the driver would do so as well, but it would block,
 * where every wait here polls. */
#include "config.h"

#include "cuda/state.h"

#include "core/log.h"
#include "core/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- page-locked memory of the process, which all GPUs can read --- */

struct locked {
    struct locked *next;
    char *memory;
    size_t bytes;
};

static pthread_mutex_t locked_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct locked *locked_list;

static bool is_locked(const void *memory, size_t bytes)
{
    const char *begin = memory;
    bool found = false;
    pthread_mutex_lock(&locked_mutex);
    for (const struct locked *l = locked_list; l && !found; l = l->next)
        found = begin >= l->memory && begin < l->memory + l->bytes &&
                bytes <= (size_t)(l->memory + l->bytes - begin);
    pthread_mutex_unlock(&locked_mutex);
    return found;
}

static void remember(struct locked *entry)
{
    pthread_mutex_lock(&locked_mutex);
    entry->next = locked_list;
    locked_list = entry;
    pthread_mutex_unlock(&locked_mutex);
}

static struct locked *take_out(const void *memory)
{
    pthread_mutex_lock(&locked_mutex);
    struct locked **at = &locked_list;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    struct locked *entry = *at;
    if (entry)
        *at = entry->next;
    pthread_mutex_unlock(&locked_mutex);
    return entry;
}

/* *memory NULL: the system lends no more. */
static enum ddp_status lock_memory(struct ddp_cuda_device *gpu, size_t bytes, void **memory)
{
    struct locked *entry = ddp_array_alloc(1, sizeof *entry);
    if (!entry)
        return DDP_ERR_MEMORY;
    ddp_cuda_use(gpu);
    entry->bytes = bytes ? bytes : 1;
    cudaError_t error = cudaHostAlloc((void **)&entry->memory, entry->bytes,
                                      cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaSuccess) {
        memset(entry->memory, 0, entry->bytes);
        *memory = entry->memory;
        remember(entry);
        return DDP_OK;
    }
    free(entry);
    *memory = NULL;
    if (error != cudaErrorMemoryAllocation)
        return ddp_cuda_failed(error, "page-locked memory");
    (void)cudaGetLastError();
    return DDP_OK;
}

/* Where the system lends no more such memory, ordinary memory does, more slowly. */
enum ddp_status ddp_cuda_host_alloc(void *state, size_t bytes, void **memory)
{
    enum ddp_status status = lock_memory(state, bytes, memory);
    if (status != DDP_OK || *memory)
        return status;
    ddp_log(DDP_LOG_WARNING,
            "no page-locked memory for %.1f MiB of batches: copies to the GPU will be slower",
            (double)bytes / 0x1p20);
    *memory = ddp_pages_alloc(bytes);
    return *memory ? DDP_OK : DDP_ERR_MEMORY;
}

/* False: the memory is none of this. */
static bool unlock_memory(struct ddp_cuda_device *gpu, void *memory)
{
    struct locked *entry = take_out(memory);
    if (!entry)
        return false;
    ddp_cuda_use(gpu);
    if (ddp_cuda_quiesce(gpu))
        (void)cudaFreeHost(entry->memory);
    free(entry);
    return true;
}

void ddp_cuda_host_free(void *state, void *memory, size_t bytes)
{
    if (!unlock_memory(state, memory))
        ddp_pages_free(memory, bytes);
}

/* Page-locked memory has the same address on the GPU, since all of them have unified addressing. */
enum ddp_status ddp_cuda_aside_alloc(void *state, size_t bytes, void **memory)
{
    enum ddp_status status = lock_memory(state, bytes, memory);
    return status != DDP_OK || *memory ? status : ddp_cuda_alloc(state, bytes, memory);
}

void ddp_cuda_aside_free(void *state, void *memory, size_t bytes)
{
    if (!unlock_memory(state, memory))
        ddp_cuda_free(state, memory, bytes);
}

/* --- memory of the GPU --- */

static enum ddp_status out_of_memory(const struct ddp_cuda_device *gpu, size_t bytes)
{
    size_t unused = 0, total = 0;
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&unused, &total) != cudaSuccess)
        unused = 0;
    return ddp_fail(DDP_ERR_MEMORY,
                    "--device cuda: out of memory on GPU %d: %.1f GiB needed, %.1f GiB free: a "
                    "smaller --batch-size or more --acc-steps",
                    gpu->cuda.index, (double)bytes / 0x1p30, (double)unused / 0x1p30);
}

enum ddp_status ddp_cuda_alloc(void *state, size_t bytes, void **memory)
{
    struct ddp_cuda_device *gpu = state;
    void *allocated;
    bytes = bytes ? bytes : 1;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaMalloc(&allocated, bytes);
    if (error == cudaErrorMemoryAllocation)
        return out_of_memory(gpu, bytes);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(allocated, 0, bytes, gpu->cuda.stream);
        if (error != cudaSuccess)
            (void)cudaFree(allocated);
    }
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "allocating memory");
    *memory = allocated;
    return DDP_OK;
}

void ddp_cuda_free(void *state, void *memory, size_t bytes)
{
    (void)bytes;
    ddp_cuda_use(state);
    if (ddp_cuda_quiesce(state))
        (void)cudaFree(memory);
}

/* --- through the chunks --- */

static enum ddp_status make_staging(struct ddp_cuda_device *gpu)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; error == cudaSuccess && i < DDP_CUDA_CHUNKS; i++)
        if (!gpu->chunks[i].copied)
            error = cudaEventCreateWithFlags(&gpu->chunks[i].copied, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&gpu->staging, DDP_CUDA_CHUNKS * DDP_CUDA_CHUNK_BYTES,
                              cudaHostAllocDefault);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "page-locked memory for copies");
    for (int i = 0; i < DDP_CUDA_CHUNKS; i++)
        gpu->chunks[i].memory = gpu->staging + (size_t)i * DDP_CUDA_CHUNK_BYTES;
    return DDP_OK;
}

void ddp_cuda_staging_free(struct ddp_cuda_device *gpu)
{
    for (int i = 0; i < DDP_CUDA_CHUNKS; i++)
        if (gpu->chunks[i].copied)
            (void)cudaEventDestroy(gpu->chunks[i].copied);
    if (gpu->staging)
        (void)cudaFreeHost(gpu->staging);
}

static void hand_out(struct ddp_cuda_chunk *chunk)
{
    if (chunk->busy && chunk->host)
        memcpy(chunk->host, chunk->memory, chunk->bytes);
    chunk->busy = false;
}

void ddp_cuda_deliver(struct ddp_cuda_device *gpu)
{
    for (int i = 0; i < DDP_CUDA_CHUNKS; i++)
        if (gpu->chunks[i].host) {
            hand_out(&gpu->chunks[i]);
            gpu->chunks[i].host = NULL;
        }
}

/* The caller may be gone, and its memory too. */
void ddp_cuda_forget(struct ddp_cuda_device *gpu)
{
    for (int i = 0; i < DDP_CUDA_CHUNKS; i++)
        gpu->chunks[i].host = NULL;
}

static enum ddp_status take_chunk(struct ddp_cuda_device *gpu, struct ddp_cuda_chunk **taken)
{
    enum ddp_status status = gpu->staging ? DDP_OK : make_staging(gpu);
    struct ddp_cuda_chunk *chunk = &gpu->chunks[gpu->next_chunk];
    if (status == DDP_OK && chunk->busy)
        status = ddp_cuda_wait_event(gpu, chunk->copied);
    if (status != DDP_OK)
        return status;
    hand_out(chunk);
    gpu->next_chunk = (gpu->next_chunk + 1) % DDP_CUDA_CHUNKS;
    *taken = chunk;
    return DDP_OK;
}

/* Copies one chunk; host is its destination when it leaves the device. */
static enum ddp_status send(struct ddp_cuda_chunk *chunk, cudaStream_t stream, void *to,
                            const void *from, void *host, size_t bytes)
{
    cudaError_t error = cudaMemcpyAsync(
        to, from, bytes, host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(chunk->copied, stream);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, host ? "copying to the host" : "copying to the GPU");
    chunk->busy = true;
    chunk->host = host;
    chunk->bytes = bytes;
    return DDP_OK;
}

static enum ddp_status staged_in(struct ddp_cuda_device *gpu, cudaStream_t stream, char *device,
                                 const char *host, size_t bytes)
{
    enum ddp_status status = DDP_OK;
    for (size_t at = 0, n; status == DDP_OK && at < bytes; at += n) {
        struct ddp_cuda_chunk *chunk;
        n = bytes - at < DDP_CUDA_CHUNK_BYTES ? bytes - at : DDP_CUDA_CHUNK_BYTES;
        status = take_chunk(gpu, &chunk);
        if (status != DDP_OK)
            break;
        memcpy(chunk->memory, host + at, n);
        status = send(chunk, stream, device + at, chunk->memory, NULL, n);
    }
    return status;
}

static enum ddp_status locked_in(cudaStream_t stream, void *device, const void *host, size_t bytes,
                                 cudaEvent_t read)
{
    cudaError_t error = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(read, stream);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "copying to the GPU");
}

/* --- in order with operations --- */

enum ddp_status ddp_cuda_copy_in(void *state, void *device, const void *host, size_t bytes)
{
    struct ddp_cuda_device *gpu = state;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    if (bytes == 0)
        return DDP_OK;
    ddp_cuda_use(gpu);
    if (!is_locked(host, bytes))
        return staged_in(gpu, gpu->cuda.stream, device, host, bytes);
    enum ddp_status status = locked_in(gpu->cuda.stream, device, host, bytes, gpu->read);
    gpu->reading |= status == DDP_OK;
    return status;
}

enum ddp_status ddp_cuda_copy_out(void *state, void *host, const void *device, size_t bytes)
{
    struct ddp_cuda_device *gpu = state;
    enum ddp_status status = DDP_OK;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    if (bytes == 0)
        return DDP_OK;
    ddp_cuda_use(gpu);
    if (is_locked(host, bytes)) {
        cudaError_t error =
            cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu->cuda.stream);
        return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "copying to the host");
    }
    for (size_t at = 0, n; status == DDP_OK && at < bytes; at += n) {
        struct ddp_cuda_chunk *chunk;
        n = bytes - at < DDP_CUDA_CHUNK_BYTES ? bytes - at : DDP_CUDA_CHUNK_BYTES;
        status = take_chunk(gpu, &chunk);
        if (status == DDP_OK)
            status = send(chunk, gpu->cuda.stream, chunk->memory, (const char *)device + at,
                          (char *)host + at, n);
    }
    if (status != DDP_OK)
        ddp_cuda_forget(gpu);
    return status;
}

enum ddp_status ddp_cuda_copy(void *state, void *destination, const void *source, size_t bytes)
{
    struct ddp_cuda_device *gpu = state;
    ddp_cuda_use(gpu);
    cudaError_t error =
        bytes ? cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, gpu->cuda.stream)
              : cudaSuccess;
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "copying between GPUs");
}

enum ddp_status ddp_cuda_copied(void *state)
{
    struct ddp_cuda_device *gpu = state;
    enum ddp_status status = DDP_OK;
    ddp_cuda_use(gpu);
    if (gpu->reading)
        status = ddp_cuda_wait_event(gpu, gpu->read);
    gpu->reading = false;
    for (int i = 0; status == DDP_OK && i < DDP_DEVICE_SLOTS; i++) {
        if (gpu->slots[i].filling)
            status = ddp_cuda_wait_event(gpu, gpu->slots[i].filled);
        gpu->slots[i].filling = false;
    }
    return status;
}

/* --- input slots --- */

enum ddp_status ddp_cuda_fill(void *state, int slot, void *device, const void *host, size_t bytes)
{
    struct ddp_cuda_device *gpu = state;
    struct ddp_cuda_slot *s = &gpu->slots[slot];
    enum ddp_status status = DDP_OK;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    if (!s->used) /* what has been done to the memory so far, such as zeroing it, comes first */
        status = ddp_cuda_leave(gpu, slot);
    if (status != DDP_OK || bytes == 0)
        return status;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaStreamWaitEvent(gpu->filling, s->left, 0);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "copying to the GPU");
    struct ddp_cuda_span *span = ddp_cuda_span_begin(&gpu->cuda, gpu->filling, "copies");
    if (is_locked(host, bytes)) {
        status = locked_in(gpu->filling, device, host, bytes, s->filled);
    } else {
        status = staged_in(gpu, gpu->filling, device, host, bytes);
        error = status == DDP_OK ? cudaEventRecord(s->filled, gpu->filling) : cudaSuccess;
        if (error != cudaSuccess)
            status = ddp_cuda_failed(error, "copying to the GPU");
    }
    ddp_cuda_span_end(span, &(const struct ddp_trace_event){.name = "fill input"});
    s->filling |= status == DDP_OK;
    return status;
}

enum ddp_status ddp_cuda_arrive(void *state, int slot)
{
    struct ddp_cuda_device *gpu = state;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    /* Nothing to wait for at an event that was never recorded. */
    cudaError_t error = cudaStreamWaitEvent(gpu->cuda.stream, gpu->slots[slot].filled, 0);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "copying to the GPU");
}

enum ddp_status ddp_cuda_leave(void *state, int slot)
{
    struct ddp_cuda_device *gpu = state;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaEventRecord(gpu->slots[slot].left, gpu->cuda.stream);
    gpu->slots[slot].used = true;
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "copying to the GPU");
}

/* SPDX-License-Identifier: MIT
 *
 * The CPU as a device: memory is the host's, the stream is a pool of threads that finishes each
 * operation before it returns. */
#include "config.h"

#include "core/memory.h"
#include "core/pool.h"
#include "device/device.h"

#include <string.h>

static int cpu_count(void)
{
    return 1;
}

static enum ddp_status cpu_open(void **state, int index, int threads)
{
    (void)index; /* any number of replicas may share the processor */
    ddp_pool *pool;
    enum ddp_status status = ddp_pool_create(&pool, threads);
    if (status == DDP_OK)
        *state = pool;
    return status;
}

static void cpu_close(void *state)
{
    ddp_pool_destroy(state);
}

static enum ddp_status cpu_alloc(void *state, size_t bytes, void **memory)
{
    (void)state;
    void *pages = ddp_pages_alloc(bytes);
    if (!pages)
        return DDP_ERR_MEMORY;
    *memory = pages;
    return DDP_OK;
}

static void cpu_free(void *state, void *memory, size_t bytes)
{
    (void)state;
    ddp_pages_free(memory, bytes);
}

static enum ddp_status cpu_copy(void *state, void *destination, const void *source, size_t bytes)
{
    (void)state;
    if (bytes)
        memmove(destination, source, bytes);
    return DDP_OK;
}

static enum ddp_status cpu_synchronize(void *state)
{
    (void)state;
    return DDP_OK;
}

static void *cpu_stream(void *state)
{
    return state;
}

const struct ddp_device_ops ddp_device_cpu = {
    .name = "cpu",
    .host_memory = true,
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .copy = cpu_copy,
    .synchronize = cpu_synchronize,
    .stream = cpu_stream,
    .kernels = &ddp_kernels_cpu,
};

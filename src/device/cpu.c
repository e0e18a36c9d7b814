/* SPDX-License-Identifier: MIT
 *
 * The CPU as a device: memory is the host's, the stream is a pool of threads that finishes each
 * operation before it returns. */
#include "config.h"

#include "core/memory.h"
#include "core/pool.h"
#include "device/device.h"

#include <string.h>

#define COPY_PIECE ((size_t)1 << 20)

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

struct copy {
    char *destination;
    const char *source;
    size_t bytes;
};

static void copy_piece(void *arg, size_t index)
{
    const struct copy *copy = arg;
    const size_t begin = index * COPY_PIECE, left = copy->bytes - begin;
    memcpy(copy->destination + begin, copy->source + begin, left < COPY_PIECE ? left : COPY_PIECE);
}

/* To the host: whole models go this way into checkpoints, so large ones are copied by all threads.
 */
static enum ddp_status cpu_copy_out(void *state, void *host, const void *source, size_t bytes)
{
    struct copy copy = {host, source, bytes};
    if (bytes < 4 * COPY_PIECE)
        return cpu_copy(state, host, source, bytes);
    ddp_pool_run(state, (bytes + COPY_PIECE - 1) / COPY_PIECE, copy_piece, &copy);
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
    .copy_out = cpu_copy_out,
    .copy = cpu_copy,
    .synchronize = cpu_synchronize,
    .stream = cpu_stream,
    .kernels = &ddp_kernels_cpu,
};

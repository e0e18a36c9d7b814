/* SPDX-License-Identifier: MIT
 *
 * The communicator of a world of one: every collective is a copy or nothing. */
#include "config.h"

#include "comm/comm.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    void *memory;
    size_t bytes;
};

struct self {
    struct block *blocks;
};

static bool fits(const ddp_job *job)
{
    return ddp_job_world_size(job) == 1;
}

static enum ddp_status create(void **state, const struct ddp_comm_place *place)
{
    (void)place;
    struct self *self = ddp_array_alloc(1, sizeof *self);
    *state = self;
    return self ? DDP_OK : DDP_ERR_MEMORY;
}

static void free_block(struct block *block)
{
    ddp_pages_free(block->memory, block->bytes);
    free(block);
}

static void destroy(void *state)
{
    struct self *self = state;
    while (self->blocks) {
        struct block *next = self->blocks->next;
        free_block(self->blocks);
        self->blocks = next;
    }
    free(self);
}

static enum ddp_status alloc(void *state, size_t bytes, void **memory)
{
    struct self *self = state;
    struct block *block = ddp_array_alloc(1, sizeof *block);
    if (!block)
        return DDP_ERR_MEMORY;
    block->bytes = bytes;
    block->memory = ddp_pages_alloc(bytes);
    if (!block->memory) {
        free(block);
        return DDP_ERR_MEMORY;
    }
    block->next = self->blocks;
    self->blocks = block;
    *memory = block->memory;
    return DDP_OK;
}

static enum ddp_status release(void *state, void *memory)
{
    struct self *self = state;
    for (struct block **link = &self->blocks; *link; link = &(*link)->next) {
        struct block *block = *link;
        if (block->memory == memory) {
            *link = block->next;
            free_block(block);
            return DDP_OK;
        }
    }
    return DDP_ERR_INVALID;
}

static bool registered(const void *state, const void *memory, size_t bytes)
{
    const struct self *self = state;
    for (const struct block *block = self->blocks; block; block = block->next) {
        uintptr_t begin = (uintptr_t)block->memory, at = (uintptr_t)memory;
        if (at >= begin && at - begin <= block->bytes && bytes <= block->bytes - (at - begin))
            return true;
    }
    return false;
}

static enum ddp_status copy(const void *send, void *receive, size_t count, enum ddp_dtype dtype)
{
    if (send != receive && count > 0)
        memmove(receive, send, count * ddp_dtype_bytes(dtype));
    return DDP_OK;
}

static enum ddp_status allreduce(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                                 enum ddp_redop op)
{
    (void)state, (void)buffer, (void)count, (void)dtype, (void)op;
    return DDP_OK;
}

static enum ddp_status reduce_scatter(void *state, const void *send, void *receive, size_t count,
                                      enum ddp_dtype dtype, enum ddp_redop op)
{
    (void)state, (void)op;
    return copy(send, receive, count, dtype);
}

static enum ddp_status all_gather(void *state, const void *send, void *receive, size_t count,
                                  enum ddp_dtype dtype)
{
    (void)state;
    return copy(send, receive, count, dtype);
}

static enum ddp_status broadcast(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                                 int root)
{
    (void)state, (void)buffer, (void)count, (void)dtype, (void)root;
    return DDP_OK;
}

static enum ddp_status start_slices(void *state, void *buffer, size_t count, size_t grain,
                                    enum ddp_dtype dtype, enum ddp_redop op)
{
    (void)state, (void)buffer, (void)count, (void)grain, (void)dtype, (void)op;
    return DDP_OK;
}

static enum ddp_status gather_slices(void *state, void *buffer, size_t count, size_t grain,
                                     enum ddp_dtype dtype)
{
    (void)state, (void)buffer, (void)count, (void)grain, (void)dtype;
    return DDP_OK;
}

static enum ddp_status nothing(void *state)
{
    (void)state;
    return DDP_OK;
}

const struct ddp_comm_ops ddp_comm_self = {
    .name = "self",
    .fits = fits,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .free = release,
    .registered = registered,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .barrier = nothing,
    .start = allreduce,
    .progress = nothing,
    .finish = nothing,
    .alloc_shared = alloc,
    .start_slices = start_slices,
    .gather_slices = gather_slices,
};

/* SPDX-License-Identifier: MIT
 *
 * The communicator of one rank, on the host's memory or a device's: every collective is a
 * copy or nothing. */
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
    ddp_device *device; /* NULL: the host */
    struct block *blocks;
};

static bool fits(const struct ddp_comm_place *place)
{
    return place->size == 1;
}

static enum ddp_status create(void **state, const struct ddp_comm_place *place)
{
    struct self *self = ddp_array_alloc(1, sizeof *self);
    if (!self)
        return DDP_ERR_MEMORY;
    self->device = place->device;
    *state = self;
    return DDP_OK;
}

static enum ddp_status alloc(void *state, const struct ddp_comm_call *call, void **memory)
{
    struct self *self = state;
    struct block *block = ddp_array_alloc(1, sizeof *block);
    enum ddp_status status = DDP_ERR_MEMORY;
    if (!block)
        return status;
    block->bytes = call->count;
    if (self->device)
        status = ddp_device_alloc(self->device, block->bytes, &block->memory);
    else if ((block->memory = ddp_pages_alloc(block->bytes)))
        status = DDP_OK;
    if (status != DDP_OK) {
        free(block);
        return status;
    }
    block->next = self->blocks;
    self->blocks = block;
    *memory = block->memory;
    return DDP_OK;
}

static void release(const struct self *self, struct block **link)
{
    struct block *block = *link;
    *link = block->next;
    if (self->device)
        ddp_device_free(self->device, block->memory, block->bytes);
    else
        ddp_pages_free(block->memory, block->bytes);
    free(block);
}

static void destroy(void *state)
{
    struct self *self = state;
    while (self->blocks)
        release(self, &self->blocks);
    free(self);
}

static enum ddp_status free_memory(struct self *self, const void *memory)
{
    struct block **link = &self->blocks;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    if (!*link)
        return DDP_ERR_INVALID;
    release(self, link);
    return DDP_OK;
}

static bool registered(const void *state, const void *memory, size_t bytes)
{
    const struct self *self = state;
    for (const struct block *block = self->blocks; block; block = block->next)
        if (ddp_comm_within(block->memory, block->bytes, memory, bytes))
            return true;
    return false;
}

static enum ddp_status run(void *state, const struct ddp_comm_call *call)
{
    struct self *self = state;
    if (call->kind == DDP_COMM_FREE)
        return free_memory(self, call->receive);
    if (call->send == call->receive || call->bytes == 0)
        return DDP_OK;
    if (self->device)
        return ddp_device_copy(self->device, call->receive, call->send, call->bytes);
    memmove(call->receive, call->send, call->bytes);
    return DDP_OK;
}

static enum ddp_status nothing(void *state)
{
    (void)state;
    return DDP_OK;
}

const struct ddp_comm_ops ddp_comm_self = {
    .name = "self",
    .has_shared = true,
    .fits = fits,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .registered = registered,
    .run = run,
    .progress = nothing,
    .finish = nothing,
};

/* SPDX-License-Identifier: MIT
 *
 * See thin.h. */
#include "config.h"

#include "comm/thin.h"

#include "comm/comm_state.h"

static enum ddp_status alloc(ddp_comm *comm, enum ddp_comm_kind kind, size_t bytes, void **memory)
{
    struct ddp_comm_call call = {.kind = kind, .count = bytes, .thin = true};
    enum ddp_status status = ddp_comm_enter(comm, &call);
    return status != DDP_OK ? status
                            : ddp_comm_leave(comm, comm->ops->alloc(comm->state, &call, memory));
}

enum ddp_status ddp_comm_alloc_thin(ddp_comm *comm, size_t bytes, void **memory)
{
    return alloc(comm, DDP_COMM_ALLOC, bytes, memory);
}

enum ddp_status ddp_comm_alloc_thin_shared(ddp_comm *comm, size_t bytes, void **memory)
{
    return alloc(comm, DDP_COMM_ALLOC_SHARED, bytes, memory);
}

enum ddp_status ddp_comm_provide(ddp_comm *comm, void *memory, size_t bytes)
{
    return comm->ops->provide(comm->state, memory, bytes);
}

void ddp_comm_punch(ddp_comm *comm, void *memory, size_t bytes)
{
    comm->ops->punch(comm->state, memory, bytes);
}

enum ddp_status ddp_comm_settle(ddp_comm *comm, int most)
{
    if (comm->dead != DDP_OK || !comm->overlapping)
        return comm->dead;
    return comm->dead = comm->ops->settle(comm->state, most);
}

/* SPDX-License-Identifier: MIT
 *
 * Communicators: the choice of a backend, and what is the same for all of them. */
#include "config.h"

#include "comm/comm_state.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/plugin.h"
#include "core/trace.h"
#include "kernels/reduce.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct ddp_comm_ops *const backends[] = {&ddp_comm_self, &ddp_comm_shm,
                                                      &ddp_comm_nodes, NULL};

/* Id slots that this process has used so far: the same on all ranks, and never given back, because
 * the slots lie on the board of its launcher. */
static atomic_int slots_used;

static const struct ddp_comm_ops *choose(const ddp_job *job, const char *name)
{
    for (int i = 0; backends[i]; i++)
        if (name ? strcmp(backends[i]->name, name) == 0 : backends[i]->fits(job))
            return backends[i];
    return NULL;
}

/* The backend of a plugin; what is missing is logged. */
static const struct ddp_comm_ops *plugin_ops(const char *backend, const ddp_device *device)
{
    const struct ddp_plugin *plugin;
    if (ddp_plugin_load(&plugin, ddp_device_name(device), true) != DDP_OK)
        return NULL;
    if (plugin->comm && strcmp(plugin->comm->name, backend) == 0)
        return plugin->comm;
    ddp_log(DDP_LOG_ERROR, "the plugin %s has no communicator '%s'", plugin->name, backend);
    return NULL;
}

static enum ddp_status create_with(ddp_comm **comm, ddp_job *job, const struct ddp_comm_ops *ops,
                                   ddp_device *device)
{
    if (!ops->fits(job))
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "the communicator '%s' does not support %d workers here", ops->name,
                        ddp_job_world_size(job));
    int slot = ddp_job_world_size(job) > 1 ? atomic_fetch_add(&slots_used, 1) : -1;
    if (slot >= DDP_ID_SLOTS)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "a job can create at most %d communicators",
                        DDP_ID_SLOTS);
    struct ddp_comm *c = ddp_array_alloc(1, sizeof *c);
    if (!c)
        return DDP_ERR_MEMORY;
    c->ops = ops;
    c->place = (struct ddp_comm_place){.job = job,
                                       .rank = ddp_job_rank(job),
                                       .size = ddp_job_world_size(job),
                                       .node = ddp_job_node(job),
                                       .node_count = ddp_job_node_count(job),
                                       .node_rank = ddp_job_node_rank(job),
                                       .node_size = ddp_job_node_size(job),
                                       .id_slot = slot,
                                       .timeout_ms = -1,
                                       .device = device,
                                       .device_state = device ? ddp_device_state(device) : NULL};
    enum ddp_status status = ops->create(&c->state, &c->place);
    if (status != DDP_OK) {
        free(c);
        return status;
    }
    *comm = c;
    return DDP_OK;
}

enum ddp_status ddp_comm_create_on(ddp_comm **comm, ddp_job *job, const char *backend,
                                   ddp_device *device)
{
    const struct ddp_comm_ops *ops =
        ddp_job_world_size(job) == 1 ? &ddp_comm_self : plugin_ops(backend, device);
    return ops ? create_with(comm, job, ops, device) : DDP_ERR_UNSUPPORTED;
}

enum ddp_status ddp_comm_create(ddp_comm **comm, ddp_job *job, const char *backend)
{
    const struct ddp_comm_ops *ops = choose(job, backend);
    if (!ops && backend)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "there is no communicator '%s'", backend);
    if (!ops)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%d workers are too many: collectives on one machine support at most %d",
                        ddp_job_node_size(job), DDP_REDUCE_MAX);
    return create_with(comm, job, ops, NULL);
}

void ddp_comm_destroy(ddp_comm *comm)
{
    if (!comm)
        return;
    comm->ops->destroy(comm->state);
    while (comm->channels) {
        struct ddp_channel *next = comm->channels->next;
        free(comm->channels);
        comm->channels = next;
    }
    free(comm);
}

int ddp_comm_rank(const ddp_comm *comm)
{
    return comm->place.rank;
}

int ddp_comm_size(const ddp_comm *comm)
{
    return comm->place.size;
}

const char *ddp_comm_backend(const ddp_comm *comm)
{
    return comm->ops->name;
}

void ddp_comm_set_timeout(ddp_comm *comm, int timeout_ms)
{
    comm->place.timeout_ms = timeout_ms;
}

void ddp_comm_set_fast(ddp_comm *comm, bool fast)
{
    comm->fast = fast;
}

/* --- one way for all calls --- */

/* Checks what the caller gave, and completes it. */
static enum ddp_status check(const ddp_comm *comm, struct ddp_comm_call *call)
{
    const struct ddp_comm_kind_info *kind = &ddp_comm_kinds[call->kind];
    const size_t element = kind->bytes ? 1 : ddp_dtype_bytes(call->dtype);
    size_t all;
    if (kind->reduces && call->dtype == DDP_BF16)
        return ddp_fail(DDP_ERR_INVALID, "%s: bf16 cannot be reduced; reduce float32, then round",
                        kind->name);
    if (kind->reduces && (unsigned)call->op > DDP_MAX)
        return ddp_fail(DDP_ERR_INVALID, "%s: no operator %d", kind->name, (int)call->op);
    if (kind->slices && call->grain == 0)
        return ddp_fail(DDP_ERR_INVALID, "%s: slices of %u elements", kind->name, call->grain);
    if (comm->dead != DDP_OK)
        return comm->dead;
    if (element == 0 || !ddp_size_multiply(call->count, element, &call->bytes) ||
        !ddp_size_multiply(call->bytes, (size_t)comm->place.size, &all))
        return ddp_fail(DDP_ERR_INVALID, "%s: %zu elements of dtype %d", kind->name,
                        (size_t)call->count, (int)call->dtype);
    if (kind->starts && call->bytes > 0 &&
        !comm->ops->registered(comm->state, call->receive, call->bytes))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: only registered memory can be reduced while computing", kind->name);
    if (kind->elements && call->bytes > 0 && (!call->send || !call->receive))
        return ddp_fail(DDP_ERR_INVALID, "%s: the memory is NULL", kind->name);
    if (call->root < 0 || call->root >= comm->place.size)
        return ddp_fail(DDP_ERR_INVALID, "%s: there is no rank %d", kind->name, call->root);
    if (comm->overlapping && !kind->starts)
        return ddp_fail(DDP_ERR_INVALID, "%s: all-reduces were started and not finished",
                        kind->name);
    call->fast = kind->reduces && comm->fast;
    return DDP_OK;
}

enum ddp_status ddp_comm_enter(ddp_comm *comm, struct ddp_comm_call *call)
{
    const struct ddp_comm_kind_info *kind = &ddp_comm_kinds[call->kind];
    enum ddp_status status = check(comm, call);
    if (status != DDP_OK)
        return status;
    comm->name = kind->name;
    comm->bytes = call->bytes;
    ddp_job_collective_enter(comm->place.job, kind->board ? kind->board : kind->name,
                             comm->number++, comm->bytes);
    comm->begin_ns = ddp_trace_begin();
    return DDP_OK;
}

enum ddp_status ddp_comm_leave(ddp_comm *comm, enum ddp_status status)
{
    ddp_job_collective_leave(comm->place.job);
    ddp_trace_end(comm->name, comm->begin_ns, "bytes", (int64_t)comm->bytes);
    if (status != DDP_OK &&
        status != DDP_ERR_MEMORY) /* too little memory is so on all ranks alike */
        comm->dead = status;
    return status;
}

static enum ddp_status run(ddp_comm *comm, struct ddp_comm_call *call)
{
    enum ddp_status status = ddp_comm_enter(comm, call);
    return status != DDP_OK ? status : ddp_comm_leave(comm, comm->ops->run(comm->state, call));
}

/* It is left in ddp_comm_finish(). */
static enum ddp_status start(ddp_comm *comm, struct ddp_comm_call *call)
{
    enum ddp_status status = ddp_comm_enter(comm, call);
    if (status != DDP_OK)
        return status;
    comm->overlapping = true;
    return comm->dead = comm->ops->run(comm->state, call);
}

static enum ddp_status alloc(ddp_comm *comm, struct ddp_comm_call *call, void **memory)
{
    enum ddp_status status = ddp_comm_enter(comm, call);
    return status != DDP_OK ? status
                            : ddp_comm_leave(comm, comm->ops->alloc(comm->state, call, memory));
}

/* 0, which no slices have, for what does not fit a call. */
static uint32_t fitting(size_t grain)
{
    return grain <= UINT32_MAX ? (uint32_t)grain : 0;
}

/* --- the calls --- */

enum ddp_status ddp_comm_alloc(ddp_comm *comm, size_t bytes, void **memory)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2 / (size_t)comm->place.size)
        return ddp_fail(DDP_ERR_INVALID, "cannot allocate %zu bytes of registered memory", bytes);
    struct ddp_comm_call call = {.kind = DDP_COMM_ALLOC, .count = bytes};
    return alloc(comm, &call, memory);
}

bool ddp_comm_has_shared(const ddp_comm *comm)
{
    return comm->ops->has_shared;
}

enum ddp_status ddp_comm_alloc_shared(ddp_comm *comm, size_t bytes, void **memory)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return ddp_fail(DDP_ERR_INVALID, "cannot allocate %zu bytes of shared memory", bytes);
    struct ddp_comm_call call = {.kind = DDP_COMM_ALLOC_SHARED, .count = bytes};
    return alloc(comm, &call, memory);
}

enum ddp_status ddp_comm_free(ddp_comm *comm, void *memory)
{
    if (!memory || !comm->ops->registered(comm->state, memory, 1))
        return ddp_fail(DDP_ERR_INVALID, "this memory does not belong to the communicator");
    struct ddp_comm_call call = {.kind = DDP_COMM_FREE, .receive = memory};
    return run(comm, &call);
}

enum ddp_status ddp_comm_barrier(ddp_comm *comm)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_BARRIER};
    return run(comm, &call);
}

enum ddp_status ddp_comm_allreduce(ddp_comm *comm, void *buffer, size_t count, enum ddp_dtype dtype,
                                   enum ddp_redop op)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_ALLREDUCE,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op};
    return run(comm, &call);
}

enum ddp_status ddp_comm_reduce_scatter(ddp_comm *comm, const void *send, void *receive,
                                        size_t count, enum ddp_dtype dtype, enum ddp_redop op)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_REDUCE_SCATTER,
                                 .send = send,
                                 .receive = receive,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op};
    return run(comm, &call);
}

enum ddp_status ddp_comm_all_gather(ddp_comm *comm, const void *send, void *receive, size_t count,
                                    enum ddp_dtype dtype)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_ALL_GATHER,
                                 .send = send,
                                 .receive = receive,
                                 .count = count,
                                 .dtype = dtype};
    return run(comm, &call);
}

enum ddp_status ddp_comm_broadcast(ddp_comm *comm, void *buffer, size_t count, enum ddp_dtype dtype,
                                   int root)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_BROADCAST,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .dtype = dtype,
                                 .root = root};
    return run(comm, &call);
}

enum ddp_status ddp_comm_gather_slices(ddp_comm *comm, void *buffer, size_t count, size_t grain,
                                       enum ddp_dtype dtype)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_GATHER_SLICES,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .grain = fitting(grain),
                                 .dtype = dtype};
    return run(comm, &call);
}

enum ddp_status ddp_comm_allreduce_start(ddp_comm *comm, void *buffer, size_t count,
                                         enum ddp_dtype dtype, enum ddp_redop op)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_ALLREDUCE_START,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op};
    return start(comm, &call);
}

enum ddp_status ddp_comm_reduce_slices_start(ddp_comm *comm, void *buffer, size_t count,
                                             size_t grain, enum ddp_dtype dtype, enum ddp_redop op)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_REDUCE_SLICES_START,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .grain = fitting(grain),
                                 .dtype = dtype,
                                 .op = op};
    return start(comm, &call);
}

enum ddp_status ddp_comm_progress(ddp_comm *comm)
{
    if (comm->dead != DDP_OK)
        return comm->dead;
    if (!comm->overlapping && !comm->channels)
        return DDP_OK;
    return comm->dead = comm->ops->progress(comm->state);
}

enum ddp_status ddp_comm_finish(ddp_comm *comm)
{
    if (comm->dead != DDP_OK)
        return comm->dead;
    if (!comm->overlapping)
        return DDP_OK;
    comm->overlapping = false;
    comm->name = "finish all-reduces";
    comm->begin_ns = ddp_trace_begin();
    return ddp_comm_leave(comm, comm->ops->finish(comm->state));
}

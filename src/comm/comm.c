/* SPDX-License-Identifier: MIT
 *
 * Communicators: the choice of a backend, and what is the same for all of them. */
#include "config.h"

#include "comm/comm.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/plugin.h"
#include "core/trace.h"
#include "kernels/reduce.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct ddp_comm_ops *const backends[] = {&ddp_comm_self, &ddp_comm_shm, NULL};

struct ddp_comm {
    const struct ddp_comm_ops *ops;
    void *state;
    struct ddp_comm_place place;
    uint64_t number;      /* of the next collective */
    bool overlapping;     /* all-reduces are started and not finished */
    enum ddp_status dead; /* the failure that ended it, or DDP_OK */
    const char *name;     /* of the current collective, its size and begin: for the trace */
    int64_t begin_ns;
    size_t bytes;
};

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
    int slot = ops->needs_id ? atomic_fetch_add(&slots_used, 1) : -1;
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
    const struct ddp_comm_ops *ops = plugin_ops(backend, device);
    if (!ops)
        return DDP_ERR_UNSUPPORTED;
    return create_with(comm, job, ops, device);
}

enum ddp_status ddp_comm_create(ddp_comm **comm, ddp_job *job, const char *backend)
{
    const struct ddp_comm_ops *ops = choose(job, backend);
    if (!ops && backend)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "there is no communicator '%s'", backend);
    if (!ops)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%d workers are too many: collectives on one machine support at most %d",
                        ddp_job_world_size(job), DDP_REDUCE_MAX);
    if (!ops->fits(job))
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "the communicator '%s' does not support %d workers here", ops->name,
                        ddp_job_world_size(job));
    return create_with(comm, job, ops, NULL);
}

void ddp_comm_destroy(ddp_comm *comm)
{
    if (!comm)
        return;
    comm->ops->destroy(comm->state);
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
    comm->place.fast = fast;
}

/* Checks what all collectives share, and writes to the board that this rank has arrived. */
static enum ddp_status enter(ddp_comm *comm, const char *name, size_t count, enum ddp_dtype dtype)
{
    const size_t size = ddp_dtype_bytes(dtype);
    size_t bytes, all;
    if (comm->dead != DDP_OK)
        return comm->dead;
    if (size == 0 || !ddp_size_multiply(count, size, &bytes) ||
        !ddp_size_multiply(bytes, (size_t)comm->place.size, &all))
        return ddp_fail(DDP_ERR_INVALID, "%s: %zu elements of dtype %d", name, count, (int)dtype);
    if (comm->overlapping && name[strlen(name) - 1] != '+')
        return ddp_fail(DDP_ERR_INVALID, "%s: all-reduces were started and not finished", name);
    ddp_job_collective_enter(comm->place.job, name, comm->number++, bytes);
    comm->name = name;
    comm->bytes = bytes;
    comm->begin_ns = ddp_trace_begin();
    return DDP_OK;
}

static enum ddp_status leave(ddp_comm *comm, enum ddp_status status)
{
    ddp_job_collective_leave(comm->place.job);
    ddp_trace_end(comm->name, comm->begin_ns, "bytes", (int64_t)comm->bytes);
    if (status != DDP_OK &&
        status != DDP_ERR_MEMORY) /* too little memory is so on all ranks alike */
        comm->dead = status;
    return status;
}

static enum ddp_status check_op(const char *name, enum ddp_dtype dtype, enum ddp_redop op)
{
    if (dtype == DDP_BF16)
        return ddp_fail(DDP_ERR_INVALID, "%s: bf16 cannot be reduced; reduce float32, then round",
                        name);
    return (unsigned)op > DDP_MAX ? ddp_fail(DDP_ERR_INVALID, "%s: no operator %d", name, (int)op)
                                  : DDP_OK;
}

static enum ddp_status check_memory(const char *name, const void *memory, size_t count)
{
    return count > 0 && !memory ? ddp_fail(DDP_ERR_INVALID, "%s: the memory is NULL", name)
                                : DDP_OK;
}

static enum ddp_status check_grain(const char *name, size_t grain)
{
    return grain == 0 || grain > INT32_MAX
               ? ddp_fail(DDP_ERR_INVALID, "%s: slices of %zu elements", name, grain)
               : DDP_OK;
}

enum ddp_status ddp_comm_alloc(ddp_comm *comm, size_t bytes, void **memory)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2 / (size_t)comm->place.size)
        return ddp_fail(DDP_ERR_INVALID, "cannot allocate %zu bytes of registered memory", bytes);
    enum ddp_status status = enter(comm, "alloc", bytes / 4, DDP_F32);
    return status != DDP_OK ? status : leave(comm, comm->ops->alloc(comm->state, bytes, memory));
}

enum ddp_status ddp_comm_free(ddp_comm *comm, void *memory)
{
    if (!memory || !comm->ops->registered(comm->state, memory, 1))
        return ddp_fail(DDP_ERR_INVALID, "this memory does not belong to the communicator");
    enum ddp_status status = enter(comm, "free", 0, DDP_F32);
    return status != DDP_OK ? status : leave(comm, comm->ops->free(comm->state, memory));
}

enum ddp_status ddp_comm_allreduce(ddp_comm *comm, void *buffer, size_t count, enum ddp_dtype dtype,
                                   enum ddp_redop op)
{
    enum ddp_status status = check_op("all-reduce", dtype, op);
    if (status == DDP_OK)
        status = check_memory("all-reduce", buffer, count);
    if (status == DDP_OK)
        status = enter(comm, "all-reduce", count, dtype);
    return status != DDP_OK
               ? status
               : leave(comm, comm->ops->allreduce(comm->state, buffer, count, dtype, op));
}

enum ddp_status ddp_comm_reduce_scatter(ddp_comm *comm, const void *send, void *receive,
                                        size_t count, enum ddp_dtype dtype, enum ddp_redop op)
{
    enum ddp_status status = check_op("reduce-scatter", dtype, op);
    if (status == DDP_OK)
        status = check_memory("reduce-scatter", send, count);
    if (status == DDP_OK)
        status = check_memory("reduce-scatter", receive, count);
    if (status == DDP_OK)
        status = enter(comm, "reduce-scatter", count, dtype);
    return status != DDP_OK ? status
                            : leave(comm, comm->ops->reduce_scatter(comm->state, send, receive,
                                                                    count, dtype, op));
}

enum ddp_status ddp_comm_all_gather(ddp_comm *comm, const void *send, void *receive, size_t count,
                                    enum ddp_dtype dtype)
{
    enum ddp_status status = check_memory("all-gather", send, count);
    if (status == DDP_OK)
        status = check_memory("all-gather", receive, count);
    if (status == DDP_OK)
        status = enter(comm, "all-gather", count, dtype);
    return status != DDP_OK
               ? status
               : leave(comm, comm->ops->all_gather(comm->state, send, receive, count, dtype));
}

enum ddp_status ddp_comm_broadcast(ddp_comm *comm, void *buffer, size_t count, enum ddp_dtype dtype,
                                   int root)
{
    enum ddp_status status = check_memory("broadcast", buffer, count);
    if (status == DDP_OK && (root < 0 || root >= comm->place.size))
        status = ddp_fail(DDP_ERR_INVALID, "broadcast: there is no rank %d", root);
    if (status == DDP_OK)
        status = enter(comm, "broadcast", count, dtype);
    return status != DDP_OK
               ? status
               : leave(comm, comm->ops->broadcast(comm->state, buffer, count, dtype, root));
}

enum ddp_status ddp_comm_barrier(ddp_comm *comm)
{
    enum ddp_status status = enter(comm, "barrier", 0, DDP_F32);
    return status != DDP_OK ? status : leave(comm, comm->ops->barrier(comm->state));
}

enum ddp_status ddp_comm_allreduce_start(ddp_comm *comm, void *buffer, size_t count,
                                         enum ddp_dtype dtype, enum ddp_redop op)
{
    enum ddp_status status = check_op("all-reduce", dtype, op);
    if (status == DDP_OK && count > 0 &&
        !comm->ops->registered(comm->state, buffer, count * ddp_dtype_bytes(dtype)))
        status = ddp_fail(DDP_ERR_INVALID,
                          "all-reduce: only registered memory can be reduced while computing");
    if (status == DDP_OK)
        status = enter(comm, "all-reduce+", count, dtype);
    if (status != DDP_OK)
        return status;
    comm->overlapping = true;
    status = comm->ops->start(comm->state, buffer, count, dtype, op);
    if (status != DDP_OK)
        comm->dead = status;
    return status;
}

bool ddp_comm_has_slices(const ddp_comm *comm)
{
    return comm->ops->start_slices && comm->ops->gather_slices;
}

enum ddp_status ddp_comm_reduce_slices_start(ddp_comm *comm, void *buffer, size_t count,
                                             size_t grain, enum ddp_dtype dtype, enum ddp_redop op)
{
    enum ddp_status status = check_op("reduce-scatter", dtype, op);
    if (status == DDP_OK)
        status = check_grain("reduce-scatter", grain);
    if (status == DDP_OK && count > 0 &&
        !comm->ops->registered(comm->state, buffer, count * ddp_dtype_bytes(dtype)))
        status = ddp_fail(DDP_ERR_INVALID,
                          "reduce-scatter: only registered memory can be reduced while computing");
    if (status == DDP_OK)
        status = enter(comm, "reduce-scatter+", count, dtype);
    if (status != DDP_OK)
        return status;
    comm->overlapping = true;
    status = comm->ops->start_slices(comm->state, buffer, count, grain, dtype, op);
    if (status != DDP_OK)
        comm->dead = status;
    return status;
}

enum ddp_status ddp_comm_gather_slices(ddp_comm *comm, void *buffer, size_t count, size_t grain,
                                       enum ddp_dtype dtype)
{
    enum ddp_status status = check_memory("all-gather", buffer, count);
    if (status == DDP_OK)
        status = check_grain("all-gather", grain);
    if (status == DDP_OK)
        status = enter(comm, "all-gather", count, dtype);
    return status != DDP_OK
               ? status
               : leave(comm, comm->ops->gather_slices(comm->state, buffer, count, grain, dtype));
}

bool ddp_comm_has_shared(const ddp_comm *comm)
{
    return comm->ops->alloc_shared != NULL;
}

enum ddp_status ddp_comm_alloc_shared(ddp_comm *comm, size_t bytes, void **memory)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return ddp_fail(DDP_ERR_INVALID, "cannot allocate %zu bytes of shared memory", bytes);
    enum ddp_status status = enter(comm, "alloc", bytes / 4, DDP_F32);
    return status != DDP_OK ? status
                            : leave(comm, comm->ops->alloc_shared(comm->state, bytes, memory));
}

enum ddp_status ddp_comm_progress(ddp_comm *comm)
{
    if (comm->dead != DDP_OK)
        return comm->dead;
    if (!comm->overlapping)
        return DDP_OK;
    enum ddp_status status = comm->ops->progress(comm->state);
    if (status != DDP_OK)
        comm->dead = status;
    return status;
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
    return leave(comm, comm->ops->finish(comm->state));
}

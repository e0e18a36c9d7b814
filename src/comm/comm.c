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

#include <stdlib.h>
#include <string.h>

#define SETUP_MS 600000 /* for the others to come up */

static const struct ddp_comm_ops *const backends[] = {&ddp_comm_self, &ddp_comm_shm,
                                                      &ddp_comm_nodes, NULL};

/* --- ranks and machines --- */

/* Where this rank is in its group, and where that is. place->starts is the caller's to free. */
static enum ddp_status locate(struct ddp_comm_place *place, ddp_job *job,
                              const struct ddp_comm_group *group)
{
    const int rank = ddp_job_rank(job), world = ddp_job_world_size(job);
    const int size = group->size, stride = group->stride;
    const bool valid = size > 0 && stride > 0 && size <= world / stride;
    const int block = valid ? stride * size : world; /* the groups in it are strewn over it */
    const int *starts = ddp_job_node_starts(job);
    if (!valid || world % block != 0 || group->first != rank / block * block + rank % stride)
        return ddp_fail(DDP_ERR_INVALID,
                        "rank %d of %d cannot be in a group of %d ranks from rank %d, %d apart",
                        rank, world, size, group->first, stride);
    *place = (struct ddp_comm_place){.job = job,
                                     .rank = (rank - group->first) / stride,
                                     .size = size,
                                     .first = group->first,
                                     .stride = stride,
                                     .id_slot = -1,
                                     .timeout_ms = -1};
    place->starts = ddp_array_alloc((size_t)ddp_job_node_count(job) + 1, sizeof *place->starts);
    if (!place->starts)
        return DDP_ERR_MEMORY;
    for (int r = 0, n = -1; r < size; r++) {
        const int member = ddp_comm_job_rank(place, r), before = n;
        while (starts[n + 1] <= member)
            n++;
        if (n == before)
            continue;
        if (n <= ddp_job_node(job))
            place->node = place->node_count;
        place->starts[place->node_count++] = r;
    }
    place->starts[place->node_count] = size;
    place->node_rank = place->rank - place->starts[place->node];
    place->node_size = place->starts[place->node + 1] - place->starts[place->node];
    return DDP_OK;
}

/* Does each machine see groups of the same shape, numbered the same? */
static bool lie_evenly(const ddp_job *job, const struct ddp_comm_place *place)
{
    const int *starts = ddp_job_node_starts(job), here = ddp_job_node_size(job);
    const int stride = place->stride, block = stride * place->size;
    for (int n = 0; n < ddp_job_node_count(job); n++)
        if (starts[n + 1] - starts[n] != here)
            return false;
    return here % block == 0 || (block % here == 0 && (here % stride == 0 || stride % here == 0));
}

/* What all ranks of a job create. */
struct shape {
    int32_t stride, size;
    char backend[8];
};

/* `status` of getting theirs. */
static enum ddp_status compare(ddp_job *job, enum ddp_status status, const struct shape *mine,
                               int other, const struct shape *theirs)
{
    if (status == DDP_OK && memcmp(mine, theirs, sizeof *mine) != 0)
        status = ddp_fail(DDP_ERR_MISMATCH,
                          "rank %d creates communicators of %d ranks, %d apart (%.8s), rank %d "
                          "others",
                          ddp_job_rank(job), mine->size, mine->stride, mine->backend, other);
    if (status == DDP_ERR_MISMATCH)
        ddp_job_abort(job); /* the others wait for this rank */
    return status;
}

/* Do the machines create the same? Their first ranks ask rank 0. */
static enum ddp_status agree_between(ddp_job *job, int slot, const struct shape *mine)
{
    struct shape theirs;
    if (ddp_job_node_count(job) == 1 || ddp_job_node_rank(job) > 0)
        return DDP_OK;
    if (ddp_job_rank(job) == 0)
        return ddp_job_put_id(job, slot, mine, sizeof *mine);
    enum ddp_status status = ddp_job_get_id(job, slot, &theirs, sizeof theirs, SETUP_MS);
    return compare(job, status, mine, 0, &theirs);
}

/* Do all ranks? The others ask the first one of their machine. */
static enum ddp_status agree(ddp_job *job, int slot, const struct shape *mine)
{
    const int first = ddp_job_node_starts(job)[ddp_job_node(job)];
    struct shape theirs;
    enum ddp_status status = agree_between(job, slot, mine);
    if (ddp_job_node_rank(job) == 0)
        return status == DDP_OK ? ddp_job_put_node_id(job, slot, mine, sizeof *mine) : status;
    status = ddp_job_get_node_id(job, slot, &theirs, sizeof theirs, SETUP_MS);
    return compare(job, status, mine, first, &theirs);
}

/* --- creating --- */

static enum ddp_status choose(const struct ddp_comm_ops **ops, const struct ddp_comm_place *place,
                              const char *name)
{
    for (int i = 0; backends[i]; i++)
        if (name ? strcmp(backends[i]->name, name) == 0 : backends[i]->fits(place)) {
            *ops = backends[i];
            return DDP_OK;
        }
    if (name)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "there is no communicator '%s'", name);
    return ddp_fail(DDP_ERR_UNSUPPORTED,
                    "%d workers are too many: collectives on one machine support at most %d",
                    place->node_size, DDP_REDUCE_MAX);
}

/* The backend of a plugin; what is missing is logged. */
static enum ddp_status choose_plugin(const struct ddp_comm_ops **ops, const ddp_device *device,
                                     const char *name)
{
    const struct ddp_plugin *plugin;
    if (ddp_plugin_load(&plugin, ddp_device_name(device), true) != DDP_OK)
        return DDP_ERR_UNSUPPORTED;
    *ops = plugin->comm;
    if (plugin->comm && strcmp(plugin->comm->name, name) == 0)
        return DDP_OK;
    ddp_log(DDP_LOG_ERROR, "the plugin %s has no communicator '%s'", plugin->name, name);
    return DDP_ERR_UNSUPPORTED;
}

static enum ddp_status take_slots(ddp_job *job, int count, int *first)
{
    *first = ddp_job_take_slots(job, count);
    return *first + count <= DDP_ID_SLOTS
               ? DDP_OK
               : ddp_fail(DDP_ERR_UNSUPPORTED, "a job can create at most %d communicators",
                          DDP_ID_SLOTS);
}

static struct shape shape_of(const struct ddp_comm_place *place, const struct ddp_comm_ops *ops)
{
    struct shape shape = {.stride = place->stride, .size = place->size};
    const char *name = ops == &ddp_comm_shm || ops == &ddp_comm_nodes ? "host" : ops->name;
    strncpy(shape.backend, name, sizeof shape.backend - 1); /* where a group is, is its own */
    return shape;
}

/* Within a machine the ledger finds who creates something else; NCCL, who has no id for it. */
static enum ddp_status take_slot(struct ddp_comm_place *place, const struct ddp_comm_ops *ops)
{
    const struct shape shape = shape_of(place, ops);
    enum ddp_status status = take_slots(place->job, 1, &place->id_slot);
    return status == DDP_OK && !place->device ? agree_between(place->job, place->id_slot, &shape)
                                              : status;
}

/* The groups of a call have a slot each, behind the one in which the ranks agree. On the host they
 * meet inside a machine only, and those of other machines have the same slots where all machines
 * are alike. */
static enum ddp_status take_group_slots(struct ddp_comm_place *place,
                                        const struct ddp_comm_ops *ops)
{
    ddp_job *job = place->job;
    const bool over_job = place->size > 1 && (place->device || !lie_evenly(job, place));
    const int rank = over_job ? ddp_job_rank(job) : ddp_job_node_rank(job);
    const int ranks = over_job ? ddp_job_world_size(job) : ddp_job_node_size(job);
    const int block = place->stride * place->size;
    const int groups = place->size > 1 ? ranks / (over_job ? place->size : place->node_size) : 0;
    const struct shape shape = shape_of(place, ops);
    int slot;
    enum ddp_status status = take_slots(job, 1 + groups, &slot);
    if (place->size > 1)
        place->id_slot = slot + 1 + rank / block * place->stride + rank % place->stride;
    return status == DDP_OK ? agree(job, slot, &shape) : status;
}

/* Takes place->starts on success. */
static enum ddp_status create_at(ddp_comm **comm, const struct ddp_comm_place *place,
                                 const struct ddp_comm_ops *ops)
{
    struct ddp_comm *c = ddp_array_alloc(1, sizeof *c);
    if (!c)
        return DDP_ERR_MEMORY;
    c->ops = ops;
    c->place = *place;
    enum ddp_status status = ops->create(&c->state, &c->place);
    if (status != DDP_OK) {
        free(c);
        return status;
    }
    *comm = c;
    return DDP_OK;
}

static enum ddp_status create_in(ddp_comm **comm, struct ddp_comm_place *place, const char *backend,
                                 bool group)
{
    const int world = ddp_job_world_size(place->job);
    const struct ddp_comm_ops *ops = &ddp_comm_self;
    enum ddp_status status = DDP_OK;
    if (place->size > 1 || (!group && !place->device))
        status = place->device ? choose_plugin(&ops, place->device, backend)
                               : choose(&ops, place, backend);
    if (status != DDP_OK)
        return status;
    if (!ops->fits(place))
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "the communicator '%s' does not support %d workers here", ops->name,
                        place->size);
    if (world > 1)
        status = group ? take_group_slots(place, ops) : take_slot(place, ops);
    return status == DDP_OK ? create_at(comm, place, ops) : status;
}

/* `group` is NULL for all ranks of the job. */
static enum ddp_status create(ddp_comm **comm, ddp_job *job, const char *backend,
                              ddp_device *device, const struct ddp_comm_group *group)
{
    const struct ddp_comm_group all = {.stride = 1, .size = ddp_job_world_size(job)};
    struct ddp_comm_place place;
    enum ddp_status status = locate(&place, job, group ? group : &all);
    if (status != DDP_OK)
        return status;
    place.device = device;
    place.device_state = device ? ddp_device_state(device) : NULL;
    status = create_in(comm, &place, backend, group);
    if (status != DDP_OK)
        free(place.starts);
    return status;
}

enum ddp_status ddp_comm_create_on(ddp_comm **comm, ddp_job *job, const char *backend,
                                   ddp_device *device)
{
    return create(comm, job, backend, device, NULL);
}

enum ddp_status ddp_comm_create(ddp_comm **comm, ddp_job *job, const char *backend)
{
    return create(comm, job, backend, NULL, NULL);
}

enum ddp_status ddp_comm_create_group(ddp_comm **comm, ddp_job *job, const char *backend,
                                      ddp_device *device, const struct ddp_comm_group *group)
{
    return create(comm, job, backend, device, group);
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
    free(comm->place.starts);
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

void ddp_comm_set_beside(ddp_comm *comm, ddp_comm *other)
{
    comm->beside = other;
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
    if (kind->starts && kind->reduces && call->bytes > 0 &&
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
    call->fast = kind->reduces && comm->fast && !call->roots;
    return DDP_OK;
}

enum ddp_status ddp_comm_enter(ddp_comm *comm, struct ddp_comm_call *call)
{
    const struct ddp_comm_kind_info *kind = &ddp_comm_kinds[call->kind];
    const struct ddp_comm_place *place = &comm->place;
    const struct ddp_job_group group = {place->first, place->stride, place->size, place->id_slot};
    enum ddp_status status = check(comm, call);
    if (status != DDP_OK)
        return status;
    comm->name = kind->name;
    comm->bytes = call->bytes;
    ddp_job_collective_enter(place->job, place->id_slot < 0 ? NULL : &group,
                             kind->board ? kind->board : kind->name, comm->number++, comm->bytes);
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

enum ddp_status ddp_comm_gather_slices_start(ddp_comm *comm, void *buffer, size_t count,
                                             size_t grain, enum ddp_dtype dtype)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_GATHER_SLICES_START,
                                 .send = buffer,
                                 .receive = buffer,
                                 .count = count,
                                 .grain = fitting(grain),
                                 .dtype = dtype};
    return comm->place.node_count > 1 ? start(comm, &call) : DDP_OK;
}

bool ddp_comm_has_ranges(const ddp_comm *comm)
{
    return comm->ops->has_ranges;
}

enum ddp_status ddp_comm_gather_ranges(ddp_comm *comm, const struct ddp_comm_range *ranges,
                                       size_t range_count, size_t grain)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_GATHER_RANGES,
                                 .grain = fitting(grain),
                                 .ranges = ranges,
                                 .range_count = range_count};
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; i < range_count; i++)
        call.count += (ranges[i].end - ranges[i].begin) * ddp_dtype_bytes(ranges[i].dtype);
    if (comm->ops->has_ranges)
        return run(comm, &call);
    for (size_t i = 0; status == DDP_OK && i < range_count; i++)
        if (i == 0 || ranges[i].vector != ranges[i - 1].vector)
            status = ddp_comm_gather_slices(comm, ranges[i].vector, ranges[i].count, grain,
                                            ranges[i].dtype);
    return status;
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

enum ddp_status ddp_comm_reduce_roots_start(ddp_comm *comm, float *buffer, size_t count,
                                            size_t grain, const struct ddp_comm_roots *roots,
                                            size_t rounded, bool thin)
{
    struct ddp_comm_call call = {
        .kind = grain ? DDP_COMM_REDUCE_SLICES_START : DDP_COMM_ALLREDUCE_START,
        .send = buffer,
        .receive = buffer,
        .count = count,
        .grain = fitting(grain),
        .dtype = DDP_F32,
        .op = DDP_SUM,
        .roots = roots,
        .thin = thin,
        .rounded = rounded,
    };
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

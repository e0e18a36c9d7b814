/* SPDX-License-Identifier: MIT
 *
 * The communicator between processes of one machine: setting up, and all-reduces that overlap with
 * computing. */
#include "config.h"

#include "comm/shm.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "kernels/reduce.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SETUP_TIMEOUT_MS 600000 /* for rank 0 to come up */
#define SPINS            4000   /* about 100 us; a wait is mostly much shorter, or much longer */
#define SPINS_CROWDED    20     /* more ranks than processors: whoever is awaited needs this one */

/* What rank 0 hands to the others through the communicator's id slot. */
struct invitation {
    uint64_t offset, bytes;
};

static bool fits(const ddp_job *job)
{
    return ddp_job_world_size(job) <= DDP_REDUCE_MAX && ddp_job_heap_fd(job) >= 0;
}

static size_t lines_bytes(int size)
{
    return ddp_align_up((size_t)size * sizeof(struct shm_line), DDP_PAGE);
}

static size_t control_bytes(int size)
{
    return lines_bytes(size) + (size_t)size * 2 * SHM_SLOT_BYTES;
}

/* Rank 0 takes a control area from the heap; everybody maps it. */
static enum ddp_status map_control(struct shm *shm)
{
    const struct ddp_comm_place *place = shm->place;
    struct invitation invitation = {.bytes = control_bytes(place->size)};
    enum ddp_status status = DDP_OK;
    if (place->rank == 0) {
        status = shm_check_available(invitation.bytes, place->size);
        if (status == DDP_OK)
            status = ddp_job_heap_reserve(place->job, invitation.bytes, &invitation.offset);
    } else {
        status = ddp_job_get_id(place->job, place->id_slot, &invitation, sizeof invitation,
                                place->timeout_ms < 0 ? SETUP_TIMEOUT_MS : place->timeout_ms);
    }
    if (status == DDP_OK && invitation.bytes != control_bytes(place->size))
        status = ddp_fail(DDP_ERR_MISMATCH, "the ranks run different versions of libddp");
    if (status == DDP_OK)
        status = shm_map(shm, invitation.offset, invitation.bytes, invitation.offset,
                         place->rank == 0 ? invitation.bytes : 0, &shm->control);
    if (status != DDP_OK)
        return status;
    shm->control_bytes = invitation.bytes;
    shm->lines = shm->control;
    shm->slots = (char *)shm->control + lines_bytes(place->size);
    if (place->rank == 0)
        status = ddp_job_put_id(place->job, place->id_slot, &invitation, sizeof invitation);
    return status;
}

/* Everybody shows the processors that it may use; ranks that outnumber them all must not spin. */
static enum ddp_status choose_spins(struct shm *shm)
{
    const int size = shm->place->size;
    struct shm_call call = {.kind = SHM_EXCHANGE, .count = sizeof(cpu_set_t)};
    cpu_set_t own, all;
    CPU_ZERO(&own);
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof own, &own) < 0)
        CPU_ZERO(&own); /* unknown: too few, to be on the safe side */
    uint32_t number = shm_post(shm, &call, SHM_NOWHERE, &own, sizeof own);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK)
        return status;
    for (int r = 0; r < size; r++) {
        cpu_set_t theirs;
        memcpy(&theirs, shm_entry_of(shm, r, number)->payload, sizeof theirs);
        CPU_OR(&all, &all, &theirs);
    }
    shm->spins = size > CPU_COUNT(&all) ? SPINS_CROWDED : SPINS;
    return DDP_OK;
}

static void destroy(void *state)
{
    struct shm *shm = state;
    shm_free_regions(shm);
    if (shm->control)
        munmap(shm->control, shm->control_bytes);
    free(shm);
}

static enum ddp_status create(void **state, const struct ddp_comm_place *place)
{
    struct shm *shm = ddp_array_alloc(1, sizeof *shm);
    if (!shm)
        return DDP_ERR_MEMORY;
    shm->place = place;
    shm->heap = ddp_job_heap_fd(place->job);
    enum ddp_status status = map_control(shm);
    if (status == DDP_OK)
        status = choose_spins(shm);
    if (status != DDP_OK) {
        destroy(shm);
        return status;
    }
    *state = shm;
    return DDP_OK;
}

/* --- all-reduces that overlap --- */

static struct shm_pending *pending_at(struct shm *shm, int index)
{
    return &shm->pending[(shm->pending_first + index) % SHM_RING];
}

static void drop_first(struct shm *shm)
{
    const struct shm_pending *first = pending_at(shm, 0);
    ddp_trace_end_overlapping(
        "bucket", first->begin_ns, first->number, "bytes",
        (int64_t)(first->call.count * ddp_dtype_bytes((enum ddp_dtype)first->call.dtype)));
    shm->pending_first = (shm->pending_first + 1) % SHM_RING;
    shm->pending_count--;
}

/* Slices are done in the order of the starts: `done` only counts up. */
static enum ddp_status reduce_arrived(struct shm *shm)
{
    for (int i = 0; i < shm->pending_count; i++) {
        struct shm_pending *pending = pending_at(shm, i);
        bool all = false;
        if (pending->reduced)
            continue;
        enum ddp_status status = shm_try_gather(shm, pending->number, &pending->call, &all);
        if (status == DDP_OK && !all)
            return DDP_OK;
        if (status == DDP_OK)
            status = shm_reduce_slice(shm, pending->number, &pending->call);
        if (status != DDP_OK)
            return status;
        shm_done(shm, pending->number);
        pending->reduced = true;
    }
    return DDP_OK;
}

static enum ddp_status progress(void *state)
{
    struct shm *shm = state;
    enum ddp_status status = reduce_arrived(shm);
    while (status == DDP_OK && shm->pending_count > 0 && pending_at(shm, 0)->reduced &&
           shm_all_done(shm, pending_at(shm, 0)->number))
        drop_first(shm);
    return status;
}

/* Waits until the oldest one is complete. */
static enum ddp_status complete_first(struct shm *shm)
{
    struct shm_pending *first = pending_at(shm, 0);
    enum ddp_status status = DDP_OK;
    if (!first->reduced) {
        status = shm_gather(shm, first->number, &first->call);
        if (status == DDP_OK)
            status = reduce_arrived(shm);
    }
    if (status == DDP_OK)
        status = shm_wait_done(shm, first->number);
    if (status == DDP_OK)
        drop_first(shm);
    return status;
}

static enum ddp_status finish(void *state)
{
    struct shm *shm = state;
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && shm->pending_count > 0) {
        status = progress(shm);
        if (status == DDP_OK && shm->pending_count > 0)
            status = complete_first(shm);
    }
    return status;
}

static enum ddp_status start_call(struct shm *shm, const void *buffer, const struct shm_call *call)
{
    const size_t bytes = call->count * ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    enum ddp_status status = DDP_OK;
    /* An entry of the ring may be written again once all ranks are done with what it announced. */
    while (status == DDP_OK && shm->pending_count >= SHM_RING - 2)
        status = complete_first(shm);
    if (status != DDP_OK)
        return status;
    struct shm_pending *pending = pending_at(shm, shm->pending_count++);
    *pending = (struct shm_pending){.call = *call};
    pending->begin_ns = ddp_trace_begin();
    pending->number = shm_post(shm, call, shm_offset_of(shm, buffer, bytes), NULL, 0);
    return DDP_OK;
}

static enum ddp_status start(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                             enum ddp_redop op)
{
    const struct shm_call call = {
        .kind = SHM_ALLREDUCE_STARTED, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .count = count};
    return start_call(state, buffer, &call);
}

static enum ddp_status start_slices(void *state, void *buffer, size_t count, size_t grain,
                                    enum ddp_dtype dtype, enum ddp_redop op)
{
    const struct shm_call call = {.kind = SHM_SLICES_STARTED,
                                  .dtype = (uint8_t)dtype,
                                  .op = (uint8_t)op,
                                  .root = (int32_t)grain,
                                  .count = count};
    return start_call(state, buffer, &call);
}

const struct ddp_comm_ops ddp_comm_shm = {
    .name = "shm",
    .needs_id = true,
    .fits = fits,
    .create = create,
    .destroy = destroy,
    .alloc = shm_alloc,
    .free = shm_free,
    .registered = shm_registered,
    .allreduce = shm_allreduce,
    .reduce_scatter = shm_reduce_scatter,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
    .barrier = shm_barrier,
    .start = start,
    .progress = progress,
    .finish = finish,
    .alloc_shared = shm_alloc_shared,
    .start_slices = start_slices,
    .gather_slices = shm_gather_slices,
};

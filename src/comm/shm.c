/* SPDX-License-Identifier: MIT
 *
 * The communicator between processes of one machine: setting up, and sums that overlap with
 * computing. */
#include "config.h"

#include "comm/shm.h"

#include "core/memory.h"
#include "core/trace.h"
#include "kernels/reduce.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SPINS         4000 /* about 100 us; a wait is mostly much shorter, or much longer */
#define SPINS_CROWDED 20   /* more ranks than processors: the awaited rank needs this one */

static bool fits(const struct ddp_comm_place *place)
{
    return place->node_count == 1 && place->size <= DDP_REDUCE_MAX &&
           ddp_job_heap_fd(place->job) >= 0;
}

/* Everybody shows the processors that it may use; ranks that outnumber them all must not spin. */
static enum ddp_status choose_spins(struct shm *shm)
{
    const struct ddp_comm_call call = {.kind = DDP_COMM_CREATE};
    const int size = shm->place->node_size;
    cpu_set_t own, all;
    uint32_t number;
    CPU_ZERO(&own);
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof own, &own) < 0)
        CPU_ZERO(&own); /* unknown: too few, to be on the safe side */
    enum ddp_status status =
        ddp_ledger_meet(&shm->ledger, &call, DDP_LEDGER_NOWHERE, &own, sizeof own, &number);
    if (status != DDP_OK)
        return status;
    for (int r = 0; r < size; r++) {
        cpu_set_t theirs;
        memcpy(&theirs, ddp_ledger_entry(&shm->ledger, r, number)->payload, sizeof theirs);
        CPU_OR(&all, &all, &theirs);
    }
    shm->ledger.spins = size > CPU_COUNT(&all) ? SPINS_CROWDED : SPINS;
    return DDP_OK;
}

void shm_leave(struct shm *shm)
{
    shm_free_regions(shm);
    ddp_ledger_close(&shm->ledger);
}

enum ddp_status shm_join(struct shm *shm, const struct ddp_comm_place *place, size_t rest_bytes)
{
    shm->place = place;
    enum ddp_status status = ddp_ledger_open(&shm->ledger, place, SHM_RING, rest_bytes);
    if (status == DDP_OK)
        status = choose_spins(shm);
    if (status != DDP_OK)
        shm_leave(shm);
    return status;
}

static void destroy(void *state)
{
    shm_leave(state);
    free(state);
}

static enum ddp_status create(void **state, const struct ddp_comm_place *place)
{
    struct shm *shm = ddp_array_alloc(1, sizeof *shm);
    if (!shm)
        return DDP_ERR_MEMORY;
    enum ddp_status status = shm_join(shm, place, (size_t)place->size * 2 * SHM_SLOT_BYTES);
    if (status != DDP_OK) {
        free(shm);
        return status;
    }
    *state = shm;
    return DDP_OK;
}

/* --- sums that overlap --- */

static struct shm_pending *pending_at(struct shm *shm, int index)
{
    return &shm->pending[(shm->pending_first + index) % SHM_PENDING];
}

static void drop_first(struct shm *shm)
{
    const struct shm_pending *first = pending_at(shm, 0);
    ddp_trace_end_overlapping("bucket", first->begin_ns, first->number, "bytes",
                              (int64_t)first->call.bytes);
    if (first->call.thin)
        shm_give_back(shm, &first->call);
    shm->pending_first = (shm->pending_first + 1) % SHM_PENDING;
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
        enum ddp_status status = ddp_ledger_look(&shm->ledger, pending->number, &all);
        if (status == DDP_OK && !all)
            return DDP_OK;
        if (status == DDP_OK)
            status = shm_reduce_slice(shm, pending->number, &pending->call);
        if (status != DDP_OK)
            return status;
        ddp_ledger_done(&shm->ledger, pending->number);
        pending->reduced = true;
    }
    return DDP_OK;
}

static enum ddp_status progress(void *state)
{
    struct shm *shm = state;
    enum ddp_status status = reduce_arrived(shm);
    while (status == DDP_OK && shm->pending_count > 0 && pending_at(shm, 0)->reduced &&
           ddp_ledger_all_done(&shm->ledger, pending_at(shm, 0)->number))
        drop_first(shm);
    return status;
}

/* Waits until the oldest one is complete. */
static enum ddp_status complete_first(struct shm *shm)
{
    struct shm_pending *first = pending_at(shm, 0);
    enum ddp_status status = DDP_OK;
    if (!first->reduced) {
        status = ddp_ledger_gather(&shm->ledger, first->number, &first->call);
        if (status == DDP_OK)
            status = reduce_arrived(shm);
    }
    if (status == DDP_OK)
        status = ddp_ledger_wait_done(&shm->ledger, first->number);
    if (status == DDP_OK)
        drop_first(shm);
    return status;
}

static enum ddp_status settle(void *state, int most)
{
    struct shm *shm = state;
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && shm->pending_count > most) {
        status = progress(shm);
        if (status == DDP_OK && shm->pending_count > most)
            status = complete_first(shm);
    }
    return status;
}

static enum ddp_status finish(void *state)
{
    return settle(state, 0);
}

static enum ddp_status provide(void *state, void *memory, size_t bytes)
{
    return shm_provide(state, memory, bytes);
}

static void punch(void *state, void *memory, size_t bytes)
{
    shm_punch(state, memory, bytes);
}

static enum ddp_status start(struct shm *shm, const struct ddp_comm_call *call)
{
    enum ddp_status status = DDP_OK;
    /* An entry of the ring may be written again once all ranks are done with what it announced. */
    while (status == DDP_OK && shm->pending_count == SHM_PENDING)
        status = complete_first(shm);
    if (status != DDP_OK)
        return status;
    struct shm_pending *pending = pending_at(shm, shm->pending_count++);
    *pending = (struct shm_pending){.call = *call, .begin_ns = ddp_trace_begin()};
    pending->number = ddp_ledger_post(&shm->ledger, call,
                                      shm_offset_of(shm, call->receive, call->bytes), NULL, 0);
    return DDP_OK;
}

static enum ddp_status run(void *state, const struct ddp_comm_call *call)
{
    if (ddp_comm_kinds[call->kind].starts)
        return start(state, call);
    return call->kind == DDP_COMM_FREE ? shm_free(state, call) : shm_collective(state, call);
}

const struct ddp_comm_ops ddp_comm_shm = {
    .name = "shm",
    .has_shared = true,
    .fits = fits,
    .create = create,
    .destroy = destroy,
    .alloc = shm_alloc,
    .registered = shm_registered,
    .run = run,
    .progress = progress,
    .finish = finish,
    .settle = settle,
    .provide = provide,
    .punch = punch,
    .open = shm_channel_open,
    .await = shm_channel_await,
    .pass = shm_channel_pass,
};

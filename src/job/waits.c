/* SPDX-License-Identifier: MIT
 *
 * What ranks wait for on the board: each other, ids and addresses. */
#include "config.h"

#include "core/clock.h"
#include "core/futex.h"
#include "core/log.h"
#include "core/memory.h"
#include "job/job.h"
#include "job/state.h"

#include <string.h>

enum id_state {
    ID_EMPTY = 0,
    ID_WRITING = 1,
    ID_READY = 2,
};

/* Waits until the word differs from `value`: spins for a few microseconds, then sleeps in slices.
 * Logs nothing. */
static enum ddp_status wait_change(ddp_job *job, _Atomic uint32_t *word, uint32_t value,
                                   int64_t deadline_ns)
{
    for (int spin = 0; spin < 200; spin++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return DDP_OK;
        ddp_cpu_relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == value) {
        if (ddp_job_aborted(job))
            return DDP_ERR_ABORTED;
        int64_t slice = DDP_WAIT_SLICE_NS;
        if (deadline_ns != INT64_MAX) {
            int64_t left = deadline_ns - ddp_clock_ns();
            if (left <= 0)
                return DDP_ERR_TIMEOUT;
            slice = left < slice ? left : slice;
        }
        ddp_futex_wait(word, value, slice);
    }
    return DDP_OK;
}

/* Gives up its place in the round, unless the round became complete meanwhile. */
static bool barrier_retract(_Atomic uint32_t *barrier, uint32_t round)
{
    uint32_t now = atomic_load(barrier);
    do {
        if (now >> 16 != round)
            return false;
    } while (!atomic_compare_exchange_weak(barrier, &now, now - 1));
    return true;
}

enum ddp_status ddp_job_barrier(ddp_job *job, int timeout_ms)
{
    _Atomic uint32_t *barrier = &job->board.memory->barrier;
    const uint32_t world = (uint32_t)job->board.shape.workers;
    int64_t deadline_ns = ddp_deadline_ns(timeout_ms);
    uint32_t now = atomic_load(barrier), next, round;
    if (ddp_job_aborted(job))
        return DDP_ERR_ABORTED;
    do {
        round = now >> 16;
        bool last = (now & 0xffff) + 1 >= world;
        next = last ? (round + 1) << 16 : now + 1;
    } while (!atomic_compare_exchange_weak(barrier, &now, next));
    if (next >> 16 != round) {
        ddp_futex_wake(barrier);
        return DDP_OK;
    }
    for (now = next; now >> 16 == round; now = atomic_load(barrier)) {
        enum ddp_status status = wait_change(job, barrier, now, deadline_ns);
        if (status == DDP_OK)
            continue;
        if (!barrier_retract(barrier, round))
            return DDP_OK;
        if (status == DDP_ERR_TIMEOUT)
            return ddp_fail(status, "barrier: after %d ms only %u of %u ranks have arrived",
                            timeout_ms, now & 0xffff, world);
        return status;
    }
    return DDP_OK;
}

/* --- ids and addresses: written once, by one rank ------------------------------------------- */

/* One of them on the board. */
struct posted {
    _Atomic uint32_t *state, *bytes;
    unsigned char *data;
    const char *what; /* in messages, with `number` */
    int number;
};

static enum ddp_status post(const struct posted *to, const void *data, size_t bytes)
{
    uint32_t empty = ID_EMPTY;
    if (!atomic_compare_exchange_strong(to->state, &empty, ID_WRITING))
        return ddp_fail(DDP_ERR_INVALID, "%s %d has been written before", to->what, to->number);
    memcpy(to->data, data, bytes);
    atomic_store(to->bytes, (uint32_t)bytes);
    atomic_store(to->state, ID_READY);
    ddp_futex_wake(to->state);
    return DDP_OK;
}

static enum ddp_status wait_posted(ddp_job *job, const struct posted *from, int timeout_ms)
{
    const int64_t deadline_ns = ddp_deadline_ns(timeout_ms);
    uint32_t state;
    while ((state = atomic_load(from->state)) != ID_READY) {
        enum ddp_status status = wait_change(job, from->state, state, deadline_ns);
        if (status == DDP_ERR_TIMEOUT)
            return ddp_fail(status, "%s %d: no rank has written it within %d ms", from->what,
                            from->number, timeout_ms);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

/* A slot of the job's ids, or of this machine's. */
static enum ddp_status find_id(ddp_job *job, bool of_node, int slot, size_t bytes,
                               struct posted *posted)
{
    struct ddp_board_memory *m = job->board.memory;
    if (slot < 0 || slot >= DDP_ID_SLOTS)
        return ddp_fail(DDP_ERR_INVALID, "id slot %d: must be from 0 to %d", slot,
                        DDP_ID_SLOTS - 1);
    if (bytes > DDP_ID_MAX_BYTES)
        return ddp_fail(DDP_ERR_INVALID, "an id of %zu bytes: at most %d fit", bytes,
                        DDP_ID_MAX_BYTES);
    struct ddp_board_id *entry = of_node ? &m->node_ids[slot] : &m->ids[slot];
    *posted = (struct posted){&entry->state, &entry->bytes, entry->data, "id slot", slot};
    return DDP_OK;
}

static enum ddp_status put_id(ddp_job *job, bool of_node, int slot, const void *id, size_t bytes)
{
    struct posted to;
    enum ddp_status status = find_id(job, of_node, slot, bytes, &to);
    return status == DDP_OK ? post(&to, id, bytes) : status;
}

static enum ddp_status get_id(ddp_job *job, bool of_node, int slot, void *id, size_t bytes,
                              int timeout_ms)
{
    struct posted from;
    enum ddp_status status = find_id(job, of_node, slot, bytes, &from);
    if (status == DDP_OK)
        status = wait_posted(job, &from, timeout_ms);
    if (status != DDP_OK)
        return status;
    if (atomic_load(from.bytes) != bytes)
        return ddp_fail(DDP_ERR_MISMATCH, "id slot %d holds %u bytes, not %zu", slot,
                        atomic_load(from.bytes), bytes);
    memcpy(id, from.data, bytes);
    return DDP_OK;
}

enum ddp_status ddp_job_put_id(ddp_job *job, int slot, const void *id, size_t bytes)
{
    return put_id(job, false, slot, id, bytes);
}

enum ddp_status ddp_job_get_id(ddp_job *job, int slot, void *id, size_t bytes, int timeout_ms)
{
    return get_id(job, false, slot, id, bytes, timeout_ms);
}

enum ddp_status ddp_job_put_node_id(ddp_job *job, int slot, const void *id, size_t bytes)
{
    return put_id(job, true, slot, id, bytes);
}

enum ddp_status ddp_job_get_node_id(ddp_job *job, int slot, void *id, size_t bytes, int timeout_ms)
{
    return get_id(job, true, slot, id, bytes, timeout_ms);
}

static struct posted address_of(const ddp_job *job, int rank)
{
    struct ddp_board_address *address = ddp_board_address(&job->board, rank);
    return (struct posted){&address->state, &address->bytes, address->data, "the address of rank",
                           rank};
}

enum ddp_status ddp_job_put_address(ddp_job *job, const void *address, size_t bytes)
{
    const struct posted to = address_of(job, job->rank);
    if (bytes > DDP_ADDRESS_MAX_BYTES)
        return ddp_fail(DDP_ERR_INVALID, "an address of %zu bytes: at most %d fit", bytes,
                        DDP_ADDRESS_MAX_BYTES);
    return post(&to, address, bytes);
}

enum ddp_status ddp_job_get_address(ddp_job *job, int rank,
                                    unsigned char address[DDP_ADDRESS_MAX_BYTES], size_t *bytes,
                                    int timeout_ms)
{
    const struct posted from = address_of(job, rank);
    enum ddp_status status = wait_posted(job, &from, timeout_ms);
    if (status != DDP_OK)
        return status;
    *bytes = atomic_load(from.bytes);
    if (*bytes > DDP_ADDRESS_MAX_BYTES)
        return ddp_fail(DDP_ERR_MISMATCH, "the address of rank %d has %zu bytes", rank, *bytes);
    memcpy(address, from.data, *bytes);
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * What ranks wait for on the board: each other, ids and addresses. */
#include "config.h"

#include "core/clock.h"
#include "core/futex.h"
#include "core/hash.h"
#include "core/log.h"
#include "job/job.h"
#include "job/state.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void ddp_bell_ring(int bell_fd)
{
    const uint64_t one = 1;
    if (bell_fd >= 0 && write(bell_fd, &one, sizeof one) < 0)
        return; /* it rings already */
}

static bool aborted(const ddp_job *job)
{
    return atomic_load_explicit(&job->board.memory->abort_word, memory_order_acquire) != 0;
}

enum ddp_status ddp_job_check_rank(ddp_job *job, int rank)
{
    struct flock lock = ddp_rank_byte(rank);
    if (aborted(job))
        return DDP_ERR_ABORTED;
    if (job->board_fd < 0 || rank == job->rank || rank < 0 || rank >= job->board.shape.workers)
        return DDP_OK;
    const struct ddp_board_line *line = &job->board.memory->lines[rank];
    if (atomic_load(&line->pid) == 0 || fcntl(job->board_fd, F_GETLK, &lock) < 0 ||
        lock.l_type != F_UNLCK)
        return DDP_OK;
    ddp_board_abort(&job->board, (uint32_t)rank + 1);
    return ddp_fail(DDP_ERR_ABORTED, "rank %d %s", rank,
                    atomic_load(&line->closed) ? "has left the job, and this rank waits for it"
                                               : "has died");
}

static _Atomic(ddp_turn *) process_turn;

void ddp_job_set_turn(ddp_turn *turn)
{
    atomic_store_explicit(&process_turn, turn, memory_order_release);
}

ddp_turn *ddp_job_turn(void)
{
    return atomic_load_explicit(&process_turn, memory_order_acquire);
}

enum ddp_status ddp_wait_change(ddp_job *job, _Atomic uint32_t *word, uint32_t value,
                                int64_t deadline_ns)
{
    for (int spin = 0; spin < 200; spin++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return DDP_OK;
        ddp_cpu_relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == value) {
        if (aborted(job))
            return DDP_ERR_ABORTED;
        ddp_turn *turn = ddp_job_turn();
        int64_t slice = turn ? DDP_TURN_MS * 1000000 : DDP_WAIT_SLICE_NS;
        if (turn)
            turn();
        if (deadline_ns != INT64_MAX) {
            int64_t left = deadline_ns - ddp_clock_ns();
            if (left <= 0)
                return DDP_ERR_TIMEOUT;
            slice = left < slice ? left : slice;
        }
        ddp_futex_wait(word, value, slice);
        if (ddp_job_check_rank(job, 0) != DDP_OK && atomic_load(word) == value)
            return DDP_ERR_ABORTED;
    }
    return DDP_OK;
}

/* Gives up its place in the round, unless the round became complete meanwhile. A sealed round is
 * the launchers': they are asked, and the answer is a change of the word. */
static enum ddp_status barrier_retract(ddp_job *job, uint32_t round)
{
    _Atomic uint32_t *barrier = &job->board.memory->barrier;
    uint32_t now = atomic_load(barrier);
    for (;;) {
        if (now >> 16 != round)
            return DDP_OK;
        if (!(now & DDP_BARRIER_SEALED)) {
            if (atomic_compare_exchange_weak(barrier, &now, now - 1))
                return DDP_ERR_TIMEOUT;
        } else if (now & DDP_BARRIER_ASKED) {
            if (ddp_wait_change(job, barrier, now, INT64_MAX) != DDP_OK)
                return DDP_ERR_ABORTED;
            now = atomic_load(barrier);
        } else if (atomic_compare_exchange_weak(barrier, &now, now | DDP_BARRIER_ASKED)) {
            ddp_bell_ring(job->bell_fd);
            now |= DDP_BARRIER_ASKED;
        }
    }
}

/* Counts this rank. True: the round is open, or `round` [out] is to be waited for. */
static bool barrier_arrive(ddp_job *job, uint32_t *round)
{
    _Atomic uint32_t *barrier = &job->board.memory->barrier;
    const uint32_t workers = (uint32_t)job->board.shape.workers;
    const bool over_nodes = job->board.shape.nodes > 1;
    uint32_t now = atomic_load(barrier), next;
    bool last;
    do {
        *round = now >> 16;
        last = (now & DDP_BARRIER_COUNT) + 1 >= workers;
        next = last && !over_nodes ? (*round + 1) << 16 : now + 1;
    } while (!atomic_compare_exchange_weak(barrier, &now, next));
    if (!last)
        return false;
    if (over_nodes)
        ddp_bell_ring(job->bell_fd);
    else
        ddp_futex_wake(barrier);
    return !over_nodes;
}

static enum ddp_status barrier_late(const ddp_job *job, uint32_t now, int timeout_ms)
{
    const struct ddp_board_shape *shape = &job->board.shape;
    const char *here = shape->nodes > 1 ? " of this node" : "";
    if ((int)(now & DDP_BARRIER_COUNT) == shape->workers)
        return ddp_fail(DDP_ERR_TIMEOUT,
                        "barrier: after %d ms not all ranks of the other nodes have arrived",
                        timeout_ms);
    return ddp_fail(DDP_ERR_TIMEOUT, "barrier: after %d ms only %u of %d ranks%s have arrived",
                    timeout_ms, now & DDP_BARRIER_COUNT, shape->workers, here);
}

enum ddp_status ddp_job_barrier(ddp_job *job, int timeout_ms)
{
    _Atomic uint32_t *barrier = &job->board.memory->barrier;
    int64_t deadline_ns = ddp_deadline_ns(timeout_ms);
    uint32_t now, round;
    if (aborted(job))
        return DDP_ERR_ABORTED;
    if (barrier_arrive(job, &round))
        return DDP_OK;
    while ((now = atomic_load(barrier)) >> 16 == round) {
        enum ddp_status status = ddp_wait_change(job, barrier, now, deadline_ns);
        if (status == DDP_OK)
            continue;
        if (status == DDP_ERR_TIMEOUT)
            status = barrier_retract(job, round);
        else if (atomic_load(barrier) >> 16 != round)
            return DDP_OK;
        return status == DDP_ERR_TIMEOUT ? barrier_late(job, now, timeout_ms) : status;
    }
    return DDP_OK;
}

/* --- ids, written once, and addresses, by each process of a rank ----------------------------- */

/* One of them on the board; "WHAT NUMBER" in messages. */
struct posted {
    struct ddp_board_post *post;
    const char *what;
    int number;
    uint32_t edition;
};

static enum ddp_status put(const struct posted *to, const void *data, size_t bytes)
{
    return ddp_board_put(to->post, to->edition, data, bytes)
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID, "%s %d has been written before", to->what, to->number);
}

static enum ddp_status wait_posted(ddp_job *job, const struct posted *from, int timeout_ms)
{
    const int64_t deadline_ns = ddp_deadline_ns(timeout_ms);
    uint32_t state;
    while (!ddp_post_ready(state = atomic_load(&from->post->state)) ||
           ddp_post_edition(state) < from->edition) {
        enum ddp_status status = ddp_wait_change(job, &from->post->state, state, deadline_ns);
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
    *posted =
        (struct posted){of_node ? &m->node_ids[slot].post : &m->ids[slot].post, "id slot", slot, 0};
    return DDP_OK;
}

static enum ddp_status put_id(ddp_job *job, bool of_node, int slot, const void *id, size_t bytes)
{
    struct posted to = {.post = NULL};
    enum ddp_status status = find_id(job, of_node, slot, bytes, &to);
    if (status == DDP_OK)
        status = put(&to, id, bytes);
    if (status == DDP_OK && !of_node)
        ddp_bell_ring(job->bell_fd);
    return status;
}

static enum ddp_status get_id(ddp_job *job, bool of_node, int slot, void *id, size_t bytes,
                              int timeout_ms)
{
    struct posted from = {.post = NULL};
    enum ddp_status status = find_id(job, of_node, slot, bytes, &from);
    if (status == DDP_OK)
        status = wait_posted(job, &from, timeout_ms);
    if (status != DDP_OK)
        return status;
    if (atomic_load(&from.post->bytes) != bytes)
        return ddp_fail(DDP_ERR_MISMATCH, "id slot %d holds %u bytes, not %zu", slot,
                        atomic_load(&from.post->bytes), bytes);
    memcpy(id, ddp_board_data(from.post), bytes);
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
    struct ddp_board_post *own = ddp_board_address(&job->board, job->rank);
    return (struct posted){ddp_board_address(&job->board, rank), "the address of rank", rank,
                           ddp_post_edition(atomic_load(&own->state))};
}

enum ddp_status ddp_job_put_address(ddp_job *job, const void *address, size_t bytes)
{
    struct posted to = address_of(job, job->rank);
    unsigned char data[DDP_BOARD_ADDRESS_BYTES];
    if (bytes > DDP_ADDRESS_MAX_BYTES)
        return ddp_fail(DDP_ERR_INVALID, "an address of %zu bytes: at most %d fit", bytes,
                        DDP_ADDRESS_MAX_BYTES);
    const uint64_t hash = ddp_hash(address, bytes);
    memcpy(data, &hash, sizeof hash);
    memcpy(data + sizeof hash, address, bytes);
    bytes += sizeof hash;
    const bool there = ddp_post_ready(atomic_load(&to.post->state));
    if (there && atomic_load(&to.post->bytes) == bytes &&
        memcmp(ddp_board_data(to.post), data, bytes) == 0)
        return DDP_OK;
    to.edition += there; /* an earlier process of this worker had another */
    enum ddp_status status = put(&to, data, bytes);
    if (status == DDP_OK)
        ddp_bell_ring(job->bell_fd);
    return status;
}

enum ddp_status ddp_job_get_address(ddp_job *job, int rank,
                                    unsigned char address[DDP_ADDRESS_MAX_BYTES], size_t *bytes,
                                    int timeout_ms)
{
    const struct posted from = address_of(job, rank);
    enum ddp_status status = wait_posted(job, &from, timeout_ms);
    if (status != DDP_OK)
        return status;
    uint64_t hash = 0;
    const size_t posted = atomic_load(&from.post->bytes);
    const unsigned char *data = ddp_board_data(from.post);
    *bytes = 0;
    if (posted >= sizeof hash && posted <= DDP_BOARD_ADDRESS_BYTES) {
        memcpy(&hash, data, sizeof hash);
        *bytes = posted - sizeof hash;
        memcpy(address, data + sizeof hash, *bytes);
    }
    if (posted < sizeof hash || posted > DDP_BOARD_ADDRESS_BYTES ||
        ddp_hash(address, *bytes) != hash)
        return ddp_fail(DDP_ERR_MISMATCH,
                        "the address of rank %d, on node %d, has arrived damaged: is the memory or "
                        "the network of a node broken?",
                        rank, ddp_node_of(job, rank));
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * See mirror.h. */
#include "config.h"

#include "job/mirror.h"

#include "core/futex.h"
#include "core/log.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum ddp_status ddp_bell_create(int *fd)
{
    *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *fd >= 0 ? DDP_OK
                    : ddp_fail(DDP_ERR_SYSTEM, "cannot create the bell of the job's board: %s",
                               strerror(errno));
}

void ddp_bell_take(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; /* it may be silent */
}

/* --- ids and addresses ------------------------------------------------------------------------ */

static bool copy(struct ddp_posted *posted, int number, const _Atomic uint32_t *state,
                 const _Atomic uint32_t *bytes, const unsigned char *data, uint32_t most)
{
    if (atomic_load(state) != DDP_ID_READY)
        return false;
    posted->number = number;
    posted->bytes = atomic_load(bytes);
    if (posted->bytes > most)
        posted->bytes = most;
    memcpy(posted->data, data, posted->bytes);
    return true;
}

static void put(const struct ddp_posted *posted, _Atomic uint32_t *state, _Atomic uint32_t *bytes,
                unsigned char *data)
{
    uint32_t empty = DDP_ID_EMPTY;
    if (!atomic_compare_exchange_strong(state, &empty, DDP_ID_WRITING))
        return; /* a worker of this node has written it too */
    memcpy(data, posted->data, posted->bytes);
    atomic_store(bytes, posted->bytes);
    atomic_store(state, DDP_ID_READY);
    ddp_futex_wake(state);
}

bool ddp_mirror_next_id(struct ddp_mirror *mirror, const struct ddp_board *board,
                        struct ddp_posted *posted)
{
    for (int slot = 0; slot < DDP_ID_SLOTS; slot++) {
        const struct ddp_board_id *id = &board->memory->ids[slot];
        if (!mirror->ids[slot] &&
            copy(posted, slot, &id->state, &id->bytes, id->data, DDP_ID_MAX_BYTES))
            return mirror->ids[slot] = true;
    }
    return false;
}

bool ddp_mirror_next_address(struct ddp_mirror *mirror, const struct ddp_board *board,
                             struct ddp_posted *posted)
{
    for (int i = 0; i < board->shape.workers; i++) {
        const int rank = ddp_board_first_rank(board) + i;
        const struct ddp_board_address *address = ddp_board_address(board, rank);
        if (!mirror->addresses[i] && copy(posted, rank, &address->state, &address->bytes,
                                          address->data, DDP_ADDRESS_MAX_BYTES))
            return mirror->addresses[i] = true;
    }
    return false;
}

bool ddp_mirror_put_id(struct ddp_mirror *mirror, const struct ddp_board *board,
                       const struct ddp_posted *posted)
{
    if (posted->number < 0 || posted->number >= DDP_ID_SLOTS || posted->bytes > DDP_ID_MAX_BYTES)
        return false;
    struct ddp_board_id *id = &board->memory->ids[posted->number];
    mirror->ids[posted->number] = true;
    put(posted, &id->state, &id->bytes, id->data);
    return true;
}

bool ddp_mirror_put_address(const struct ddp_board *board, const struct ddp_posted *posted)
{
    const int first = ddp_board_first_rank(board);
    if (posted->number < 0 || posted->number >= ddp_board_job_size(board) ||
        (posted->number >= first && posted->number < first + board->shape.workers) ||
        posted->bytes > DDP_ADDRESS_MAX_BYTES)
        return false;
    struct ddp_board_address *address = ddp_board_address(board, posted->number);
    put(posted, &address->state, &address->bytes, address->data);
    return true;
}

/* --- barrier ---------------------------------------------------------------------------------- */

bool ddp_mirror_seal_barrier(const struct ddp_board *board, uint32_t *round)
{
    uint32_t now = atomic_load(&board->memory->barrier);
    do {
        if ((now & DDP_BARRIER_SEALED) || (int)(now & DDP_BARRIER_COUNT) != board->shape.workers)
            return false;
    } while (
        !atomic_compare_exchange_weak(&board->memory->barrier, &now, now | DDP_BARRIER_SEALED));
    *round = now >> 16;
    return true;
}

bool ddp_mirror_barrier_asked(const struct ddp_board *board, uint32_t *round)
{
    const uint32_t now = atomic_load(&board->memory->barrier);
    *round = now >> 16;
    return (now & DDP_BARRIER_SEALED) && (now & DDP_BARRIER_ASKED);
}

/* Changes the word, if it is in that round and sealed. Nobody else changes such a word but by
 * asking. */
static void change(const struct ddp_board *board, uint32_t round, uint32_t next)
{
    uint32_t now = atomic_load(&board->memory->barrier);
    do {
        if (now >> 16 != round || !(now & DDP_BARRIER_SEALED))
            return;
    } while (!atomic_compare_exchange_weak(&board->memory->barrier, &now, next));
    ddp_futex_wake(&board->memory->barrier);
}

void ddp_mirror_open_barrier(const struct ddp_board *board, uint32_t round)
{
    change(board, round, (round + 1) << 16);
}

void ddp_mirror_unseal_barrier(const struct ddp_board *board, uint32_t round)
{
    change(board, round, round << 16 | (uint32_t)board->shape.workers);
}

/* --- stopping --------------------------------------------------------------------------------- */

int64_t ddp_mirror_hold(const struct ddp_board *board)
{
    uint32_t none = DDP_HOLD_NONE;
    int64_t last = INT64_MIN;
    atomic_compare_exchange_strong(&board->memory->hold, &none, DDP_HOLD_SET);
    for (int i = 0; i < board->shape.workers; i++) {
        const int64_t passed = atomic_load(&board->memory->lines[i].passed);
        last = passed > last ? passed : last;
    }
    return last;
}

void ddp_mirror_stop_before(const struct ddp_board *board, int64_t step)
{
    atomic_store(&board->memory->stop_step, step);
    atomic_store(&board->memory->hold, DDP_HOLD_DECIDED);
    ddp_futex_wake(&board->memory->hold);
}

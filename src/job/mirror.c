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

static struct ddp_board_post *post_of(const struct ddp_board *board, int number)
{
    return number < DDP_ID_SLOTS ? &board->memory->ids[number].post
                                 : ddp_board_address(board, number - DDP_ID_SLOTS);
}

static size_t most_bytes(int number)
{
    return number < DDP_ID_SLOTS ? DDP_ID_MAX_BYTES : DDP_BOARD_ADDRESS_BYTES;
}

bool ddp_mirror_next(struct ddp_mirror *mirror, const struct ddp_board *board,
                     struct ddp_posted *posted)
{
    const int first = ddp_board_first_rank(board);
    for (int i = 0; i < DDP_ID_SLOTS + board->shape.workers; i++) {
        const int number = i < DDP_ID_SLOTS ? i : i + first;
        struct ddp_board_post *post = post_of(board, number);
        const uint32_t state = atomic_load(&post->state);
        if (mirror->posted[number] == state || !ddp_post_ready(state))
            continue;
        posted->number = number;
        posted->edition = ddp_post_edition(state);
        posted->bytes = atomic_load(&post->bytes);
        if (posted->bytes > most_bytes(number))
            posted->bytes = most_bytes(number);
        memcpy(posted->data, ddp_board_data(post), posted->bytes);
        mirror->posted[number] = state;
        return true;
    }
    return false;
}

/* A worker of this node may have written the same id. */
bool ddp_mirror_put(struct ddp_mirror *mirror, const struct ddp_board *board,
                    const struct ddp_posted *posted)
{
    const int rank = posted->number - DDP_ID_SLOTS, first = ddp_board_first_rank(board);
    if (posted->number < 0 || rank >= ddp_board_job_size(board) ||
        (rank >= first && rank < first + board->shape.workers) ||
        posted->bytes > most_bytes(posted->number))
        return false;
    mirror->posted[posted->number] = DDP_POST_READY; /* an id: it has one edition */
    ddp_board_put(post_of(board, posted->number), posted->edition, posted->data, posted->bytes);
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

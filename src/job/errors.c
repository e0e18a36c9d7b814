/* SPDX-License-Identifier: MIT
 *
 * Which rank logs an error that several find: a table on the board has the errors that were logged.
 * The first rank to enter one logs it; the others give rank 0 a moment to be that. A rank that died
 * before its line was written silences nobody. Of several machines each has a table: the first gets
 * a moment to end the job, and with it what its ranks have said. */
#include "config.h"

#include "job/job.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/parse.h"
#include "job/board.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define WAIT_MS  100                  /* for rank 0, and for a line that is being written */
#define SPEAK_MS 5000                 /* for a line of a rank that lives */
#define NODE_MS  300                  /* for another machine that ends the job */
#define SAME_NS  INT64_C(10000000000) /* after this time it is another event */

/* Mapped once, and never unmapped: errors are logged until the process ends. */
static _Atomic(struct ddp_board_memory *) shared;
static uint32_t my_rank; /* on this machine, as everywhere below */

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

static struct ddp_board_error *find(struct ddp_board_memory *memory, uint64_t key)
{
    for (int i = 0; i < DDP_BOARD_ERRORS; i++)
        if (atomic_load(&memory->errors[i].key) == key)
            return &memory->errors[i];
    return NULL;
}

static bool lives(struct ddp_board_memory *memory, uint32_t rank)
{
    const struct ddp_board_line *line = &memory->lines[rank];
    const pid_t pid = atomic_load(&line->started);
    return !atomic_load(&line->closed) && (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH);
}

static void wait_for_rank_0(struct ddp_board_memory *memory, uint64_t key)
{
    const int64_t deadline_ns = ddp_deadline_ns(WAIT_MS);
    while (!find(memory, key) && lives(memory, 0) && !ddp_deadline_passed(deadline_ns))
        nap();
}

/* Somebody has entered this error: is it said, by another rank, and just now? A speaker that lives
 * says it when it gets a processor. */
static bool heard(struct ddp_board_memory *memory, struct ddp_board_error *error)
{
    const int64_t deadline_ns = ddp_deadline_ns(WAIT_MS), last_ns = ddp_deadline_ns(SPEAK_MS);
    int64_t said_ns;
    uint32_t speaker = atomic_load(&error->speaker);
    if (speaker == my_rank + 1)
        return false;
    while ((said_ns = atomic_load(&error->said_ns)) == 0 &&
           (!ddp_deadline_passed(deadline_ns) ||
            (speaker > 0 && speaker <= memory->workers && lives(memory, speaker - 1) &&
             !ddp_deadline_passed(last_ns)))) {
        nap();
        speaker = atomic_load(&error->speaker);
    }
    if (said_ns != 0 && ddp_clock_ns() - said_ns < SAME_NS)
        return true;
    atomic_store(&error->speaker, my_rank + 1);
    return false;
}

/* Does the job end because of another machine? */
static bool others_ended(struct ddp_board_memory *memory)
{
    const uint32_t first = memory->node * memory->workers, by = atomic_load(&memory->abort_word);
    return by != 0 && !(by > first && by <= first + memory->workers);
}

static bool wait_for_others(struct ddp_board_memory *memory)
{
    const int64_t deadline_ns = ddp_deadline_ns(NODE_MS);
    while (atomic_load(&memory->abort_word) == 0 && !ddp_deadline_passed(deadline_ns))
        nap();
    return others_ended(memory);
}

static bool speaks(uint64_t key)
{
    struct ddp_board_memory *memory = atomic_load(&shared);
    const bool one = memory->flags & DDP_BOARD_ONE_SPEAKS;
    if (one && memory->node > 0 && wait_for_others(memory))
        return false; /* and not told: it may yet be this rank's end that the launchers report */
    atomic_store(&memory->lines[my_rank].told, 1);
    if (!one)
        return true;
    if (my_rank > 0)
        wait_for_rank_0(memory, key);
    for (int i = 0; i < DDP_BOARD_ERRORS; i++) {
        struct ddp_board_error *error = &memory->errors[i];
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&error->key, &there, key)) {
            atomic_store(&error->speaker, my_rank + 1);
            return true;
        }
        if (there == key)
            return !heard(memory, error);
    }
    return true; /* the table is full */
}

static void said(uint64_t key)
{
    struct ddp_board_error *error = find(atomic_load(&shared), key);
    if (error && atomic_load(&error->speaker) == my_rank + 1)
        atomic_store(&error->said_ns, ddp_clock_ns());
}

static bool read_number(const char *name, int64_t limit, int64_t *number)
{
    const char *text = getenv(name);
    return text && ddp_parse_int64(text, 0, limit, number);
}

void ddp_job_share_errors(void)
{
    static const struct ddp_log_peers peers = {speaks, said};
    struct ddp_board board;
    int64_t fd, rank;
    char refused[2]; /* ddp_job_open() says what is wrong */
    if (!read_number(DDP_BOARD_FD_VARIABLE, INT32_MAX, &fd) ||
        !read_number("RANK", DDP_BOARD_MAX_WORLD, &rank))
        return;
    ddp_log_hold(refused, sizeof refused);
    const enum ddp_status status = ddp_board_attach(&board, (int)fd, DDP_BOARD_FD_VARIABLE);
    ddp_log_hold(NULL, 0);
    if (status != DDP_OK)
        return;
    const struct ddp_board_memory *before = atomic_load(&shared);
    const bool same = before && before->start_ns == board.memory->start_ns;
    const int64_t on_node = rank - ddp_board_first_rank(&board);
    const bool here = on_node >= 0 && on_node < board.shape.workers;
    if (here)
        my_rank = (uint32_t)on_node; /* a fork may be another rank of the same job */
    if (!here || same) {
        ddp_board_unmap(&board);
        return;
    }
    atomic_store(&shared, board.memory);
    ddp_log_set_peers(&peers);
}

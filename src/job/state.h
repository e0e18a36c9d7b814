/* SPDX-License-Identifier: MIT
 *
 * What a job is made of, for the files of this room. */
#ifndef DDP_JOB_STATE_H
#define DDP_JOB_STATE_H

#include "job/board.h"

#include <fcntl.h>
#include <unistd.h>

struct ddp_job {
    struct ddp_board board;
    struct ddp_board_line *line;
    int rank;       /* of the job */
    int node_rank;  /* its line on the board */
    int local_rank; /* LOCAL_RANK: the same, unless each worker sees only its own device */
    int heap_fd;
    int bell_fd;  /* -1: one node, nobody listens */
    int copy_fd;  /* -1: the job is not restarted */
    int board_fd; /* of a job without a launcher; else -1 */
    int *starts;  /* (nodes + 1): the first rank of each machine, and the number of all */
    bool timing;
    bool has_faults;
};

/* The machine of a rank. */
static inline int ddp_node_of(const struct ddp_job *job, int rank)
{
    int node = 0;
    while (job->starts[node + 1] <= rank)
        node++;
    return node;
}

/* Sets `starts` from the attached board. DDP_ERR_MEMORY, DDP_ERR_INVALID. */
enum ddp_status ddp_job_find_starts(struct ddp_job *job);

/* What a rank of a job without a launcher locks of the board while its process lives. */
static inline struct flock ddp_rank_byte(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

/* Wakes the launcher, which carries what is new on the board to the other nodes.
 * Async-signal-safe. */
void ddp_bell_ring(int bell_fd);

/* Waits until the word differs from `value`: spins for a few microseconds, then sleeps in slices.
 * Logs nothing. DDP_ERR_ABORTED, DDP_ERR_TIMEOUT. */
enum ddp_status ddp_wait_change(ddp_job *job, _Atomic uint32_t *word, uint32_t value,
                                int64_t deadline_ns);

/* Undoes ddp_job_accept_stop(), where this job had called it. */
void ddp_stop_refuse(ddp_job *job);

#endif

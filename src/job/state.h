/* SPDX-License-Identifier: MIT
 *
 * What a job is made of, for the files of this room. */
#ifndef DDP_JOB_STATE_H
#define DDP_JOB_STATE_H

#include "job/board.h"

struct ddp_job {
    struct ddp_board board;
    struct ddp_board_line *line;
    int rank;       /* of the job */
    int node_rank;  /* its line on the board */
    int local_rank; /* LOCAL_RANK: the same, unless each worker sees only its own device */
    int heap_fd;
    bool timing;
    bool has_faults;
};

/* Undoes ddp_job_accept_stop(), where this job had called it. */
void ddp_stop_refuse(ddp_job *job);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The keeper: a small process that outlives ddprun only to clean up after it. Workers die with
 * ddprun by themselves (PR_SET_PDEATHSIG); what they have started does not, and after a SIGKILL
 * nobody else is left who knows of it. The keeper knows the process groups of the workers and kills
 * them when ddprun is gone. */
#ifndef DDP_LAUNCHER_KEEPER_H
#define DDP_LAUNCHER_KEEPER_H

#include "ddp.h"

#include <stdatomic.h>
#include <sys/types.h>

struct keeper {
    pid_t pid;
    int pipe; /* open as long as ddprun lives */
    int count;
    _Atomic int32_t *groups; /* shared with the keeper and the workers-to-be: a slot for each rank,
                                0 when empty */
};

/* Starts the keeper, with all signals blocked by the caller. */
enum ddp_status keeper_start(struct keeper *keeper, int workers);

/* Ends it; nothing is killed. */
void keeper_stop(struct keeper *keeper);

#endif

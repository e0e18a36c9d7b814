/* SPDX-License-Identifier: MIT
 *
 * The keeper: a small process that outlives ddprun only to clean up after it. Workers die with
 * ddprun by themselves (PR_SET_PDEATHSIG); what they have started does not, and after a SIGKILL
 * nobody else is left who knows of it. When ddprun is gone, the keeper kills the process groups of
 * the workers, then whatever carries the mark of the job. */
#ifndef DDP_LAUNCHER_KEEPER_H
#define DDP_LAUNCHER_KEEPER_H

#include "ddp.h"
#include "launcher/mark.h"

#include <stdatomic.h>
#include <sys/types.h>

struct keeper {
    pid_t pid;  /* 0: there is none */
    int pipe;   /* open as long as ddprun lives */
    int deaths; /* of keepers, so far */
    int count;
    _Atomic int32_t *groups; /* shared with the keeper and the workers-to-be: a slot for each rank,
                                0 when empty */
    const char *mark;
};

/* Remembers where the command line lies. The keeper has another one, so that who kills ddprun by
 * its name or by its program's does not kill the keeper with it. */
void keeper_remember_title(int argc, char **argv);

/* Starts the keeper, with all signals blocked by the caller. */
enum ddp_status keeper_start(struct keeper *keeper, int workers, const char *mark);

/* Empties the table, before workers are started anew. */
void keeper_forget(struct keeper *keeper);

/* Says that the keeper was killed, after it was reaped, and starts another. */
void keeper_replace(struct keeper *keeper, int wait_status);

/* Ends it; nothing is killed. */
void keeper_stop(struct keeper *keeper);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The keepers, job-keeper and job-watcher: two small processes that outlive ddprun only to clean up
 * after it. Workers die with ddprun by themselves (PR_SET_PDEATHSIG); processes that they started
 * do not, and after a SIGKILL only the keepers know of them. When ddprun has ended, each keeper
 * kills the job's control group, the process groups of the workers, then all processes with the
 * mark of the job. One keeper is enough: the other may have been killed with ddprun, or be
 * stopped. Over several nodes they kill the same when ddprun is stopped for so long that the other
 * nodes have given up this one. */
#ifndef DDP_LAUNCHER_KEEPER_H
#define DDP_LAUNCHER_KEEPER_H

#include "ddp.h"
#include "launcher/system/cgroup.h"
#include "launcher/system/mark.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define KEEPERS 2

/* Shared with the children before they exec. A slot is 0 when it is empty. */
struct keeper_table {
    _Atomic int32_t keepers[KEEPERS]; /* their process ids; negated when their life is limited */
    _Atomic int32_t groups[];         /* of each rank */
};

struct keeper {
    pid_t pids[KEEPERS];        /* 0: there is none */
    int pipe_read;              /* the keepers' */
    int pipe_write;             /* open as long as ddprun lives */
    int deaths;                 /* of keepers, so far */
    int count;                  /* of ranks */
    struct keeper_table *table; /* NULL: there are no keepers */
    bool watches;               /* for a ddprun that is stopped */
    const char *mark;
    const struct cgroup *cgroup;
};

/* Remembers where the command line is. The keepers get another one, so that killing ddprun by its
 * name or by its program's does not kill them too. */
void keeper_remember_title(int argc, char **argv);

/* Starts the keepers of a job on `nodes` nodes, with all signals blocked by the caller. */
enum ddp_status keeper_start(struct keeper *keeper, int workers, int nodes, const char *mark,
                             const struct cgroup *cgroup);

/* Waits until they are out of reach of what hits ddprun, before workers are started. */
void keeper_wait(const struct keeper *keeper);

/* Empties the table, before workers are started again. */
void keeper_forget(struct keeper *keeper);

/* Whether this process is a keeper. */
bool keeper_is(const struct keeper *keeper, pid_t pid);

/* After a child was reaped: if it was a keeper, logs that it was killed, and starts another. */
void keeper_replace(struct keeper *keeper, pid_t pid, int wait_status);

/* Ends them; nothing is killed. */
void keeper_stop(struct keeper *keeper);

#endif

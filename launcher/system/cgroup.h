/* SPDX-License-Identifier: MIT
 *
 * The job's own control group (version 2), below ddprun's. The workers are started in it, and the
 * kernel kills all processes in it at once, whatever their parent, session, environment, user or
 * limits. It has no controllers; the limits of ddprun's group apply. If it cannot be created (no
 * permission, an old kernel, version 1), the job runs without it, and nothing is logged. */
#ifndef DDP_LAUNCHER_CGROUP_H
#define DDP_LAUNCHER_CGROUP_H

#include <sys/types.h>

#define CGROUP_NAME_SIZE 32

struct cgroup {
    int parent; /* ddprun's group, or -1 */
    int own;    /* the job's, or -1; locked as long as ddprun or a keeper lives */
    char name[CGROUP_NAME_SIZE];
};

/* Creates it, and kills the processes in groups that are no longer locked: their ddprun and its
 * keepers were killed together. */
void cgroup_open(struct cgroup *cgroup, const char *mark);

/* fork(), into the group where there is one. The child may make async-signal-safe calls only. */
pid_t cgroup_fork(const struct cgroup *cgroup);

/* Kills all that is in it. After that nothing may be started in it: some kernels kill that too.
 * Async-signal-safe, as the next. */
void cgroup_kill(const struct cgroup *cgroup);

/* Removes the group when all have left it; waits for that, but not long. */
void cgroup_remove(const struct cgroup *cgroup);

#endif

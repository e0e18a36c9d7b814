/* SPDX-License-Identifier: MIT
 *
 * A control group (version 2) of the job's own, below ddprun's, in which the workers are born: the
 * kernel kills all that is in it at once, whatever it has done to its parent, session, environment,
 * user or limits. It has no controllers; the limits of ddprun's group hold for it too. Where none
 * can be made (no permission, an old kernel, version 1) there is none, and nothing is said. */
#ifndef DDP_LAUNCHER_CGROUP_H
#define DDP_LAUNCHER_CGROUP_H

#include <sys/types.h>

#define CGROUP_NAME_SIZE 32

struct cgroup {
    int parent; /* ddprun's group, or -1 */
    int own;    /* the job's, or -1; locked as long as ddprun or a keeper lives */
    char name[CGROUP_NAME_SIZE];
};

/* Makes it, and ends what is left in groups that nobody locks any more: there ddprun and its
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

/* SPDX-License-Identifier: MIT
 *
 * Processes that workers left behind. ddprun is a child subreaper: orphaned descendants become its
 * children and are ended with the job, even in a session of their own. */
#ifndef DDP_LAUNCHER_CHILDREN_H
#define DDP_LAUNCHER_CHILDREN_H

#include "launcher/keeper.h"

#include <stdbool.h>
#include <sys/types.h>

#define CHILDREN_FOREIGN 64

/* Children that existed before ddprun started any: a shell that executes ddprun in its place may
 * leave some. They do not belong to the job and are not killed. */
struct children {
    pid_t foreign[CHILDREN_FOREIGN];
    int foreign_count;
    bool none_before; /* there were no children at all */
};

/* Becomes a subreaper and notes the children that exist already. */
void children_adopt(struct children *children);

/* Whether the process is one of those. */
bool children_is_foreign(const struct children *children, pid_t pid);

/* Kills and reaps all children but the foreign ones and the keepers, and theirs, for at most two
 * seconds. A keeper that was found dead is replaced. */
void children_end_all(const struct children *children, struct keeper *keeper);

/* Whether any is left after all workers and keepers were reaped, where /proc is missing. */
bool children_left(const struct children *children);

#endif

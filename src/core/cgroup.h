/* SPDX-License-Identifier: MIT
 *
 * The control groups of this process, whose files hold its limits. */
#ifndef DDP_CORE_CGROUP_H
#define DDP_CORE_CGROUP_H

#include <stdbool.h>

#define DDP_CGROUP_PATH 4608 /* bytes of a group's directory */

/* Calls each() with the directories of the groups in which a controller ("cpu", "memory") counts
 * this process: its own first, then those above it up to the root, which may be the only one in a
 * container. `unified`: of version 2, where one hierarchy has all controllers. */
void ddp_cgroup_visit(const char *controller,
                      void (*each)(void *arg, const char *directory, bool unified), void *arg);

#endif

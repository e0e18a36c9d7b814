/* SPDX-License-Identifier: MIT
 *
 * What the kernel tells of the memory cgroup that the job runs in. */
#ifndef DDP_LAUNCHER_MEMORY_LIMIT_H
#define DDP_LAUNCHER_MEMORY_LIMIT_H

/* How many processes the out-of-memory killer has ended in this cgroup, of the whole machine where
 * the cgroup does not tell; -1: not known. */
long long memory_limit_kills(void);

#endif

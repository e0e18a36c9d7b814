/* SPDX-License-Identifier: MIT
 *
 * What the kernel reports about the memory cgroup of the job. */
#ifndef DDP_LAUNCHER_MEMORY_LIMIT_H
#define DDP_LAUNCHER_MEMORY_LIMIT_H

/* How many processes the out-of-memory killer has killed in this cgroup, or on the whole machine if
 * the cgroup has no count; -1: not known. */
long long memory_limit_kills(void);

#endif

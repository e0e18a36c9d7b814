/* SPDX-License-Identifier: MIT
 *
 * Kills by the kernel for want of memory, as the control group around this job counts them. */
#ifndef DDP_LAUNCHER_MEMORY_LIMIT_H
#define DDP_LAUNCHER_MEMORY_LIMIT_H

/* Kills so far in the memory control group of this process; -1 when that cannot be known. */
long long memory_limit_kills(void);

#endif

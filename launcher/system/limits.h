/* SPDX-License-Identifier: MIT
 *
 * What the system lets this job use, and takes back: CPU cores, memory, descriptors. */
#ifndef DDP_LAUNCHER_LIMITS_H
#define DDP_LAUNCHER_LIMITS_H

/* Cores in the affinity mask, further limited by the CPU quota of the control groups around this
 * process (both versions); at least 1. */
int cores_usable(void);

/* That quota alone, in whole cores, at least 1; 0: there is none. */
int cores_quota(void);

/* How many processes the out-of-memory killer has killed in this cgroup, or on the whole machine if
 * the cgroup has no count; -1: not known. */
long long memory_kills(void);

/* ddprun's soft limit of descriptors is at least this from now on, if the hard one allows it. */
void descriptors_raise(int wanted);

/* In a worker before it executes its program: the limit as ddprun has found it. */
void descriptors_restore(void);

#endif

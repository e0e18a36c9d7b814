/* SPDX-License-Identifier: MIT
 *
 * How many CPU cores this job may use. */
#ifndef DDP_LAUNCHER_CORES_H
#define DDP_LAUNCHER_CORES_H

/* Cores in the affinity mask, further limited by the CPU quota of the control groups around this
 * process (both versions); at least 1. */
int cores_usable(void);

/* That quota alone, in whole cores, at least 1; 0: there is none. */
int cores_quota(void);

#endif

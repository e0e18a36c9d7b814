/* SPDX-License-Identifier: MIT
 *
 * Whether workers have come so far that they can take a request to stop. */
#ifndef DDP_LAUNCHER_READINESS_H
#define DDP_LAUNCHER_READINESS_H

#include "launcher/job.h"

/* Is there a worker on this node whose program would die of this signal now, but may yet catch it,
 * or accept requests? */
bool readiness_some_start(const struct job *job, int signal);

#endif

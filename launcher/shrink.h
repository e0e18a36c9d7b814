/* SPDX-License-Identifier: MIT
 *
 * Going on with fewer workers (--nproc MIN:N): what is decided between two attempts. */
#ifndef DDP_LAUNCHER_SHRINK_H
#define DDP_LAUNCHER_SHRINK_H

#include "launcher/launch_plan.h"

/* Which rank failed, attempt after attempt. */
struct failures {
    int rank; /* the one that failed last */
    int count;
};

/* Lowers plan->nproc if a GPU is lost, or if the rank has failed twice in a row, whose GPU is then
 * not used any more. False (logged): fewer workers than MIN would be left.
 *   failed_rank  of the last attempt, or -1
 *   why [out]    the reason, "" if nothing has changed */
bool shrink_decide(struct launch_plan *plan, struct failures *failures, int failed_rank, char *why,
                   size_t size);

#endif

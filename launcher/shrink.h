/* SPDX-License-Identifier: MIT
 *
 * Going on with fewer workers (--min-nproc): what is decided between two attempts. */
#ifndef DDP_LAUNCHER_SHRINK_H
#define DDP_LAUNCHER_SHRINK_H

#include "launcher/launch_plan.h"

/* Which rank failed, attempt after attempt. */
struct failures {
    int rank; /* the one that failed last */
    int count;
};

/* Lowers plan->nproc where a GPU is gone, or the rank has failed twice in a row; its GPU is then
 * left alone too. `failed_rank`: of the last attempt, or -1. why [out]: the reason, "" where
 * nothing has changed. False (logged) when fewer workers than --min-nproc would be left. */
bool shrink_decide(struct launch_plan *plan, struct failures *failures, int failed_rank, char *why,
                   size_t size);

#endif

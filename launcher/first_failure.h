/* SPDX-License-Identifier: MIT
 *
 * Which worker failed first. One worker's failure makes its peers fail; the first one is reported,
 * determines the exit code and ends the job. */
#ifndef DDP_LAUNCHER_FIRST_FAILURE_H
#define DDP_LAUNCHER_FIRST_FAILURE_H

#include "launcher/job.h"

/* Reports an error between fork and exec; the reason is logged for one child only, since the others
 * fail in the same way. */
void first_failure_at_start(struct job *job);

/* Shows what a worker wrote last, unless it is in sight, and the reason that it left. */
void first_failure_last_words(struct job *job, int rank);

/* Ends the job because of the first suspect. `final`: no other suspect can appear. */
void first_failure_decide(struct job *job, bool final);

#endif

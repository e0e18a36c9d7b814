/* SPDX-License-Identifier: MIT
 *
 * Who failed first. One worker's failure makes its peers fail: the judge names the culprit, decides
 * the exit code and takes the job down. */
#ifndef DDP_LAUNCHER_JUDGE_H
#define DDP_LAUNCHER_JUDGE_H

#include "launcher/running.h"

/* Shows what went wrong between fork and exec; why a child could not start once, for the others
 * fail in the same way. */
void judge_start(struct job *job);

/* Takes the job down because of the first suspect. `final`: nobody worse will turn up. */
void judge_workers(struct job *job, bool final);

#endif

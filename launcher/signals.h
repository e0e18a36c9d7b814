/* SPDX-License-Identifier: MIT
 *
 * Signals to ddprun itself: which are watched, and what each does to the job. */
#ifndef DDP_LAUNCHER_SIGNALS_H
#define DDP_LAUNCHER_SIGNALS_H

#include "launcher/job.h"

/* Blocks all signals, as they must be around fork, and opens job->signal_fd, from which they are
 * read. */
enum ddp_status signals_open(struct job *job);

/* Acts on one that was read. */
void signals_handle(struct job *job, int signal);

/* Is it one that ends the job? */
bool signals_end_job(const struct job *job, int signal);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The loop in which ddprun spends a job: waits for workers' ends, signals and deadlines. */
#ifndef DDP_LAUNCHER_WATCH_H
#define DDP_LAUNCHER_WATCH_H

#include "launcher/job.h"

/* Waits until no worker runs. */
void watch_workers(struct job *job);

/* Waits until the last line is written. The reader may be slow, or stopped: half a second after a
 * signal the wait ends, and false is returned. */
bool watch_output(struct job *job);

/* Waits for the job's deadline. False when a signal came that ends the job; then exit_code is set.
 */
bool watch_pause(struct job *job);

#endif

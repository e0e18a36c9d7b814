/* SPDX-License-Identifier: MIT
 *
 * The life of a job: starts its workers, waits, passes signals on, takes the job down when one
 * fails, and leaves no process behind. */
#ifndef DDP_LAUNCHER_SUPERVISE_H
#define DDP_LAUNCHER_SUPERVISE_H

#include "launcher/launch_plan.h"

/* Runs the job to its end, with the restarts that are allowed. Returns ddprun's exit code. */
int supervise(struct launch_plan *plan);

#endif

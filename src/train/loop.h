/* SPDX-License-Identifier: MIT
 *
 * The steps of a run that open.c has opened, and what comes before and after them. */
#ifndef DDP_TRAIN_LOOP_H
#define DDP_TRAIN_LOOP_H

#include "train/run.h"

/* Shows the plan, opens what will show the steps. Collective, as is all that follows. */
enum ddp_status ddp_run_begin(struct ddp_run *run);

/* All of --plan, in place of training. */
enum ddp_status ddp_run_print_plan(struct ddp_run *run);

/* The step after run->step steps; before it, what follows the last one: sample, checkpoint.
 * DDP_ERR_PREEMPTED: the job is to stop, the checkpoint is begun, and no step was made. */
enum ddp_status ddp_run_step(struct ddp_run *run);

/* Saves the weights, on rank 0.
 *   last  the training has ended: if they cannot be written there, they go elsewhere, and it says
 *   so */
enum ddp_status ddp_run_save(struct ddp_run *run, const char *path, bool last);

/* What follows the last step: summary and results.
 *   status  of the loop; after a failure nothing is printed or saved
 * Returns it, or what failed now. */
enum ddp_status ddp_run_end(struct ddp_run *run, enum ddp_status status);

#endif

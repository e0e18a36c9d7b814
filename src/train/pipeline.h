/* SPDX-License-Identifier: MIT
 *
 * --mode pipeline: where stages begin, and what is shown of them. */
#ifndef DDP_TRAIN_PIPELINE_H
#define DDP_TRAIN_PIPELINE_H

#include "train/options.h"

struct ddp_run;

/* Once the model is built: the cuts of --cut, or of stages with about the same amount of work. In
 * other modes nothing, as are the next two. */
enum ddp_status ddp_run_plan_cuts(struct ddp_run *run);

/* When a device can be used, and the lanes are known: the cuts of stages that take about the same
 * time on rank 0's device, unless --cut names them. Collective. DDP_ERR_INVALID: a weight that two
 * stages share needs more lanes. */
enum ddp_status ddp_run_balance_cuts(struct ddp_run *run);

/* --plan: a row for each piece of the pipeline.
 *   memory  of each stage */
enum ddp_status ddp_run_print_stages(const struct ddp_run *run,
                                     const struct ddp_mode_memory *memory);

#endif

/* SPDX-License-Identifier: MIT
 *
 * --mode pipeline: stages that take about the same time. */
#ifndef DDP_TRAIN_PIPELINE_H
#define DDP_TRAIN_PIPELINE_H

#include "plan/options.h"

struct ddp_run;

/* Once a device can be used, and the lanes are known: the cuts of stages that take about the same
 * time on rank 0's device, unless --cut names them. Collective. DDP_ERR_INVALID: a weight that two
 * stages share needs more lanes. */
enum ddp_status ddp_run_balance_cuts(struct ddp_run *run);

#endif

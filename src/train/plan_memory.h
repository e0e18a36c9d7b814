/* SPDX-License-Identifier: MIT
 *
 * What --plan prints beside the plan itself: memory, traffic, what would fit. Nothing is made for
 * it, so that a plan can be had of what does not fit here. */
#ifndef DDP_TRAIN_PLAN_MEMORY_H
#define DDP_TRAIN_PLAN_MEMORY_H

#include "train/memory.h"

/* The whole of --plan. Collective. */
enum ddp_status ddp_run_print_plan(struct ddp_run *run);

/* Whether a plan is to be made without data. */
bool ddp_run_lacks_data(const struct ddp_run *run);

/* Opens what stands for them: only its shape is known. */
enum ddp_status ddp_run_open_shape(struct ddp_run *run);

/* --plan-memory: which modes, workers and types fit, with the largest batch of each. */
enum ddp_status ddp_run_print_plan_table(const struct ddp_run *run,
                                         const struct ddp_memory_limits *limits);

#endif

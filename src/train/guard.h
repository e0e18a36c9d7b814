/* SPDX-License-Identifier: MIT
 *
 * The guard against losses that are not finite, or jump: --nan. With `stop` and `skip` the mode
 * leaves out an update from such a loss or gradient, so the weights are still those that gave it,
 * and the guard can run the step's shards again and name the first tensor that went bad. Steps
 * without a label that counts are left out too. */
#ifndef DDP_TRAIN_GUARD_H
#define DDP_TRAIN_GUARD_H

#include "ddp.h"

struct ddp_run;

struct ddp_train_guard {
    int64_t bad_steps;   /* so far */
    int64_t empty_steps; /* so far: none of their labels counted */
    int64_t full_steps;  /* so far: the others */
    int64_t seen;        /* finite losses so far */
    int64_t quiet_until;
    double mean, square; /* decaying averages of them */
};

/* After a step. Collective when loss or norm is not finite, which they are on
 * all ranks or none. DDP_ERR_INVALID: no label of the first steps counts.
 *   norm  of the gradient; NAN: not computed */
enum ddp_status ddp_train_guard_step(struct ddp_run *run, int64_t step, double loss, double norm);

/* At the end: says how many steps were left out. */
void ddp_train_guard_end(const struct ddp_run *run);

#endif

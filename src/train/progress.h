/* SPDX-License-Identifier: MIT
 *
 * What a person sees while training: a bar on a terminal, plain lines elsewhere. Rank 0 only;
 * others pass NULL as `out`, and nothing happens. */
#ifndef DDP_TRAIN_PROGRESS_H
#define DDP_TRAIN_PROGRESS_H

#include "ddp.h"

struct ddp_train_progress {
    FILE *out;
    bool terminal;
    bool bar_shown; /* the cursor stands behind a bar */
    int64_t epochs; /* 0: steps were asked for, epochs are not counted */
    int64_t steps_per_epoch, total_steps;
    int64_t samples_per_step;
    int64_t log_every;
    int64_t start_ns, epoch_ns, drawn_ns;
    int64_t epoch_first_step;
    double loss_sum;     /* over the epoch's steps */
    double wait_seconds; /* for data, when the epoch began */
};

void ddp_train_progress_start(struct ddp_train_progress *progress, FILE *out);
void ddp_train_progress_epoch(struct ddp_train_progress *progress, int64_t step,
                              double wait_seconds);

/* After optimizer step `step` (from 0). */
void ddp_train_progress_step(struct ddp_train_progress *progress, int64_t step, float loss);

/* After the last step of an epoch (from 0): its line.
 *   wait_seconds  that the loader has waited since the start */
void ddp_train_progress_epoch_end(struct ddp_train_progress *progress, int64_t epoch, int64_t step,
                                  double wait_seconds);

/* Removes the bar, so that a line can be printed. */
void ddp_train_progress_clear(struct ddp_train_progress *progress);

#endif

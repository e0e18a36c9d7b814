/* SPDX-License-Identifier: MIT
 *
 * The evaluations of a run: when one is due, which one had the lowest loss, and what follows from
 * that: the checkpoint that is kept, and an early end. All ranks decide alike, because all get the
 * same scores. */
#ifndef DDP_TRAIN_BEST_H
#define DDP_TRAIN_BEST_H

#include "train/run.h"

/* Steps are counted when they are done. */

/* After the run is resumed and has its evaluator: takes over what the checkpoint says of the best
 * evaluation, and sets where the run ends. Collective. */
enum ddp_status ddp_run_best_open(struct ddp_run *run);

/* Whether one is due after this step. */
bool ddp_run_evaluation_due(const struct ddp_run *run, int64_t step);

/* Evaluates, with run->evaluator, and reports. If the run need not go on after this one, its end is
 * set here. Collective.
 *   scores [out]  NULL: not wanted */
enum ddp_status ddp_run_evaluate(struct ddp_run *run, int64_t step,
                                 struct ddp_train_scores *scores);

/* The best evaluation, after the run. */
void ddp_run_best_print(const struct ddp_run *run);

#endif

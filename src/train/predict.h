/* SPDX-License-Identifier: MIT
 *
 * What a run does instead of training: --eval-only evaluates once, --predict writes the class and
 * the probability of each sample to a file. */
#ifndef DDP_TRAIN_PREDICT_H
#define DDP_TRAIN_PREDICT_H

#include "train/run.h"

/* For options that ask for no training: drops those only training uses. A checkpoint is then a file
 * of weights. */
void ddp_run_drop_training(struct ddp_train_options *options);

/* Before the data are opened, on all ranks: DDP_ERR_INVALID names options that do not fit. */
enum ddp_status ddp_run_check_prediction(const struct ddp_run *run);

/* What will be evaluated or predicted. */
void ddp_run_print_model(const struct ddp_run *run);

/* In place of training. Collective. */
enum ddp_status ddp_run_without_training(struct ddp_run *run);

/* With --verbose: which class was taken for which in the last evaluation. */
void ddp_run_print_confusion(const struct ddp_run *run);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Exact evaluation: every test sample counts once, for any number of workers. */
#ifndef DDP_TRAIN_EVALUATE_H
#define DDP_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "mode/mode.h"
#include "model/model.h"

typedef struct ddp_train_evaluator ddp_train_evaluator;

/* Prepares to evaluate this rank's part of the test set with the mode's weights.
 *   config  the model's, as for training; the batch is chosen here */
enum ddp_status ddp_train_evaluator_create(ddp_train_evaluator **evaluator, const ddp_mode *mode,
                                           ddp_comm *comm, const struct ddp_model *model,
                                           const struct ddp_model_config *config,
                                           const ddp_dataset *test);
void ddp_train_evaluator_destroy(ddp_train_evaluator *evaluator);

/* Collective.
 *   accuracy [out]  share of right predictions, 0 .. 1
 *   loss [out]      mean over all samples */
enum ddp_status ddp_train_evaluator_run(ddp_train_evaluator *evaluator, double *accuracy,
                                        double *loss);

#endif

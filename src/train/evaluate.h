/* SPDX-License-Identifier: MIT
 *
 * Exact evaluation: every test sample counts once, and the result has the same bits for any number
 * of workers. The test set is cut into batches on a fixed grid, each worker runs whole batches, and
 * their losses are added in the order of the batches. */
#ifndef DDP_TRAIN_EVALUATE_H
#define DDP_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "mode/mode.h"
#include "model/model.h"
#include "report/metrics.h"

typedef struct ddp_train_evaluator ddp_train_evaluator;

struct ddp_train_evaluator_setup {
    const ddp_mode *mode; /* whose weights are evaluated */
    ddp_comm *comm;
    const struct ddp_model *model;
    const struct ddp_model_config *config; /* as for training; the batch is chosen here */
    const ddp_dataset *test;
    int64_t samples; /* how many, from the first one on; the whole set if it has fewer */
    int threads;     /* that read samples ahead */
};

/* Prepares to evaluate this rank's batches. What the setup points to outlives the evaluator, except
 * the config. */
enum ddp_status ddp_train_evaluator_create(ddp_train_evaluator **evaluator,
                                           const struct ddp_train_evaluator_setup *setup);
void ddp_train_evaluator_destroy(ddp_train_evaluator *evaluator);

/* Bytes of it without making it, of a rank that holds most: what is on the device, and in the
 * host's memory.
 *   ranks  that share the evaluation */
enum ddp_status ddp_train_evaluator_memory(const struct ddp_model *model,
                                           const struct ddp_model_config *config,
                                           const struct ddp_dataset_info *test, int ranks,
                                           bool host_memory, size_t *device, size_t *host);

/* Collective: all ranks get the same scores. */
enum ddp_status ddp_train_evaluator_run(ddp_train_evaluator *evaluator,
                                        struct ddp_train_scores *scores);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The batches of an evaluation, and the memory they take. */
#ifndef DDP_PLAN_EVALUATION_H
#define DDP_PLAN_EVALUATION_H

#include "data/loader.h"
#include "graph/exec.h"
#include "model/model.h"

#define DDP_EVALUATION_LOSS_BYTES (DDP_FLAT_ALIGN * sizeof(float))
#define DDP_EVALUATION_PARTS      (DDP_EXEC_NETWORK | DDP_EXEC_LOSS)

/* Samples of a batch. */
int64_t ddp_evaluation_rows(const struct ddp_dataset_info *test, int64_t training_batch);

/* What a model is configured with to be evaluated on this set: questions with choices are rows of
 * answers, as preferences are, whatever is trained. */
struct ddp_model_config ddp_evaluation_config(const struct ddp_model_config *config,
                                              const ddp_dataset *test);

/* Bytes of an evaluator, on the rank that holds most: on the device, and in the host's memory.
 *   test   its sample_count: how many are evaluated
 *   ranks  that share the evaluation; of a pipeline its replicas */
enum ddp_status ddp_evaluation_memory(const struct ddp_model *model,
                                      const struct ddp_model_config *config,
                                      const struct ddp_dataset_info *test, int ranks,
                                      bool host_memory, size_t *device, size_t *host);

#endif

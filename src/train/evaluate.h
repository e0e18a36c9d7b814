/* SPDX-License-Identifier: MIT
 *
 * Exact evaluation: every test sample counts once, and the result has the same bits for any number
 * of workers. The test set is cut into batches on a fixed grid, each worker runs whole batches, and
 * their losses are added in the order of the batches. Labels that do not count are left out of the
 * loss, the accuracy and what these are divided by. */
#ifndef DDP_TRAIN_EVALUATE_H
#define DDP_TRAIN_EVALUATE_H

#include "data/loader.h"
#include "mode/mode.h"
#include "model/model.h"
#include "report/metrics.h"

typedef struct ddp_train_evaluator ddp_train_evaluator;

/* Takes the network's output for a batch.
 *   first   the number of its first sample
 *   logits  (rows, classes) f32, on the host; (rows, outputs) if the setup has those */
typedef enum ddp_status ddp_train_visit(void *arg, int64_t first, const struct ddp_batch *batch,
                                        const float *logits);

#define DDP_CONFUSION_CLASSES 32 /* of a matrix that a person reads, at most */

struct ddp_train_evaluator_setup {
    ddp_mode *mode; /* whose weights are evaluated */
    ddp_comm *comm;
    bool together; /* thin weights: all ranks take part in each other's batches */
    int stages;    /* of a pipeline: so many ranks one after another run the same batches */
    const struct ddp_model *model;
    const struct ddp_model_config *config; /* as for training; the batch is chosen here */
    const ddp_dataset *test;
    int64_t samples; /* how many, from the first; the whole set if it has fewer */
    int threads;     /* that read samples ahead */
    /* NULL: none. Called for each of this rank's batches, in their order; in a pipeline by the last
     * stage. */
    ddp_train_visit *visit;
    void *visit_arg;
    int64_t outputs; /* numbers for a sample, if its label is not a class; 0: one for each class */
    /* Preferences: the visitor gets, in the place of logits, what ddp_preference() writes to
     * log_probabilities: (rows, T). */
    bool sequences;
    bool confusion; /* count which class is taken for which, unless there are too many */
};

/* Prepares to evaluate this rank's batches. What the setup points to outlives the evaluator, except
 * the config. Collective in a pipeline. */
enum ddp_status ddp_train_evaluator_create(ddp_train_evaluator **evaluator,
                                           const struct ddp_train_evaluator_setup *setup);
void ddp_train_evaluator_destroy(ddp_train_evaluator *evaluator);

/* Collective: all ranks get the same scores. Without labels they are NaN. */
enum ddp_status ddp_train_evaluator_run(ddp_train_evaluator *evaluator,
                                        struct ddp_train_scores *scores);

/* Of the last run, over all ranks: samples of class `label` that were taken for `predicted`, at
 * [label * classes + predicted]. NULL: nothing was counted. */
const int64_t *ddp_train_evaluator_confusion(const ddp_train_evaluator *evaluator);

/* The samples that this rank visits. */
void ddp_train_evaluator_range(const ddp_train_evaluator *evaluator, int64_t *begin, int64_t *end);

#endif

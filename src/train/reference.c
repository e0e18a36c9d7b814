/* SPDX-License-Identifier: MIT
 *
 * What the model that training begins with says of the answers to prefer, or not: the logarithm of
 * their probabilities, once for all data, before the first step. In place of a second model each
 * answer has one number. Batches are those of an evaluation, so the bits depend on nothing else. */
#include "config.h"

#include "train/run.h"

bool ddp_run_refers(const struct ddp_run *run)
{
    return ddp_objective_refers(&run->planned.options->objective);
}

/* Of each sample, the numbers at the first positions of its sequences, in their order. */
static enum ddp_status take_batch(void *arg, int64_t first, const struct ddp_batch *batch,
                                  const float *values)
{
    const ddp_dataset *data = arg;
    const struct ddp_dataset_info *info = ddp_dataset_info(data);
    const int64_t length = info->dims[1];
    for (int64_t i = 0; i < batch->rows; i++) {
        const int32_t *roles = batch->labels + i * info->label_count + length;
        int64_t count, next = 0;
        float *references = ddp_dataset_references(data, first + i, &count);
        for (int64_t t = 0; t < length && next < count; t++)
            if (roles[t] & DDP_ROLE_FIRST)
                references[next++] = values[i * length + t];
    }
    return DDP_OK;
}

static enum ddp_status take_set(struct ddp_run *run, const ddp_dataset *data, int64_t samples)
{
    ddp_train_evaluator *evaluator = NULL;
    struct ddp_train_scores scores;
    struct ddp_train_evaluator_setup setup = ddp_run_evaluator_setup(run, data, samples);
    setup.threads = (int)run->planned.options->data_threads;
    setup.visit = take_batch;
    setup.visit_arg = (void *)(uintptr_t)data;
    setup.sequences = true;
    enum ddp_status status = ddp_train_evaluator_create(&evaluator, &setup);
    if (status == DDP_OK)
        status = ddp_train_evaluator_run(evaluator, &scores);
    ddp_train_evaluator_destroy(evaluator);
    return status;
}

/* Exact: of each number all ranks but one have 0. */
static enum ddp_status exchange(struct ddp_run *run, const ddp_dataset *data)
{
    int64_t count;
    float *references = ddp_dataset_references(data, -1, &count);
    return ddp_comm_allreduce(run->comm, references, (size_t)count, DDP_F32, DDP_SUM);
}

enum ddp_status ddp_run_make_reference(struct ddp_run *run)
{
    const ddp_dataset *data = run->planned.data, *test = run->planned.test;
    int64_t count;
    if (!ddp_run_refers(run))
        return DDP_OK;
    if (test && !ddp_dataset_references(test, -1, &count)) /* questions with choices */
        test = NULL;
    ddp_job_report(run->job, "reference", 0);
    enum ddp_status status = take_set(run, data, ddp_dataset_info(data)->sample_count);
    if (status == DDP_OK && test)
        status = take_set(run, test, run->planned.plan.eval_samples);
    if (status == DDP_OK)
        status = exchange(run, data);
    const bool apart = test && ddp_dataset_references(test, -1, &count) !=
                                   ddp_dataset_references(data, -1, &count);
    return status == DDP_OK && apart ? exchange(run, test) : status;
}

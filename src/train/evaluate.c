/* SPDX-License-Identifier: MIT
 *
 * See evaluate.h. */
#include "config.h"

#include "train/evaluate.h"

#include "core/memory.h"
#include "graph/exec.h"

#include <stdlib.h>

#define EVAL_BATCH 250 /* samples of one class each */
#define PARTS      (DDP_EXEC_NETWORK | DDP_EXEC_LOSS)

/* A graph and its memory for batches of one size. */
struct sized {
    int64_t rows;
    ddp_graph *graph;
    ddp_exec *exec;
};

struct ddp_train_evaluator {
    ddp_comm *comm;
    const ddp_dataset *test;
    ddp_device *device;
    int64_t batch_rows;       /* samples at a time */
    int64_t label_count;      /* of a sample */
    int64_t begin, end;       /* this rank's samples */
    struct sized whole, tail; /* for full batches and for the rest */
    float *loss;              /* on the device, as a flat gradient array's first elements */
    int32_t *predictions;     /* on the device */
    int32_t *host_predictions;
    void *input[2]; /* staging where the device cannot read the loader's memory */
};

#define LOSS_BYTES (DDP_FLAT_ALIGN * sizeof(float))

static size_t labels_bytes(const ddp_train_evaluator *e)
{
    return (size_t)(e->batch_rows * e->label_count) * sizeof(int32_t);
}

static enum ddp_status make_sized(struct sized *sized, int64_t rows, const ddp_mode *mode,
                                  const struct ddp_model *model,
                                  const struct ddp_model_config *config)
{
    struct ddp_model_config own = *config;
    own.batch = rows;
    sized->rows = rows;
    if (rows == 0)
        return DDP_OK;
    enum ddp_status status = ddp_model_build(&sized->graph, model, &own);
    if (status == DDP_OK)
        status = ddp_exec_create(&sized->exec, sized->graph, ddp_mode_device(mode), PARTS,
                                 ddp_mode_weights(mode));
    if (status == DDP_OK)
        ddp_exec_set_weights_bf16(sized->exec, ddp_mode_weights_bf16(mode));
    return status;
}

static size_t input_bytes(const ddp_train_evaluator *e, int input)
{
    return input == 0 ? (size_t)e->batch_rows * ddp_dataset_info(e->test)->sample_bytes
                      : labels_bytes(e);
}

static enum ddp_status alloc_buffers(ddp_train_evaluator *e)
{
    enum ddp_status status = ddp_device_alloc(e->device, LOSS_BYTES, (void **)&e->loss);
    if (status == DDP_OK)
        status = ddp_device_alloc(e->device, labels_bytes(e), (void **)&e->predictions);
    for (int i = 0; status == DDP_OK && i < 2 && !ddp_device_host_memory(e->device); i++)
        status = ddp_device_alloc(e->device, input_bytes(e, i), &e->input[i]);
    e->host_predictions =
        ddp_array_alloc((size_t)(e->batch_rows * e->label_count), sizeof *e->host_predictions);
    return status == DDP_OK && !e->host_predictions ? DDP_ERR_MEMORY : status;
}

enum ddp_status ddp_train_evaluator_create(ddp_train_evaluator **evaluator, const ddp_mode *mode,
                                           ddp_comm *comm, const struct ddp_model *model,
                                           const struct ddp_model_config *config,
                                           const ddp_dataset *test)
{
    ddp_train_evaluator *e = ddp_array_alloc(1, sizeof *e);
    if (!e)
        return DDP_ERR_MEMORY;
    e->comm = comm;
    e->test = test;
    e->device = ddp_mode_device(mode);
    e->label_count = ddp_dataset_info(test)->label_count;
    /* A sequence is as long as many samples: batches as large as in training fit. */
    e->batch_rows = e->label_count > 1 ? config->batch : EVAL_BATCH;
    ddp_evaluation_range(ddp_dataset_info(test)->sample_count, ddp_comm_size(comm),
                         ddp_comm_rank(comm), &e->begin, &e->end);
    const int64_t count = e->end - e->begin;
    enum ddp_status status =
        make_sized(&e->whole, count >= e->batch_rows ? e->batch_rows : 0, mode, model, config);
    if (status == DDP_OK)
        status = make_sized(&e->tail, count % e->batch_rows, mode, model, config);
    if (status == DDP_OK)
        status = alloc_buffers(e);
    if (status != DDP_OK) {
        ddp_train_evaluator_destroy(e);
        return status;
    }
    *evaluator = e;
    return DDP_OK;
}

void ddp_train_evaluator_destroy(ddp_train_evaluator *evaluator)
{
    if (!evaluator)
        return;
    ddp_train_evaluator *e = evaluator;
    for (int i = 0; i < 2; i++)
        ddp_device_free(e->device, e->input[i], input_bytes(e, i));
    ddp_device_free(e->device, e->predictions, labels_bytes(e));
    ddp_device_free(e->device, e->loss, LOSS_BYTES);
    ddp_exec_destroy(e->tail.exec);
    ddp_exec_destroy(e->whole.exec);
    ddp_graph_destroy(e->tail.graph);
    ddp_graph_destroy(e->whole.graph);
    free(e->host_predictions);
    free(e);
}

static enum ddp_status run_batch(ddp_train_evaluator *e, const struct ddp_batch *batch,
                                 int64_t *right, double *loss)
{
    ddp_exec *exec = batch->rows == e->whole.rows ? e->whole.exec : e->tail.exec;
    const int64_t predictions = batch->rows * e->label_count;
    float mean;
    ddp_exec_set_gradients(exec, e->loss);
    ddp_exec_set_predictions(exec, e->predictions);
    enum ddp_status status = ddp_exec_load_input(exec, 0, batch->x, e->input[0]);
    if (status == DDP_OK)
        status = ddp_exec_load_input(exec, 1, batch->labels, e->input[1]);
    if (status == DDP_OK)
        status = ddp_exec_forward(exec);
    if (status == DDP_OK)
        status = ddp_exec_loss(exec);
    if (status == DDP_OK)
        status = ddp_device_copy_out(e->device, e->host_predictions, e->predictions,
                                     (size_t)predictions * sizeof *e->host_predictions);
    if (status == DDP_OK)
        status = ddp_device_copy_out(e->device, &mean, ddp_exec_loss_value(exec), sizeof mean);
    if (status == DDP_OK)
        status = ddp_device_synchronize(e->device);
    if (status != DDP_OK)
        return status;
    *loss += (double)mean * (double)batch->rows;
    for (int64_t i = 0; i < predictions; i++)
        *right += e->host_predictions[i] == batch->labels[i];
    return DDP_OK;
}

enum ddp_status ddp_train_evaluator_run(ddp_train_evaluator *evaluator, double *accuracy,
                                        double *loss)
{
    ddp_train_evaluator *e = evaluator;
    ddp_loader *loader = NULL;
    int64_t right = 0;
    double sum = 0;
    enum ddp_status status =
        ddp_loader_create_range(&loader, e->test, e->begin, e->end, e->batch_rows, 1);
    while (status == DDP_OK) {
        const struct ddp_batch *batch;
        status = ddp_loader_next(loader, &batch);
        if (status != DDP_OK || !batch)
            break;
        status = run_batch(e, batch, &right, &sum);
        ddp_loader_release(loader, batch);
    }
    ddp_loader_destroy(loader);
    if (status == DDP_OK)
        status = ddp_comm_allreduce(e->comm, &right, 1, DDP_I64, DDP_SUM);
    if (status == DDP_OK)
        status = ddp_comm_allreduce(e->comm, &sum, 1, DDP_F64, DDP_SUM);
    if (status != DDP_OK)
        return status;
    const double count = (double)ddp_dataset_info(e->test)->sample_count;
    *accuracy = (double)right / (count * (double)e->label_count);
    *loss = sum / count;
    return DDP_OK;
}

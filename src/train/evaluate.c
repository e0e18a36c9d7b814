/* SPDX-License-Identifier: MIT
 *
 * See evaluate.h. */
#include "config.h"

#include "train/evaluate.h"

#include "core/memory.h"
#include "graph/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOADER_BATCHES 3   /* that one of one thread holds, by default */
#define EVAL_BATCH     250 /* samples of one class each */
#define PARTS          (DDP_EXEC_NETWORK | DDP_EXEC_LOSS)

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
    int64_t label_count;       /* of a sample */
    int64_t count, batch_rows; /* samples, and how many at a time */
    int64_t batch_count;       /* of all ranks */
    int64_t begin, end;        /* this rank's batches */
    double *sums;              /* the loss of each batch, times its rows; 0: another rank's */
    struct sized whole, tail;  /* for full batches and for the last one */
    float *loss;               /* on the device, as a flat gradient array's first elements */
    int32_t *predictions;      /* on the device */
    int32_t *host_predictions;
    void *input[2]; /* staging where the device cannot read the loader's memory */
};

#define LOSS_BYTES (DDP_FLAT_ALIGN * sizeof(float))

static size_t labels_bytes(const ddp_train_evaluator *e)
{
    return (size_t)(e->batch_rows * e->label_count) * sizeof(int32_t);
}

static enum ddp_status make_sized(struct sized *sized, int64_t rows,
                                  const struct ddp_train_evaluator_setup *setup)
{
    struct ddp_model_config own = *setup->config;
    own.batch = rows;
    sized->rows = rows;
    if (rows == 0)
        return DDP_OK;
    enum ddp_status status = ddp_model_build(&sized->graph, setup->model, &own);
    if (status == DDP_OK)
        status = ddp_exec_create(&sized->exec, sized->graph, ddp_mode_device(setup->mode), PARTS,
                                 ddp_mode_weights(setup->mode));
    if (status == DDP_OK)
        ddp_exec_set_weights_bf16(sized->exec, ddp_mode_weights_bf16(setup->mode));
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
    e->sums = ddp_array_alloc((size_t)e->batch_count, sizeof *e->sums);
    return status == DDP_OK && (!e->host_predictions || !e->sums) ? DDP_ERR_MEMORY : status;
}

/* The graphs that this rank needs, if any, and where their results go. */
static enum ddp_status open_batches(ddp_train_evaluator *e,
                                    const struct ddp_train_evaluator_setup *setup)
{
    const int64_t full = e->count / e->batch_rows; /* batches */
    const bool has_whole = e->begin < e->end && e->begin < full;
    const bool has_tail = e->begin < e->end && e->end > full;
    enum ddp_status status = make_sized(&e->whole, has_whole ? e->batch_rows : 0, setup);
    if (status == DDP_OK)
        status = make_sized(&e->tail, has_tail ? e->count % e->batch_rows : 0, setup);
    return status == DDP_OK ? alloc_buffers(e) : status;
}

/* A sequence is as long as many samples: batches as large as in training fit. */
static int64_t rows_of_batch(const struct ddp_dataset_info *test, int64_t training_batch)
{
    return test->label_count > 1 ? training_batch : EVAL_BATCH;
}

enum ddp_status ddp_train_evaluator_create(ddp_train_evaluator **evaluator,
                                           const struct ddp_train_evaluator_setup *setup)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(setup->test);
    ddp_train_evaluator *e = ddp_array_alloc(1, sizeof *e);
    if (!e)
        return DDP_ERR_MEMORY;
    e->comm = setup->comm;
    e->test = setup->test;
    e->device = ddp_mode_device(setup->mode);
    e->label_count = info->label_count;
    e->count = setup->samples < info->sample_count ? setup->samples : info->sample_count;
    e->batch_rows = rows_of_batch(info, setup->config->batch);
    e->batch_count = (e->count + e->batch_rows - 1) / e->batch_rows;
    ddp_evaluation_range(e->batch_count, ddp_comm_size(e->comm), ddp_comm_rank(e->comm), &e->begin,
                         &e->end);
    enum ddp_status status = open_batches(e, setup);
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
    free(e->sums);
    free(e);
}

static enum ddp_status add_arena(const struct ddp_model *model,
                                 const struct ddp_model_config *config, int64_t rows, size_t *bytes)
{
    struct ddp_model_config own = *config;
    ddp_graph *graph;
    size_t arena = 0;
    own.batch = rows;
    if (rows == 0)
        return DDP_OK;
    enum ddp_status status = ddp_model_build(&graph, model, &own);
    if (status != DDP_OK)
        return status;
    status = ddp_exec_arena_bytes(graph, PARTS, &arena);
    ddp_graph_destroy(graph);
    *bytes += arena;
    return status;
}

enum ddp_status ddp_train_evaluator_memory(const struct ddp_model *model,
                                           const struct ddp_model_config *config,
                                           const struct ddp_dataset_info *test, int ranks,
                                           bool host_memory, size_t *device, size_t *host)
{
    const int64_t rows = rows_of_batch(test, config->batch);
    const int64_t count = test->planned ? rows * ranks : test->sample_count;
    const int64_t whole = count / rows, tail = count % rows;
    const size_t labels = (size_t)(rows * test->label_count) * sizeof(int32_t);
    enum ddp_status status = DDP_OK;
    *device = LOSS_BYTES + labels;
    *host = labels + LOADER_BATCHES * ddp_loader_slot_bytes(test, rows);
    if (!host_memory)
        *device += labels + (size_t)rows * test->sample_bytes;
    if (whole > 0)
        status = add_arena(model, config, rows, device);
    /* The rank with the last batch has others too, unless there is one rank for each. */
    if (status == DDP_OK && (whole == 0 || ranks <= whole))
        status = add_arena(model, config, tail, device);
    return status;
}

static enum ddp_status run_batch(ddp_train_evaluator *e, const struct ddp_batch *batch,
                                 int64_t *right)
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
    e->sums[e->begin + batch->step] = (double)mean * (double)batch->rows;
    for (int64_t i = 0; i < predictions; i++)
        *right += e->host_predictions[i] == batch->labels[i];
    return DDP_OK;
}

/* Of a batch; behind the last one the samples end. */
static int64_t first_sample(const ddp_train_evaluator *e, int64_t batch)
{
    return batch < e->batch_count ? batch * e->batch_rows : e->count;
}

/* Runs this rank's batches.
 *   right [out]  correct predictions */
static enum ddp_status run_batches(ddp_train_evaluator *e, int64_t *right)
{
    ddp_loader *loader = NULL;
    const int64_t begin = first_sample(e, e->begin), end = first_sample(e, e->end);
    enum ddp_status status =
        ddp_loader_create_range(&loader, e->test, begin, end, e->batch_rows, 1);
    for (*right = 0; status == DDP_OK;) {
        const struct ddp_batch *batch;
        status = ddp_loader_next(loader, &batch);
        if (status != DDP_OK || !batch)
            break;
        status = run_batch(e, batch, right);
        ddp_loader_release(loader, batch);
    }
    ddp_loader_destroy(loader);
    return status;
}

enum ddp_status ddp_train_evaluator_run(ddp_train_evaluator *evaluator,
                                        struct ddp_train_scores *scores)
{
    ddp_train_evaluator *e = evaluator;
    const struct ddp_dataset_info *info = ddp_dataset_info(e->test);
    int64_t right;
    double sum = 0;
    memset(e->sums, 0, (size_t)e->batch_count * sizeof *e->sums);
    enum ddp_status status = run_batches(e, &right);
    if (status == DDP_OK)
        status = ddp_comm_allreduce(e->comm, &right, 1, DDP_I64, DDP_SUM);
    if (status == DDP_OK) /* exact: of each batch all ranks but one have 0 */
        status = ddp_comm_allreduce(e->comm, e->sums, (size_t)e->batch_count, DDP_F64, DDP_SUM);
    if (status != DDP_OK)
        return status;
    for (int64_t i = 0; i < e->batch_count; i++)
        sum += e->sums[i];
    const bool language = info->x_dtype == DDP_I32;
    const double loss = sum / (double)e->count;
    *scores = (struct ddp_train_scores){
        .samples = e->count,
        .accuracy = (double)right / ((double)e->count * (double)e->label_count),
        .loss = loss,
        .perplexity = language ? exp(loss) : NAN,
        .bits_per_byte = info->token_bytes > 0 ? loss / (M_LN2 * info->token_bytes) : NAN,
    };
    return DDP_OK;
}

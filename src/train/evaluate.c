/* SPDX-License-Identifier: MIT
 *
 * See evaluate.h. */
#include "config.h"

#include "train/evaluate.h"

#include "core/bf16.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/label.h"
#include "core/portable_math.h"
#include "data/choices.h"
#include "graph/describe.h"
#include "mode/network.h"
#include "plan/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A graph and what runs it, for batches of one size. */
struct sized {
    int64_t rows;
    ddp_graph *graph;
    ddp_network *network;
};

/* What is added up of numbers and of how far off they are. */
struct errors {
    double absolute, sum, squares; /* the latter two of the targets */
};

struct ddp_train_evaluator {
    ddp_comm *comm;
    const ddp_dataset *test;
    ddp_device *device;
    int64_t label_count;   /* of a sample */
    bool numbers;          /* labels are: there are no predicted classes */
    double unit;           /* of scaled numbers, whose errors are measured; 0: they are not */
    struct errors *errors; /* of each batch, as its loss */
    struct ddp_objective objective_is;
    const struct ddp_objective *objective; /* preferences; NULL: another loss */
    float *choices; /* what the dataset has of its questions' answers; NULL: it has none */
    int64_t choice_count;
    double (*measures)[DDP_PREFERENCE_SUMS]; /* the same; NULL: none */
    bool sequences;                          /* the visitor gets their log-probabilities */
    int64_t count, batch_rows;               /* samples, and how many at a time */
    int64_t batch_count;                     /* of all ranks */
    int64_t begin, end;                      /* this rank's batches */
    int64_t idle;                            /* of others that it takes part in */
    double *sums;             /* the loss of each batch, times its rows; 0: another rank's */
    struct sized whole, tail; /* for full batches and for the last one */
    float *loss;              /* on the device, as a flat gradient array's first elements */
    int32_t *predictions;     /* on the device */
    int32_t *host_predictions;
    int threads; /* that read samples */
    ddp_train_visit *visit;
    void *visit_arg;
    void *host_logits;        /* of a batch, as they are on the device; NULL: nobody visits */
    float *logits;            /* the same as rows of float32; NULL: they are */
    int64_t *confusion;       /* of `classes` classes; NULL: not counted */
    int64_t classes, outputs; /* the second: numbers of a sample that a visitor gets */
    int64_t pitch;            /* from one row of host_logits to the next, which may lie apart */
};

/* Graphs of no rows are not built; those that are have the same operations. */
static const struct sized *any_sized(const ddp_train_evaluator *e)
{
    return e->whole.network ? &e->whole : &e->tail;
}

static unsigned parts_of(const struct ddp_train_evaluator_setup *setup)
{
    return ddp_dataset_info(setup->test)->label_count > 0 ? DDP_EVALUATION_PARTS : DDP_EXEC_NETWORK;
}

static size_t labels_bytes(const ddp_train_evaluator *e)
{
    return (size_t)(e->batch_rows * e->label_count) * sizeof(int32_t);
}

static enum ddp_status make_sized(struct sized *sized, int64_t rows,
                                  const struct ddp_train_evaluator_setup *setup)
{
    struct ddp_model_config own = ddp_evaluation_config(setup->config, setup->test);
    own.batch = rows;
    sized->rows = rows;
    if (rows == 0)
        return DDP_OK;
    enum ddp_status status = ddp_model_build(&sized->graph, setup->model, &own);
    return status == DDP_OK
               ? ddp_network_open(&sized->network, setup->mode, sized->graph, parts_of(setup))
               : status;
}

/* Has this rank the outputs of its batches? */
static bool has_output(const ddp_train_evaluator *e)
{
    const struct sized *sized = any_sized(e);
    return sized->network && ddp_network_exec(sized->network);
}

static enum ddp_status alloc_logits(ddp_train_evaluator *e)
{
    const struct sized *sized = any_sized(e);
    const bool bf16 = ddp_graph_activations(sized->graph) == DDP_BF16;
    const size_t bytes = ddp_exec_output_bytes(ddp_network_exec(sized->network));
    const int64_t values = (int64_t)(bytes / (bf16 ? sizeof(uint16_t) : sizeof(float)));
    const int64_t outputs = ddp_graph_output_count(sized->graph) / sized->rows;
    e->pitch = values / sized->rows;
    if (e->outputs < 1 || (e->outputs == e->classes && e->classes < 2) || outputs != e->outputs)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model's output of %" PRId64 " values a sample is not one for each of "
                        "%" PRId64 " classes",
                        outputs, e->classes);
    const bool copies = bf16 || e->pitch > outputs;
    e->host_logits = ddp_array_alloc((size_t)(e->batch_rows * e->pitch), sizeof(float));
    if (copies && e->host_logits)
        e->logits = ddp_array_alloc((size_t)(e->batch_rows * e->outputs), sizeof(float));
    return !e->host_logits || (copies && !e->logits) ? DDP_ERR_MEMORY : DDP_OK;
}

static enum ddp_status alloc_buffers(ddp_train_evaluator *e)
{
    if (any_sized(e)->network)
        e->device = ddp_network_device(any_sized(e)->network);
    enum ddp_status status =
        ddp_device_alloc(e->device, DDP_EVALUATION_LOSS_BYTES, (void **)&e->loss);
    if (status == DDP_OK)
        status = ddp_device_alloc(e->device, labels_bytes(e), (void **)&e->predictions);
    e->host_predictions =
        ddp_array_alloc((size_t)(e->batch_rows * e->label_count), sizeof *e->host_predictions);
    e->sums = ddp_array_alloc((size_t)e->batch_count, sizeof *e->sums);
    if (e->unit > 0)
        e->errors = ddp_array_alloc((size_t)e->batch_count, sizeof *e->errors);
    if (e->objective)
        e->measures = ddp_array_alloc((size_t)e->batch_count, sizeof *e->measures);
    if (status == DDP_OK && (!e->host_predictions || !e->sums || (e->unit > 0 && !e->errors) ||
                             (e->objective && !e->measures)))
        status = DDP_ERR_MEMORY;
    const bool logits = (e->visit && !e->sequences) || e->errors;
    return status == DDP_OK && logits && has_output(e) ? alloc_logits(e) : status;
}

/* The graphs that this rank needs, if any, and where their results go. */
static enum ddp_status open_batches(ddp_train_evaluator *e,
                                    const struct ddp_train_evaluator_setup *setup)
{
    const int64_t full = e->count / e->batch_rows; /* batches */
    const bool has_whole =
        (e->begin < e->end && e->begin < full) || (e->begin == e->end && e->idle);
    const bool has_tail = e->begin < e->end && e->end > full;
    enum ddp_status status = make_sized(&e->whole, has_whole ? e->batch_rows : 0, setup);
    if (status == DDP_OK)
        status = make_sized(&e->tail, has_tail ? e->count % e->batch_rows : 0, setup);
    return status == DDP_OK ? alloc_buffers(e) : status;
}

static enum ddp_status take_choices(void *arg, int64_t first, const struct ddp_batch *batch,
                                    const float *values)
{
    const ddp_train_evaluator *e = arg;
    const int64_t length = e->label_count / DDP_ROLE_PLANES;
    for (int64_t i = 0; i < batch->rows; i++)
        ddp_choices_take(e->test, first + i, batch->labels + i * e->label_count + length,
                         values + i * length);
    return DDP_OK;
}

/* Of one rank, where each has batches of its own. */
static int64_t most_batches(const ddp_train_evaluator *e)
{
    int64_t most = 0, begin, end;
    for (int r = 0; r < ddp_comm_size(e->comm); r++) {
        ddp_evaluation_range(e->batch_count, ddp_comm_size(e->comm), r, &begin, &end);
        most = end - begin > most ? end - begin : most;
    }
    return most;
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
    e->threads = setup->threads;
    e->device = ddp_mode_device(setup->mode);
    e->label_count = info->label_count;
    e->numbers = info->float_labels;
    e->unit = info->label_count == 1 ? info->label_std : 0;
    e->objective_is = ddp_evaluation_config(setup->config, setup->test).objective;
    e->objective = e->objective_is.kind ? &e->objective_is : NULL;
    e->choices = ddp_choices_scores(e->test, &e->choice_count);
    e->sequences = setup->sequences || e->choices;
    e->visit = e->choices ? take_choices : setup->visit;
    e->visit_arg = e->choices ? e : setup->visit_arg;
    e->classes = setup->config->classes;
    e->outputs = setup->outputs ? setup->outputs : e->unit > 0 ? 1 : e->classes;
    e->count = setup->samples < info->sample_count ? setup->samples : info->sample_count;
    e->batch_rows = ddp_evaluation_rows(info, setup->config->batch);
    e->batch_count = (e->count + e->batch_rows - 1) / e->batch_rows;
    ddp_evaluation_range(e->batch_count, ddp_comm_size(e->comm) / setup->stages,
                         ddp_comm_rank(e->comm) / setup->stages, &e->begin, &e->end);
    if (setup->together)
        e->idle = most_batches(e) - (e->end - e->begin);
    enum ddp_status status = open_batches(e, setup);
    if (status == DDP_OK && setup->confusion && e->label_count == 1 && e->classes > 1 &&
        e->classes <= DDP_CONFUSION_CLASSES) {
        e->confusion = ddp_array_alloc((size_t)(e->classes * e->classes), sizeof *e->confusion);
        status = e->confusion ? DDP_OK : DDP_ERR_MEMORY;
    }
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
    ddp_device_free(e->device, e->predictions, labels_bytes(e));
    ddp_device_free(e->device, e->loss, DDP_EVALUATION_LOSS_BYTES);
    ddp_network_close(e->tail.network);
    ddp_network_close(e->whole.network);
    ddp_graph_destroy(e->tail.graph);
    ddp_graph_destroy(e->whole.graph);
    free(e->host_predictions);
    free(e->host_logits);
    free(e->logits);
    free(e->confusion);
    free(e->errors);
    free(e->measures);
    free(e->sums);
    free(e);
}

static void add_errors(struct errors *errors, const struct ddp_batch *batch, const float *outputs)
{
    for (int64_t i = 0; i < batch->rows; i++) {
        float target;
        memcpy(&target, &batch->labels[i], sizeof target);
        errors->absolute += fabs((double)outputs[i] - (double)target);
        errors->sum += (double)target;
        errors->squares += (double)target * (double)target;
    }
}

/* Hands the network's output to who wants it. */
static enum ddp_status visit_batch(ddp_train_evaluator *e, const ddp_exec *exec,
                                   const struct ddp_batch *batch)
{
    enum ddp_status status = ddp_device_copy_out(e->device, e->host_logits, ddp_exec_output(exec),
                                                 ddp_exec_output_bytes(exec));
    if (status == DDP_OK)
        status = ddp_device_synchronize(e->device);
    if (status != DDP_OK)
        return status;
    const bool bf16 = ddp_graph_activations(any_sized(e)->graph) == DDP_BF16;
    const uint16_t *halves = e->host_logits;
    const float *floats = e->host_logits;
    for (int64_t i = 0; e->logits && i < batch->rows * e->outputs; i++) {
        const int64_t at = i / e->outputs * e->pitch + i % e->outputs;
        e->logits[i] = bf16 ? ddp_bf16_to_f32(halves[at]) : floats[at];
    }
    const float *outputs = e->logits ? e->logits : e->host_logits;
    if (e->errors)
        add_errors(&e->errors[e->begin + batch->step], batch, outputs);
    return e->visit
               ? e->visit(e->visit_arg, (e->begin + batch->step) * e->batch_rows, batch, outputs)
               : DDP_OK;
}

/* The measures of a batch, and what the visitor is to have. */
static enum ddp_status score_preferences(ddp_train_evaluator *e, const struct ddp_batch *batch,
                                         const float *sums)
{
    const int64_t number = e->begin + batch->step;
    const size_t values = (size_t)(batch->rows * e->label_count / DDP_ROLE_PLANES);
    enum ddp_status status = DDP_OK;
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        e->measures[number][i] = (double)sums[i];
    if (!e->sequences)
        return DDP_OK;
    status = ddp_device_copy_out(e->device, e->host_predictions, e->predictions,
                                 values * sizeof *e->host_predictions);
    if (status == DDP_OK)
        status = ddp_device_synchronize(e->device);
    return status == DDP_OK ? e->visit(e->visit_arg, number * e->batch_rows, batch,
                                       (const float *)(const void *)e->host_predictions)
                            : status;
}

/* What is counted of labels: correct predictions, and those that do not count. */
struct tally {
    int64_t right, uncounted;
};

/* The loss and the predictions of a batch that went through the network.
 *   tally [out]  added to */
static enum ddp_status score_batch(ddp_train_evaluator *e, ddp_exec *exec,
                                   const struct ddp_batch *batch, struct tally *tally)
{
    const int64_t predictions = e->numbers || e->objective ? 0 : batch->rows * e->label_count;
    float sums[DDP_PREFERENCE_SUMS] = {0, 0};
    enum ddp_status status = ddp_exec_loss(exec);
    if (status == DDP_OK && predictions > 0)
        status = ddp_device_copy_out(e->device, e->host_predictions, e->predictions,
                                     (size_t)predictions * sizeof *e->host_predictions);
    if (status == DDP_OK)
        status = ddp_device_copy_out(e->device, sums, ddp_exec_loss_value(exec),
                                     e->objective ? sizeof sums
                                     : ddp_graph_target_count(ddp_exec_graph(exec)) > 0
                                         ? 2 * sizeof *sums
                                         : sizeof *sums);
    if (status == DDP_OK)
        status = ddp_device_synchronize(e->device);
    if (status != DDP_OK)
        return status;
    e->sums[e->begin + batch->step] = (double)sums[0] * (double)batch->rows;
    tally->uncounted += (int64_t)sums[1];
    if (e->objective)
        return score_preferences(e, batch, sums);
    for (int64_t i = 0; i < predictions; i++)
        tally->right += e->host_predictions[i] == batch->labels[i];
    for (int64_t i = 0; e->confusion && i < predictions; i++)
        if (batch->labels[i] >= 0)
            e->confusion[batch->labels[i] * e->classes + e->host_predictions[i]]++;
    return DDP_OK;
}

static enum ddp_status run_batch(ddp_train_evaluator *e, const struct ddp_batch *batch,
                                 struct tally *tally)
{
    const struct sized *sized = batch->rows == e->whole.rows ? &e->whole : &e->tail;
    ddp_exec *exec = ddp_network_exec(sized->network);
    if (exec) {
        ddp_exec_set_gradients(exec, e->loss);
        ddp_exec_set_predictions(exec, e->predictions);
    }
    enum ddp_status status =
        ddp_network_run(sized->network, batch->x, e->label_count > 0 ? batch->labels : NULL);
    if (!exec) /* the last stage has the output; the batch is free when this one has read it */
        return status == DDP_OK ? ddp_device_synchronize(e->device) : status;
    if (status == DDP_OK && e->host_logits) /* the loss may write over the output */
        status = visit_batch(e, exec, batch);
    if (status == DDP_OK && e->label_count > 0)
        status = score_batch(e, exec, batch, tally);
    return status;
}

/* Of a batch; behind the last one the samples end. */
static int64_t first_sample(const ddp_train_evaluator *e, int64_t batch)
{
    return batch < e->batch_count ? batch * e->batch_rows : e->count;
}

/* Runs this rank's batches.
 *   tally [out]  zeroed */
static enum ddp_status run_batches(ddp_train_evaluator *e, struct tally *tally)
{
    ddp_loader *loader = NULL;
    const int64_t begin = first_sample(e, e->begin), end = first_sample(e, e->end);
    enum ddp_status status =
        ddp_loader_create_range(&loader, e->test, begin, end, e->batch_rows, e->threads);
    while (status == DDP_OK) {
        const struct ddp_batch *batch;
        status = ddp_loader_next(loader, &batch);
        if (status != DDP_OK || !batch)
            break;
        status = run_batch(e, batch, tally);
        ddp_loader_release(loader, batch);
    }
    ddp_loader_destroy(loader);
    for (int64_t i = 0; status == DDP_OK && i < e->idle; i++)
        status = ddp_network_idle(any_sized(e)->network);
    return status;
}

static void put_choices(const ddp_train_evaluator *e, struct ddp_train_scores *scores)
{
    struct ddp_choices_result result;
    ddp_choices_result(e->test, &result);
    *scores = (struct ddp_train_scores){
        .samples = result.questions,
        .accuracy = result.accuracy,
        .loss = result.loss,
        .has_choices = true,
        .normalized = result.normalized,
    };
}

/* The loss is of the labels that count, wherever they are: the mean over them, not over batches'
 * means. A batch's sum is of so many samples as have labels. */
static void put_scores(const ddp_train_evaluator *e, const struct tally *tally,
                       struct ddp_train_scores *scores)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(e->test);
    const int64_t of_sample = e->objective ? 1 : e->label_count; /* targets */
    const int64_t labels = e->count * of_sample, counted = labels - tally->uncounted;
    double sum = 0;
    for (int64_t i = 0; i < e->batch_count; i++)
        sum += e->sums[i];
    const bool known = counted > 0 && !isnan(sum);
    const double loss =
        known ? sum / ((double)counted / (double)of_sample) : NAN; /* without a sign */
    *scores = (struct ddp_train_scores){
        .samples = e->count,
        .accuracy = e->numbers || e->objective || counted <= 0
                        ? NAN
                        : (double)tally->right / (double)counted,
        .loss = loss,
        .has_perplexity = info->x_dtype == DDP_I32 && !e->numbers && !e->objective,
        .has_preferences = e->objective,
        .has_bits_per_byte = info->token_bytes > 0,
        .perplexity = ddp_math_exp(loss),
        .bits_per_byte = info->token_bytes > 0 ? loss / (M_LN2 * info->token_bytes) : 0,
    };
    double measures[DDP_PREFERENCE_SUMS] = {0};
    for (int64_t i = 0; e->objective && i < e->batch_count; i++)
        for (int k = 0; k < DDP_PREFERENCE_SUMS; k++)
            measures[k] += e->measures[i][k];
    if (e->objective)
        ddp_preferences_make(&scores->preferences, e->objective, measures);
    struct errors all = {0};
    for (int64_t i = 0; e->errors && i < e->batch_count; i++) {
        all.absolute += e->errors[i].absolute;
        all.sum += e->errors[i].sum;
        all.squares += e->errors[i].squares;
    }
    const double spread = all.squares - all.sum * all.sum / (double)e->count;
    scores->has_errors = e->errors;
    scores->squared_error = loss * e->unit * e->unit;
    scores->absolute_error = all.absolute / (double)e->count * e->unit;
    scores->r2 = spread > 0 ? 1 - sum / spread : NAN;
}

enum ddp_status ddp_train_evaluator_run(ddp_train_evaluator *evaluator,
                                        struct ddp_train_scores *scores)
{
    ddp_train_evaluator *e = evaluator;
    struct tally tally = {0, 0};
    int64_t counts[2];
    if (e->confusion)
        memset(e->confusion, 0, (size_t)(e->classes * e->classes) * sizeof *e->confusion);
    memset(e->sums, 0, (size_t)e->batch_count * sizeof *e->sums);
    if (e->errors)
        memset(e->errors, 0, (size_t)e->batch_count * sizeof *e->errors);
    if (e->objective)
        memset(e->measures, 0, (size_t)e->batch_count * sizeof *e->measures);
    if (e->choices)
        memset(e->choices, 0, (size_t)e->choice_count * sizeof *e->choices);
    enum ddp_status status = run_batches(e, &tally);
    counts[0] = tally.right;
    counts[1] = tally.uncounted;
    if (status == DDP_OK)
        status = ddp_comm_allreduce(e->comm, counts, 2, DDP_I64, DDP_SUM);
    if (status == DDP_OK) /* exact: of each batch all ranks but one have 0 */
        status = ddp_comm_allreduce(e->comm, e->sums, (size_t)e->batch_count, DDP_F64, DDP_SUM);
    if (status == DDP_OK && e->objective)
        status = ddp_comm_allreduce(e->comm, e->measures,
                                    (size_t)e->batch_count * DDP_PREFERENCE_SUMS, DDP_F64, DDP_SUM);
    if (status == DDP_OK && e->errors)
        status = ddp_comm_allreduce(e->comm, e->errors,
                                    (size_t)e->batch_count * sizeof *e->errors / sizeof(double),
                                    DDP_F64, DDP_SUM);
    const size_t pairs = e->confusion ? (size_t)(e->classes * e->classes) : 0;
    if (status == DDP_OK && e->confusion)
        status = ddp_comm_allreduce(e->comm, e->confusion, pairs, DDP_I64, DDP_SUM);
    if (status == DDP_OK && e->choices) /* exact, as the sums are */
        status = ddp_comm_allreduce(e->comm, e->choices, (size_t)e->choice_count, DDP_F32, DDP_SUM);
    if (status != DDP_OK)
        return status;
    tally = (struct tally){counts[0], counts[1]};
    if (e->choices)
        put_choices(e, scores);
    else
        put_scores(e, &tally, scores);
    return DDP_OK;
}

const int64_t *ddp_train_evaluator_confusion(const ddp_train_evaluator *evaluator)
{
    return evaluator->confusion;
}

void ddp_train_evaluator_range(const ddp_train_evaluator *evaluator, int64_t *begin, int64_t *end)
{
    *begin = first_sample(evaluator, evaluator->begin);
    *end = has_output(evaluator) ? first_sample(evaluator, evaluator->end) : *begin;
}

/* SPDX-License-Identifier: MIT
 *
 * See evaluation.h and planned.h. */
#include "config.h"

#include "plan/evaluation.h"

#include "core/log.h"
#include "core/terminal.h"
#include "data/choices.h"
#include "graph/exec.h"
#include "plan/planned.h"

#include <inttypes.h>

#define LOADER_BATCHES 3     /* that one of one thread holds, by default */
#define EVAL_BATCH     250   /* samples of one class each */
#define LARGE_SAMPLE   16384 /* values */

/* --- batches ---------------------------------------------------------------------------------- */

/* A sequence is as long as many samples, and so is a large image: batches as large as in training
 * fit. Sentences are compared within them. */
int64_t ddp_evaluation_rows(const struct ddp_dataset_info *test, int64_t training_batch)
{
    return test->label_count > 1 || test->x_dtype == DDP_I32 || test->sample_values > LARGE_SAMPLE
               ? training_batch
               : EVAL_BATCH;
}

struct ddp_model_config ddp_evaluation_config(const struct ddp_model_config *config,
                                              const ddp_dataset *test)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(test);
    struct ddp_model_config own = *config;
    int64_t count;
    if (!ddp_choices_scores(test, &count))
        return own;
    own.objective = (struct ddp_objective){.kind = DDP_OBJECTIVE_DPO, .beta = 1};
    own.label_count = info->label_count;
    own.dim_count = info->dim_count;
    for (int i = 0; i < info->dim_count; i++)
        own.dims[i] = info->dims[i];
    own.features = (int64_t)info->sample_values;
    return own;
}

/* A network for batches of so many rows. */
static enum ddp_status add_network(const struct ddp_model *model,
                                   const struct ddp_model_config *config, int64_t rows,
                                   bool host_memory, size_t *bytes)
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
    status = ddp_exec_arena_bytes(graph, DDP_EVALUATION_PARTS, &arena);
    for (int i = 0; i < 2 && !host_memory; i++)
        arena += ddp_exec_graph_input_bytes(graph, i);
    ddp_graph_destroy(graph);
    *bytes += arena;
    return status;
}

enum ddp_status ddp_evaluation_memory(const struct ddp_model *model,
                                      const struct ddp_model_config *config,
                                      const struct ddp_dataset_info *test, int ranks,
                                      bool host_memory, size_t *device, size_t *host)
{
    const int64_t rows = ddp_evaluation_rows(test, config->batch);
    const int64_t count = test->planned ? rows * ranks : test->sample_count;
    const int64_t whole = count / rows, tail = count % rows;
    const size_t labels = (size_t)(rows * test->label_count) * sizeof(int32_t);
    enum ddp_status status = DDP_OK;
    *device = DDP_EVALUATION_LOSS_BYTES + labels;
    *host = labels + (size_t)((count + rows - 1) / rows) * sizeof(double) +
            LOADER_BATCHES * ddp_loader_slot_bytes(test, rows);
    if (whole > 0)
        status = add_network(model, config, rows, host_memory, device);
    /* The rank with the last batch has others too, unless there is one rank for each. */
    if (status == DDP_OK && (whole == 0 || ranks <= whole))
        status = add_network(model, config, tail, host_memory, device);
    return status;
}

/* --- when ------------------------------------------------------------------------------------- */

enum ddp_status ddp_planned_check_evaluation(const struct ddp_planned *planned)
{
    const struct ddp_dataset_info *data = ddp_dataset_info(planned->data);
    const char *option = ddp_train_given_of(planned->options, DDP_OF_EVALUATION);
    if (!option || (planned->test && ddp_dataset_info(planned->test)->label_count > 0))
        return DDP_OK;
    if (planned->test)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s: there is nothing to evaluate on, because %s has no labels", option,
                        ddp_dataset_where(ddp_dataset_info(planned->test)));
    if (planned->options->own_data)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s: there is nothing to evaluate on, because this program has no test "
                        "data: set some aside with --val-split",
                        option);
    return ddp_fail(DDP_ERR_INVALID,
                    "--%s: there is nothing to evaluate on, because %s has no test set: name one "
                    "with --val, or set some data aside with --val-split",
                    option, ddp_dataset_where(data));
}

int64_t ddp_planned_evaluation_steps(const struct ddp_planned *planned)
{
    return planned->options->eval_every ? planned->options->eval_every
                                        : planned->plan.steps_per_epoch;
}

void ddp_planned_print_evaluation(const struct ddp_planned *planned, FILE *out)
{
    const struct ddp_train_options *options = planned->options;
    char when[64] = "epoch", part[64] = "", end[64] = "";
    if (!planned->test || !ddp_train_given_of(options, DDP_OF_EVALUATION))
        return;
    const int64_t all = ddp_dataset_info(planned->test)->sample_count;
    if (options->eval_every)
        snprintf(when, sizeof when, "%" PRId64 " steps", options->eval_every);
    if (planned->plan.eval_samples < all)
        snprintf(part, sizeof part, "%" PRId64 " of ", planned->plan.eval_samples);
    if (options->patience)
        snprintf(end, sizeof end, ", early end after %" PRId64 " that are not better",
                 options->patience);
    ddp_terminal_print(out, "test     every %s, %s%" PRId64 " samples%s\n", when, part, all, end);
}

/* SPDX-License-Identifier: MIT
 *
 * A training run from beginning to end: runs the steps of what open.c has opened, evaluates, saves.
 * It does not know which mode runs. */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/trace.h"
#include "job/job.h"
#include "train/best.h"
#include "train/plan_memory.h"
#include "train/predict.h"
#include "train/replica_check.h"
#include "train/sample.h"
#include "train/summary.h"
#include "weights/weights.h"

#include <math.h>
#include <stdlib.h>

#define SMALL_MODEL 64 /* parameters: the weights of such a model are printed */

struct ddp_train {
    struct ddp_train_options options;
    struct ddp_model custom; /* of ddp_train_set_model() */
};

enum ddp_status ddp_train_create(ddp_train **train)
{
    ddp_job_share_errors();
    ddp_train *t = ddp_array_alloc(1, sizeof *t);
    if (!t)
        return DDP_ERR_MEMORY;
    ddp_train_options_default(&t->options);
    *train = t;
    return DDP_OK;
}

void ddp_train_destroy(ddp_train *train)
{
    free(train);
}

enum ddp_status ddp_train_parse(ddp_train *train, int argc, char *const *argv)
{
    int rest;
    ddp_log_set_name("trainer");
    return ddp_options_parse(ddp_train_option_table(), &train->options, &train->options.given, argc,
                             argv, false, &rest);
}

enum ddp_status ddp_train_set(ddp_train *train, const char *name, const char *value)
{
    return ddp_options_set(ddp_train_option_table(), &train->options, &train->options.given, name,
                           value);
}

void ddp_train_set_model(ddp_train *train, const char *name, ddp_model_builder *build, void *arg)
{
    train->custom = ddp_model_custom;
    train->custom.name = name;
    train->options.model = &train->custom;
    train->options.custom = true;
    ddp_model_custom_set(&train->options.models[DDP_MODELS - 1], build, arg);
}

bool ddp_train_accepts_stop(const ddp_train *train)
{
    return ddp_train_options_accept_stop(&train->options);
}

void ddp_train_help(FILE *out)
{
    ddp_options_help(ddp_train_option_table(), out);
}

void ddp_train_help_short(FILE *out)
{
    ddp_options_help_short(ddp_train_option_table(), out);
}

/* The weights of a small model, in the order of its parameters: "Model weights: [0.9472, 0.9440]".
 */
static enum ddp_status print_weights(struct ddp_run *run)
{
    if (!run->out || ddp_graph_element_count(run->graph) > SMALL_MODEL)
        return DDP_OK;
    enum ddp_status status = ddp_run_fetch_weights(run);
    if (status != DDP_OK)
        return status;
    const char *separator = "";
    fputs("Model weights: [", run->out);
    for (int i = 0; i < ddp_graph_parameter_count(run->graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(run->graph, i);
        for (int64_t k = 0; k < parameter->count; k++) {
            fprintf(run->out, "%s%.4f", separator, (double)run->weights[parameter->offset + k]);
            separator = ", ";
        }
    }
    fputs("]\n", run->out);
    fflush(run->out);
    return DDP_OK;
}

/* NaN: not asked for. */
static double gradient_norm(const struct ddp_run *run)
{
    const double norm = ddp_mode_gradient_norm(run->mode);
    return norm < 0 ? NAN : norm;
}

static enum ddp_status train_step(struct ddp_run *run, int64_t step)
{
    float loss;
    double rate = ddp_schedule_rate(&run->plan.schedule, step);
    enum ddp_status status = ddp_mode_step(run->mode, run->loader, rate, step, &loss);
    if (status != DDP_OK)
        return status;
    if (isnan(loss))
        loss = NAN; /* without a sign, which would be printed */
    const double norm = gradient_norm(run);
    ddp_train_metrics_step(run->metrics, step, (double)loss, rate, norm,
                           ddp_loader_wait_seconds(run->loader));
    status = ddp_train_guard_step(run, step, (double)loss, norm);
    if (status != DDP_OK)
        return status;
    return run->options->report.verbose ? print_weights(run) : DDP_OK;
}

/* Between steps, when `step` are done: writes a checkpoint where one is due, stops on request. */
static enum ddp_status between_steps(struct ddp_run *run, int64_t step)
{
    const bool stop =
        run->options->checkpoint && step < run->end_step && ddp_job_should_stop(run->job, step);
    const bool due = stop || step > run->first_step;
    enum ddp_status status = ddp_run_checkpoint_poll(run);
    if (status == DDP_OK && due && ddp_run_checkpoint_due(run, step, stop))
        status = ddp_run_checkpoint(run, step);
    return status == DDP_OK && stop ? DDP_ERR_PREEMPTED : status;
}

static enum ddp_status train_steps(struct ddp_run *run)
{
    enum ddp_status status = between_steps(run, run->first_step);
    if (status == DDP_OK && run->first_step >= run->end_step) /* complete: only the result */
        status = ddp_run_evaluate(run, run->first_step);
    for (int64_t step = run->first_step; status == DDP_OK && step < run->end_step; step++) {
        status = train_step(run, step);
        if (status == DDP_OK)
            status = ddp_run_check_replicas(run, step + 1);
        if (status == DDP_OK && ddp_run_evaluation_due(run, step + 1))
            status = ddp_run_evaluate(run, step + 1);
        if (status == DDP_OK)
            status = ddp_run_sample(run, step + 1);
        if (status == DDP_OK)
            status = between_steps(run, step + 1);
    }
    ddp_train_guard_end(run);
    return status;
}

/* Shows the plan and opens what will show the steps. */
static enum ddp_status open_metrics(struct ddp_run *run)
{
    const struct ddp_train_plan *plan = &run->plan;
    struct ddp_train_facts facts = {
        .options = run->options->report,
        .model = plan->model->name,
        .data = ddp_dataset_info(run->data),
        .graph = run->graph,
        .mode = plan->mode,
        .rank = plan->rank,
        .world_size = plan->world_size,
        .nodes = plan->nodes,
        .replicas = plan->replicas,
        .threads = plan->threads,
        .batch_size = plan->batch_size,
        .tail_rows = plan->tail_rows,
        .global_shards = plan->global_shards,
        .steps_per_epoch = plan->steps_per_epoch,
        .total_steps = plan->total_steps,
        .evaluation_steps = ddp_run_evaluation_steps(run),
        .epochs = run->options->steps ? 0 : run->options->epochs,
        .schedule = plan->schedule,
        .shuffled = plan->sampler.shuffle,
        .seed = run->options->seed,
        .device = ddp_device_name(ddp_mode_device(run->mode)),
        .comm = run->comm,
        .first_step = run->first_step,
        .out = run->out,
    };
    facts.step_flops = facts.tail_flops = ddp_run_step_flops(run);
    if (run->tail_graph)
        facts.tail_flops = ddp_graph_flops(run->tail_graph) * (double)run->plan.global_shards;
    enum ddp_status status = ddp_run_measure_peak(run);
    if (status != DDP_OK)
        return status;
    facts.peak_flops = run->peak_flops;
    status = ddp_mode_memory(run->mode, &facts.memory);
    if (status != DDP_OK)
        return status;
    const bool planned = !ddp_train_evaluates_only(run->options) || run->options->plan;
    if (run->out && !planned)
        ddp_run_print_model(run);
    if (run->out && planned)
        ddp_train_plan_print(plan, run->options, facts.data, facts.graph, &facts.memory,
                             ddp_device_describe(ddp_mode_device(run->mode)), run->out);
    if (run->out && planned && !run->is_resumed)
        ddp_load_print(&run->load, run->options, run->out);
    if (run->out && planned)
        ddp_run_print_compute(run);
    if (planned)
        ddp_run_evaluation_print(run);
    ddp_run_resume_print(run);
    return ddp_train_metrics_open(&run->metrics, &facts);
}

static enum ddp_status save(struct ddp_run *run)
{
    const char *path = run->options->save;
    char shown[DDP_TEXT_SHOWN];
    enum ddp_status status = DDP_OK;
    if (path && run->plan.rank == 0) {
        const int64_t begin = ddp_trace_begin();
        ddp_job_report(run->job, "save", run->end_step);
        status = ddp_run_fetch_weights(run);
        if (status == DDP_OK)
            status = ddp_train_weights_save(path, run->graph, run->weights);
        ddp_trace_end("save", begin, NULL, 0);
        if (status == DDP_OK && run->out)
            fprintf(run->out, "saved %s\n", ddp_text_show(shown, path));
    }
    return status;
}

/* All steps, and what is left of them.
 *   stopped [out]  the run ended early, on request: no failure */
static enum ddp_status train_and_save(struct ddp_run *run, bool *stopped)
{
    enum ddp_status status = train_steps(run);
    if (status == DDP_OK)
        ddp_run_print_confusion(run);
    *stopped = status == DDP_ERR_PREEMPTED;
    if (status == DDP_OK || *stopped) {
        const enum ddp_status printed = ddp_run_print_summary(run);
        status = printed == DDP_OK ? status : printed;
    }
    if (status == DDP_OK)
        status = save(run);
    if (status == DDP_OK)
        status = ddp_run_export(run);
    if (status == DDP_OK)
        status = print_weights(run);
    if (status == DDP_OK || *stopped)
        status = ddp_run_checkpoint_finish(run, *stopped);
    if (status == DDP_OK || *stopped)
        ddp_run_best_print(run);
    return status;
}

/* With the file that --load stands for. Of several workers rank 0 does it: it is not cut up. */
static enum ddp_status generate(const struct ddp_train_options *options, FILE *out)
{
    struct ddp_train_options found = *options;
    struct ddp_load load = {0};
    ddp_job *job = NULL;
    enum ddp_status status = ddp_job_open(&job);
    if (status == DDP_OK && ddp_job_rank(job) == 0) {
        status = ddp_load_find(&load, options, true);
        found.load = load.file;
        if (status == DDP_OK)
            status = ddp_train_sample(&found, out);
        ddp_load_close(&load);
    }
    ddp_job_close(job);
    return status;
}

enum ddp_status ddp_train_run(ddp_train *train, FILE *out)
{
    struct ddp_train_options options = train->options;
    struct ddp_run run = {.options = &options, .out = out};
    if (options.generate)
        return generate(&options, out);
    const bool trains = !ddp_train_evaluates_only(&options);
    if (!trains)
        ddp_run_drop_training(&options);
    enum ddp_status status = ddp_run_open(&run);
    if (status == DDP_OK)
        status = run.options->plan ? ddp_run_print_plan(&run) : open_metrics(&run);
    bool stopped = false;
    if (status == DDP_OK && !run.options->plan)
        status = trains ? train_and_save(&run, &stopped) : ddp_run_without_training(&run);
    ddp_train_metrics_close(run.metrics, stopped && status == DDP_OK ? DDP_ERR_PREEMPTED : status);
    if (status == DDP_OK)
        status = ddp_comm_barrier(run.comm); /* no rank leaves while another may still fail */
    if (status == DDP_OK && run.out && (fflush(run.out) != 0 || ferror(run.out)))
        status = ddp_fail(DDP_ERR_IO, "cannot write the results to standard output");
    if (status != DDP_OK && status != DDP_ERR_ABORTED && run.job)
        ddp_job_abort(run.job);
    if (status == DDP_OK)
        ddp_job_report(run.job, "done", run.end_step);
    run.complete = status == DDP_OK;
    /* After a failure the board keeps the phase it happened in, for the launcher to show. */
    ddp_run_close(&run);
    return status == DDP_OK && stopped ? DDP_ERR_PREEMPTED : status;
}

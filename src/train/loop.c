/* SPDX-License-Identifier: MIT
 *
 * See loop.h. It does not know which mode runs. */
#include "config.h"

#include "train/loop.h"

#include "core/log.h"
#include "core/text.h"
#include "core/trace.h"
#include "job/job.h"
#include "train/best.h"
#include "train/hooks.h"
#include "train/outputs.h"
#include "train/plan_memory.h"
#include "train/predict.h"
#include "train/replica_check.h"
#include "train/summary.h"
#include "weights/weights.h"

#include <math.h>

#define SMALL_MODEL 64 /* parameters: the weights of such a model are printed */

/* --- before the first step -------------------------------------------------------------------- */

/* Shows the plan and opens what will show the steps. */
enum ddp_status ddp_run_begin(struct ddp_run *run)
{
    const struct ddp_train_plan *plan = &run->plan;
    struct ddp_memory memory;
    run->step = run->compared = run->first_step;
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
        .stages = plan->stages,
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
        .exchange_bytes = run->exchange_bytes,
        .out = run->out,
    };
    facts.step_flops = facts.tail_flops = ddp_run_step_flops(run);
    if (run->tail_graph)
        facts.tail_flops = ddp_graph_flops(run->tail_graph) * (double)run->plan.global_shards;
    enum ddp_status status = ddp_run_measure_peak(run);
    if (status != DDP_OK)
        return status;
    facts.peak_flops = run->peak_flops;
    status = ddp_memory_of_mode(run, &memory);
    if (status != DDP_OK)
        return status;
    facts.memory = memory.worker;
    const bool planned = !ddp_train_evaluates_only(run->options) || run->options->plan;
    if (run->out && !planned)
        ddp_run_print_model(run);
    if (run->out && planned)
        ddp_train_plan_print(plan, run->options, facts.data, facts.graph, memory.stages,
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

/* --- steps ------------------------------------------------------------------------------------ */

/* The weights of a small model, in the order of its parameters: "Model weights: [0.9472, 0.9440]".
 */
static enum ddp_status print_weights(struct ddp_run *run)
{
    if (ddp_graph_element_count(run->graph) > SMALL_MODEL)
        return DDP_OK;
    enum ddp_status status = ddp_mode_average(run->mode);
    if (status == DDP_OK)
        status = ddp_run_fetch_weights(run, run->out);
    if (status != DDP_OK || !run->out)
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

/* A rate that the program has set must be every rank's. */
static enum ddp_status rate_of(const struct ddp_run *run, double *rate)
{
    *rate = ddp_schedule_rate(&run->plan.schedule, run->step);
    if (isnan(run->own_rate))
        return DDP_OK;
    if (!(run->own_rate >= 0) || isinf(run->own_rate))
        return ddp_fail(DDP_ERR_INVALID,
                        "the program has set the learning rate %g: it must be a "
                        "number from 0",
                        run->own_rate);
    double range[2] = {run->own_rate, -run->own_rate};
    enum ddp_status status = ddp_comm_allreduce(run->comm, range, 2, DDP_F64, DDP_MAX);
    if (status == DDP_OK && range[0] != -range[1])
        return ddp_fail(DDP_ERR_MISMATCH, "ranks have set different learning rates: from %g to %g",
                        -range[1], range[0]);
    *rate = run->own_rate;
    return status;
}

/* Between steps: writes a checkpoint where one is due, stops on request. */
static enum ddp_status between_steps(struct ddp_run *run)
{
    const int64_t step = run->step;
    const bool stop =
        run->options->checkpoint && step < run->end_step && ddp_job_should_stop(run->job, step);
    const bool due = stop || step > run->first_step;
    enum ddp_status status = ddp_run_checkpoint_poll(run);
    if (status == DDP_OK && due && ddp_run_checkpoint_due(run, step, stop))
        status = ddp_run_checkpoint(run, step);
    return status == DDP_OK && stop ? DDP_ERR_PREEMPTED : status;
}

/* What follows a step and its evaluation. */
static enum ddp_status end_step(struct ddp_run *run)
{
    const int64_t every = run->options->sample_every;
    enum ddp_status status = DDP_OK;
    if (every > 0 && run->step % every == 0)
        status = ddp_mode_average(run->mode);
    if (status == DDP_OK && run->step > run->first_step)
        status = ddp_run_sample(run, run->step);
    return status == DDP_OK ? between_steps(run) : status;
}

enum ddp_status ddp_run_step(struct ddp_run *run)
{
    float loss;
    double rate;
    const int64_t step = run->step;
    enum ddp_status status = end_step(run);
    if (status == DDP_OK)
        status = ddp_run_before_step(run);
    if (status == DDP_OK)
        status = rate_of(run, &rate);
    if (status == DDP_OK)
        status = ddp_mode_step(run->mode, run->loader, rate, step, &loss);
    if (status != DDP_OK)
        return status;
    run->idle += ddp_mode_idle_share(run->mode);
    run->step++;
    if (isnan(loss))
        loss = NAN; /* without a sign, which would be printed */
    const double norm = gradient_norm(run);
    ddp_train_metrics_step(run->metrics, step, (double)loss, ddp_mode_counted(run->mode), rate,
                           norm, ddp_loader_wait_seconds(run->loader));
    status = ddp_train_guard_step(run, step, (double)loss, norm);
    if (status == DDP_OK && run->options->report.verbose)
        status = print_weights(run);
    return status == DDP_OK ? ddp_run_check_replicas(run, run->step) : status;
}

/* --- after the last step ---------------------------------------------------------------------- */

static enum ddp_status write_weights(struct ddp_run *run, const char *path)
{
    return ddp_train_weights_save(path, run->graph, run->weights);
}

enum ddp_status ddp_run_save(struct ddp_run *run, const char *path, bool last)
{
    char shown[DDP_TEXT_SHOWN];
    const bool saves = run->plan.rank == 0;
    enum ddp_status status = ddp_mode_average(run->mode);
    const int64_t begin = ddp_trace_begin();
    if (saves)
        ddp_job_report(run->job, "save", run->step > 0 ? run->step - 1 : 0);
    if (status == DDP_OK)
        status = ddp_run_fetch_weights(run, saves);
    if (status != DDP_OK || !saves)
        return status;
    status = last ? ddp_run_write(run, path, write_weights) : write_weights(run, path);
    ddp_trace_end("save", begin, NULL, 0);
    if (status == DDP_OK && run->out)
        fprintf(run->out, "saved %s\n", ddp_text_show(shown, path));
    return status;
}

/* What could not be written on rank 0 does not end the job: the others would wait, and a last
 * checkpoint is all the more welcome. */
static enum ddp_status write_results(struct ddp_run *run)
{
    enum ddp_status saved = DDP_OK, exported = DDP_OK;
    if (run->options->save)
        saved = ddp_run_save(run, run->options->save, true);
    if (saved == DDP_OK || saved == DDP_ERR_IO)
        exported = ddp_run_export(run);
    return saved == DDP_OK ? exported : saved;
}

enum ddp_status ddp_run_end(struct ddp_run *run, enum ddp_status status)
{
    if (status == DDP_OK) {
        run->end_step = run->step; /* the loop may have ended before its last step */
        status = end_step(run);
    }
    ddp_train_guard_end(run);
    if (status == DDP_OK)
        ddp_run_print_confusion(run);
    const bool stopped = status == DDP_ERR_PREEMPTED;
    if (status != DDP_OK && !stopped)
        return status;
    status = ddp_mode_average(run->mode);
    if (status == DDP_OK)
        status = ddp_run_print_summary(run);
    const enum ddp_status written = status == DDP_OK && !stopped ? write_results(run) : DDP_OK;
    if (written != DDP_OK && written != DDP_ERR_IO)
        status = written;
    if (status == DDP_OK && !stopped)
        status = print_weights(run);
    if (status == DDP_OK)
        status = ddp_run_checkpoint_finish(run, stopped);
    if (status == DDP_OK)
        ddp_run_best_print(run);
    if (status == DDP_OK)
        status = written;
    return status == DDP_OK && stopped ? DDP_ERR_PREEMPTED : status;
}

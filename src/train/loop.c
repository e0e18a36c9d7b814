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
#include "plan/weights.h"
#include "train/hooks.h"
#include "train/outputs.h"
#include "train/predict.h"
#include "train/record.h"
#include "train/summary.h"
#include "weights/weights.h"

#include <math.h>

#define SMALL_MODEL 64 /* parameters: the weights of such a model are printed */

/* --- before the first step -------------------------------------------------------------------- */

/* Shows the plan and opens what will show the steps. */
enum ddp_status ddp_run_begin(struct ddp_run *run)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    struct ddp_memory memory;
    run->step = run->first_step;
    struct ddp_train_facts facts = {
        .options = run->planned.options->report,
        .model = plan->model->name,
        .data = ddp_dataset_info(run->planned.data),
        .graph = run->planned.graph,
        .mode = plan->mode,
        .rank = plan->rank,
        .world_size = plan->world_size,
        .node = ddp_job_node(run->job),
        .nodes = plan->nodes,
        .node_rank = ddp_job_node_rank(run->job),
        .replicas = plan->replicas,
        .stages = plan->stages,
        .threads = plan->threads,
        .batch_size = plan->batch_size,
        .tail_rows = plan->tail_rows,
        .global_shards = plan->global_shards,
        .steps_per_epoch = plan->steps_per_epoch,
        .total_steps = plan->total_steps,
        .evaluation_steps = ddp_planned_evaluation_steps(&run->planned),
        .epochs = run->planned.options->steps ? 0 : plan->epochs,
        .schedule = plan->schedule,
        .shuffled = plan->sampler.shuffle,
        .seed = run->planned.options->seed,
        .device = ddp_device_name(ddp_mode_device(run->mode)),
        .comm = run->comm,
        .first_step = run->first_step,
        .exchange_bytes = run->planned.exchange_bytes,
        .out = run->out,
    };
    facts.step_flops = facts.tail_flops = ddp_planned_step_flops(&run->planned, run->planned.graph);
    if (run->planned.tail_graph)
        facts.tail_flops = ddp_planned_step_flops(&run->planned, run->planned.tail_graph);
    ddp_planned_know_peak(&run->planned, ddp_device_describe(ddp_mode_device(run->mode)));
    facts.peak_flops = run->planned.peak_flops;
    enum ddp_status status = ddp_memory_of_mode(&run->planned, run->mode, &memory);
    if (status != DDP_OK)
        return status;
    facts.memory = memory.worker;
    const bool planned =
        !ddp_train_evaluates_only(run->planned.options) || run->planned.options->plan;
    if (run->out && !planned)
        ddp_run_print_model(run);
    if (run->out && planned)
        ddp_train_plan_print(plan, run->planned.options, facts.data, facts.graph, memory.stages,
                             ddp_device_describe(ddp_mode_device(run->mode)), run->out);
    if (run->out && planned && !run->is_resumed)
        ddp_load_print(&run->planned.load, run->planned.options, run->planned.model_config.classes,
                       run->out);
    if (run->out && planned)
        ddp_planned_print_compute(&run->planned, run->out);
    if (run->out && planned)
        ddp_planned_print_evaluation(&run->planned, run->out);
    if (run->out && planned)
        ddp_planned_print_copies(&run->planned, run->out);
    ddp_run_resume_print(run);
    status = ddp_record_begin(&run->record, run);
    facts.record = run->record;
    return status == DDP_OK ? ddp_train_metrics_open(&run->metrics, &facts) : status;
}

/* --- --plan ----------------------------------------------------------------------------------- */

static enum ddp_status print_plan(struct ddp_run *run)
{
    struct ddp_planned *planned = &run->planned;
    struct ddp_memory_limits limits;
    struct ddp_memory memory;
    char description[DDP_PLANNED_DEVICE];
    enum ddp_status status = ddp_planned_look(planned, &limits, &memory, description);
    if (status != DDP_OK)
        return status;
    ddp_train_plan_print(&planned->plan, planned->options, ddp_dataset_info(planned->data),
                         planned->graph, memory.stages, description, run->out);
    ddp_planned_print_compute(planned, run->out);
    ddp_planned_print_evaluation(planned, run->out);
    ddp_planned_print_copies(planned, run->out);
    ddp_run_resume_print(run);
    return ddp_planned_print_needs(planned, &memory, &limits, run->out);
}

enum ddp_status ddp_run_print_plan(struct ddp_run *run)
{
    return run->out ? print_plan(run) : DDP_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* The weights of a small model, in the order of its parameters: "Model weights: [0.9472, 0.9440]".
 */
static enum ddp_status print_weights(struct ddp_run *run)
{
    if (ddp_graph_element_count(run->planned.graph) > SMALL_MODEL)
        return DDP_OK;
    enum ddp_status status = ddp_mode_average(run->mode);
    if (status == DDP_OK)
        status = ddp_run_fetch_weights(run, run->out);
    if (status != DDP_OK || !run->out)
        return status;
    const char *separator = "";
    fputs("Model weights: [", run->out);
    for (int i = 0; i < ddp_graph_parameter_count(run->planned.graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(run->planned.graph, i);
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
    *rate = ddp_schedule_rate(&run->planned.plan.schedule, run->step);
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

/* Between steps: writes a checkpoint where one is due, stops on request. Where there is only a copy
 * in memory, the request is to start again from that. */
static enum ddp_status between_steps(struct ddp_run *run)
{
    const int64_t step = run->step;
    const bool saves = run->planned.options->checkpoint;
    const bool stop = (saves || run->planned.plan.copies) && step < run->end_step &&
                      ddp_job_should_stop(run->job, step) && ddp_run_suits_others(run);
    const bool due = stop || step > run->first_step;
    enum ddp_status status = ddp_run_checkpoint_poll(run);
    if (status == DDP_OK && due && ddp_run_checkpoint_due(run, step, stop))
        status = ddp_run_checkpoint(run, step);
    if (status == DDP_OK && !(stop && saves))
        status = ddp_run_copy(run, stop);
    return status == DDP_OK && stop ? DDP_ERR_PREEMPTED : status;
}

/* What follows a step and its evaluation. */
static enum ddp_status end_step(struct ddp_run *run)
{
    const int64_t every = run->planned.options->sample_every;
    enum ddp_status status = ddp_record_step(run);
    if (status == DDP_OK && every > 0 && run->step % every == 0)
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
    struct ddp_preferences preferences;
    struct ddp_mode_noise noise;
    const bool has_noise = ddp_mode_noise(run->mode, &noise);
    const bool prefers = ddp_mode_preferences(run->mode, &preferences);
    ddp_train_metrics_step(run->metrics, step, (double)loss, ddp_mode_counted(run->mode),
                           prefers ? &preferences : NULL, rate, norm, has_noise ? &noise : NULL,
                           (double)ddp_mode_loss_scale(run->mode).scale,
                           ddp_loader_wait_seconds(run->loader));
    status = ddp_train_guard_step(run, step, (double)loss, norm);
    if (status == DDP_OK && run->planned.options->report.verbose)
        status = print_weights(run);
    return status;
}

/* --- after the last step ---------------------------------------------------------------------- */

static enum ddp_status write_weights(struct ddp_run *run, const char *path)
{
    const bool whole = !run->parts.fetch;
    return ddp_train_weights_save(path, run->planned.graph, whole ? run->weights : NULL,
                                  &run->parts);
}

/* On rank 0 `write` writes a file from the weights, which are fetched before, or meanwhile. */
static enum ddp_status
write_from_weights(struct ddp_run *run, const char *path,
                   enum ddp_status (*write)(struct ddp_run *run, const char *path), bool last)
{
    const bool writes = run->planned.plan.rank == 0, parts = run->parts.fetch;
    enum ddp_status status = DDP_OK;
    if (!parts)
        status = ddp_run_fetch_weights(run, writes);
    else if (!writes)
        status = ddp_run_bring_pieces(run);
    if (status != DDP_OK || !writes)
        return status;
    status = last ? ddp_run_write(run, path, write) : write(run, path);
    const enum ddp_status ended = parts ? ddp_run_end_pieces(run) : DDP_OK;
    return status == DDP_OK ? ended : status;
}

enum ddp_status ddp_run_save(struct ddp_run *run, const char *path, bool last)
{
    char shown[DDP_TEXT_SHOWN];
    const bool saves = run->planned.plan.rank == 0;
    enum ddp_status status = ddp_mode_average(run->mode);
    const int64_t begin = ddp_trace_begin();
    if (saves)
        ddp_job_report(run->job, "save", run->step > 0 ? run->step - 1 : 0);
    if (status == DDP_OK)
        status = write_from_weights(run, path, write_weights, last);
    if (!saves)
        return status;
    ddp_trace_end("save", begin, NULL, 0);
    if (status == DDP_OK && run->out)
        fprintf(run->out, "saved %s\n", ddp_text_show(shown, path));
    return status;
}

static enum ddp_status write_exported(struct ddp_run *run, const char *path)
{
    float *weights = run->weights;
    enum ddp_status status = run->parts.fetch ? ddp_run_map_weights(run, path, &weights) : DDP_OK;
    if (status != DDP_OK)
        return status;
    /* Of a part of the frozen ones nothing can be made: they are read once more. */
    status = ddp_planned_export(&run->planned, path, weights,
                                run->frozen.thin ? NULL : run->frozen.values, run->tokenizer);
    if (run->parts.fetch)
        ddp_run_unmap_weights(run, weights);
    return status;
}

/* What --export names. */
static enum ddp_status export_weights(struct ddp_run *run)
{
    char shown[DDP_TEXT_SHOWN];
    const char *path = run->planned.options->export_path;
    const bool writes = run->planned.plan.rank == 0;
    if (!path)
        return DDP_OK;
    const int64_t begin = ddp_trace_begin();
    if (writes)
        ddp_job_report(run->job, "export", run->step > 0 ? run->step - 1 : 0);
    enum ddp_status status = write_from_weights(run, path, write_exported, true);
    ddp_trace_end("export", begin, NULL, 0);
    if (status == DDP_OK && writes && run->out)
        fprintf(run->out, "exported %s\n", ddp_text_show(shown, path));
    return status;
}

/* What could not be written on rank 0 does not end the job: the others would wait, and a last
 * checkpoint is all the more welcome. */
static enum ddp_status write_results(struct ddp_run *run)
{
    enum ddp_status saved = DDP_OK, exported = DDP_OK;
    if (run->planned.options->save)
        saved = ddp_run_save(run, run->planned.options->save, true);
    if (saved == DDP_OK || saved == DDP_ERR_IO)
        exported = export_weights(run);
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

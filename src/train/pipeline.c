/* SPDX-License-Identifier: MIT
 *
 * See pipeline.h. */
#include "config.h"

#include "train/pipeline.h"

#include "core/log.h"
#include "graph/describe.h"
#include "job/job.h"
#include "train/run.h"
#include "train/summary.h"

#include <inttypes.h>
#include <string.h>

/* --- where they begin ------------------------------------------------------------------------- */

enum ddp_status ddp_run_plan_cuts(struct ddp_run *run)
{
    struct ddp_train_plan *plan = &run->plan;
    struct ddp_stages stages;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    enum ddp_status status =
        run->options->cut
            ? ddp_stages_parse(run->graph, run->options->cut, plan->stages, plan->cuts)
            : ddp_stages_estimate(run->graph, plan->stages, plan->cuts);
    return status == DDP_OK ? ddp_stages_make(&stages, run->graph, plan->stages, plan->cuts)
                            : status;
}

static enum ddp_status measure_cuts(struct ddp_run *run)
{
    struct ddp_train_plan *plan = &run->plan;
    ddp_device *device = NULL;
    ddp_job_report(run->job, "measure", 0);
    enum ddp_status status =
        ddp_device_open(&device, plan->device.name, plan->devices[0], plan->threads);
    if (status == DDP_OK)
        status = ddp_stages_balance(run->graph, device, plan->stages, plan->cuts);
    ddp_device_close(device);
    if (status == DDP_OK)
        ddp_job_report(run->job, "start", 0);
    return status;
}

/* Gradients of a weight that two pieces of a stage read come from passes of different shards: they
 * can be added in the order of accumulation when each shard has an array of its own. */
static enum ddp_status check_shared(const struct ddp_run *run, const struct ddp_stages *stages)
{
    const struct ddp_train_plan *plan = &run->plan;
    int64_t lanes = 1;
    if (stages->shared < 0 || plan->lanes / ddp_train_plan_units(plan) >= plan->local_shards)
        return DDP_OK;
    while (lanes < plan->global_shards)
        lanes *= 2;
    const char *name = ddp_graph_parameter_at(run->graph, stages->shared)->name;
    if (lanes > DDP_TRAIN_LANES)
        return ddp_fail(DDP_ERR_INVALID,
                        "--mode pipeline: two parts of the model share %s, and then each shard "
                        "needs a lane: use at most %d shards, not %" PRId64,
                        name, DDP_TRAIN_LANES, plan->global_shards);
    return ddp_fail(DDP_ERR_INVALID,
                    "--mode pipeline: two parts of the model share %s, and then each of the "
                    "%" PRId64 " shards needs a lane, and %s %" PRId64 ": %s --lanes %" PRId64,
                    name, plan->global_shards, run->is_resumed ? "the checkpoint has" : "there are",
                    plan->lanes,
                    run->is_resumed ? "resume in another mode, or train from the beginning with"
                                    : "use",
                    lanes);
}

enum ddp_status ddp_run_balance_cuts(struct ddp_run *run)
{
    struct ddp_train_plan *plan = &run->plan;
    const bool device = plan->device.host_memory || plan->device.count > 0;
    struct ddp_stages stages;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    enum ddp_status status = ddp_stages_make(&stages, run->graph, plan->stages, plan->cuts);
    if (status == DDP_OK)
        status = check_shared(run, &stages);
    if (status != DDP_OK || run->options->cut || !device)
        return status;
    if (plan->rank == 0)
        status = measure_cuts(run);
    if (status == DDP_OK)
        status = ddp_comm_broadcast(run->comm, plan->cuts, (size_t)plan->stages, DDP_I32, 0);
    if (status == DDP_OK)
        status = ddp_stages_make(&stages, run->graph, plan->stages, plan->cuts);
    return status == DDP_OK ? check_shared(run, &stages) : status;
}

/* --- what is shown ---------------------------------------------------------------------------- */

/* "h.4.ln_1 .. h.7.mlp.c_proj" */
static void name_operations(const ddp_graph *graph, const struct ddp_graph_range *range, char *text,
                            size_t size)
{
    const char *first = ddp_graph_result_name(graph, range->first);
    const char *last = ddp_graph_result_name(graph, range->end - 1);
    if (range->end - range->first == 1)
        snprintf(text, size, "%s", first);
    else
        snprintf(text, size, "%s .. %s", first, last);
}

/*   memory  of its stage; NULL: the stage has another row
 *   last    nothing crosses to a piece behind it */
static void print_piece(const struct ddp_run *run, const struct ddp_piece *piece, bool last,
                        const struct ddp_mode_memory *memory)
{
    const ddp_graph *graph = run->graph;
    char names[96], flops[32], text[2][DDP_TRAIN_BYTES];
    int64_t parameters = 0;
    double operations = 0;
    for (int n = piece->range.first; n < piece->range.end; n++) {
        struct ddp_operation operation;
        ddp_graph_describe(graph, n, &operation);
        parameters += operation.parameter_count;
        operations += ddp_graph_operation_flops(graph, n);
    }
    const size_t crosses = last ? 0
                                : ddp_graph_cut_values(graph, piece->range.end) +
                                      ddp_graph_cut_gradients(graph, piece->range.end);
    name_operations(graph, &piece->range, names, sizeof names);
    fprintf(run->out, "  %5d  %-44s %12" PRId64 " %12s %10s %10s\n", piece->stage, names,
            parameters, ddp_train_show_count(operations, "FLOP", flops, sizeof flops),
            memory ? ddp_train_show_bytes(ddp_mode_memory_total(memory), text[0]) : "",
            crosses > 0 ? ddp_train_show_bytes((double)crosses, text[1]) : "-");
}

enum ddp_status ddp_run_print_stages(const struct ddp_run *run,
                                     const struct ddp_mode_memory *memory)
{
    const struct ddp_train_plan *plan = &run->plan;
    struct ddp_stages stages;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    enum ddp_status status = ddp_stages_make(&stages, run->graph, plan->stages, plan->cuts);
    if (status != DDP_OK)
        return status;
    fprintf(run->out, "\n  %5s  %-44s %12s %12s %10s %10s\n", "stage", "operations", "parameters",
            "a shard", "memory", "crosses");
    for (int i = 0; i < stages.piece_count; i++) {
        const int stage = stages.pieces[i].stage;
        const bool first = i == 0 && stage > 0; /* of two */
        print_piece(run, &stages.pieces[i], i == stages.piece_count - 1,
                    first ? NULL : &memory[stage]);
    }
    return DDP_OK;
}

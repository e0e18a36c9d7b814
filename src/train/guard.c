/* SPDX-License-Identifier: MIT
 *
 * See guard.h. */
#include "config.h"

#include "train/guard.h"

#include "core/log.h"
#include "graph/scan.h"
#include "train/nodes.h"
#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SEARCHES    3  /* of steps that are left out only the first ones are searched */
#define SPIKE_STEPS 50 /* before them nothing is known of what is usual */
#define SPIKE_KEEP  0.98
#define SPIKE_SIGMA 10  /* a spike is this many deviations above the average, and twice of it */
#define QUIET_STEPS 100 /* after a warning */
#define EMPTY_STEPS 10  /* without a label that counts, when there was no other step */

/* Memory to run one shard once more, beside that of the mode, with the whole model. */
struct rerun {
    struct ddp_whole whole;
    ddp_device *device;
    ddp_exec *exec;
    float *gradients;
    size_t gradient_bytes;
    void *input[2]; /* staging where the device cannot read the host's memory */
    size_t input_bytes[2];
};

static void close_rerun(struct rerun *rerun)
{
    for (int i = 0; i < 2 && rerun->device; i++)
        ddp_device_free(rerun->device, rerun->input[i], rerun->input_bytes[i]);
    if (rerun->device)
        ddp_device_free(rerun->device, rerun->gradients, rerun->gradient_bytes);
    ddp_exec_destroy(rerun->exec);
    ddp_whole_close(&rerun->whole);
}

/* Of the stages of a pipeline the first one runs the shards of the replica. */
static bool reruns(const struct ddp_run *run)
{
    return ddp_whole_is_there(run) &&
           run->planned.plan.rank % ddp_train_plan_stage_workers(&run->planned.plan) == 0;
}

static enum ddp_status open_rerun(struct rerun *rerun, const struct ddp_run *run, int64_t step)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    const bool tail =
        run->planned.tail_graph && step % plan->steps_per_epoch == plan->steps_per_epoch - 1;
    const ddp_graph *graph = tail ? run->planned.tail_graph : run->planned.graph;
    rerun->device = ddp_mode_device(run->mode);
    rerun->gradient_bytes = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
    enum ddp_status status =
        ddp_exec_create(&rerun->exec, graph, rerun->device,
                        DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD, rerun->whole.weights);
    if (status == DDP_OK) {
        ddp_exec_set_weights_bf16(rerun->exec, rerun->whole.weights_bf16);
        ddp_exec_set_frozen(rerun->exec, rerun->whole.frozen->values, rerun->whole.frozen->rounded);
        status = ddp_device_alloc(rerun->device, rerun->gradient_bytes, (void **)&rerun->gradients);
    }
    for (int i = 0; status == DDP_OK && i < 2 && !ddp_device_host_memory(rerun->device); i++) {
        rerun->input_bytes[i] = ddp_exec_input_bytes(rerun->exec, i);
        if (rerun->input_bytes[i])
            status = ddp_device_alloc(rerun->device, rerun->input_bytes[i], &rerun->input[i]);
    }
    return status;
}

static enum ddp_status scan_batch(struct rerun *rerun, const struct ddp_run *run, int64_t step,
                                  const struct ddp_batch *batch, struct ddp_scan *scan)
{
    const struct ddp_exec_position position = {run->planned.options->seed, (uint32_t)step,
                                               (uint32_t)batch->shard};
    enum ddp_status status = ddp_exec_load_input(rerun->exec, 0, batch->x, rerun->input[0]);
    if (status == DDP_OK)
        status = ddp_exec_load_input(rerun->exec, 1, batch->labels, rerun->input[1]);
    if (status != DDP_OK)
        return status;
    ddp_exec_set_position(rerun->exec, &position);
    ddp_exec_set_gradients(rerun->exec, rerun->gradients);
    return ddp_exec_scan(rerun->exec, scan);
}

/* Runs this rank's shards of `step` again, up to the first finding.
 *   shard [out]  where; INT64_MAX: all of them are finite */
static enum ddp_status search(struct ddp_run *run, int64_t step, struct ddp_scan *scan,
                              int64_t *shard)
{
    struct rerun rerun = {.device = NULL};
    ddp_loader *loader = NULL;
    const int64_t shards = reruns(run) ? ddp_train_plan_process_shards(&run->planned.plan) : 0;
    enum ddp_status status = ddp_whole_open(&rerun.whole, run, shards > 0);
    if (status == DDP_OK)
        status = ddp_whole_fetch(&rerun.whole, run);
    if (status == DDP_OK && shards > 0)
        status = open_rerun(&rerun, run, step);
    if (status == DDP_OK && shards > 0)
        status = ddp_run_open_loader(run, step, 1, &loader);
    *shard = INT64_MAX;
    for (int64_t i = 0; status == DDP_OK && i < shards && *shard == INT64_MAX; i++) {
        const struct ddp_batch *batch;
        status = ddp_loader_next(loader, &batch);
        if (status != DDP_OK)
            break;
        status = scan_batch(&rerun, run, step, batch, scan);
        if (status == DDP_OK && scan->kind != DDP_SCAN_NOTHING)
            *shard = batch->shard;
        ddp_loader_release(loader, batch);
    }
    ddp_loader_destroy(loader);
    close_rerun(&rerun);
    return status;
}

/* What to do about it, by where it was found. */
static const char *advice(const struct ddp_scan *scan)
{
    switch (scan->kind) {
    case DDP_SCAN_INPUT:
        return "it is in the data";
    case DDP_SCAN_WEIGHT:
        return "it comes from an earlier update, or from the file of weights";
    case DDP_SCAN_NOTHING:
    case DDP_SCAN_OUTPUT:
    case DDP_SCAN_GRADIENT:
        break;
    }
    return "inputs and weights are finite; a lower --lr, warm-up or --clip-grad-norm may help";
}

/* Names the first tensor that went bad: the rank that has it says so, with the lowest shard.
 *   said [out]  this rank has */
static enum ddp_status explain(struct ddp_run *run, int64_t step, const char *what,
                               enum ddp_log_level level, bool *said)
{
    struct ddp_scan scan = {.kind = DDP_SCAN_NOTHING};
    char found[400], where[DDP_TRAIN_WHERE], rank[DDP_TRAIN_WHERE + 16] = "";
    int64_t shard, first;
    enum ddp_status status = search(run, step, &scan, &shard);
    if (status != DDP_OK)
        return status;
    first = shard;
    status = ddp_comm_allreduce(run->comm, &first, 1, DDP_I64, DDP_MIN);
    if (status != DDP_OK)
        return status;
    *said = first == INT64_MAX ? run->planned.plan.rank == 0 : first == shard;
    if (first == INT64_MAX && *said)
        ddp_log(level, "%s at step %" PRId64 ": each shard is finite, their sum is not", what,
                step + 1);
    if (first != INT64_MAX && *said) {
        ddp_scan_describe(&scan, found, sizeof found);
        if (run->planned.plan.nodes > 1)
            snprintf(rank, sizeof rank, " (rank %d%s)", run->planned.plan.rank,
                     ddp_run_where(run, run->planned.plan.rank, where));
        ddp_log(level, "%s at step %" PRId64 ": first in %s, shard %" PRId64 "%s: %s", what,
                step + 1, found, shard, rank, advice(&scan));
    }
    return ddp_comm_barrier(run->comm); /* no rank ends the job before it is logged */
}

/* Warns of a loss far above what was usual lately. */
static void watch_spikes(struct ddp_run *run, int64_t step, double loss)
{
    struct ddp_train_guard *guard = &run->guard;
    const double deviation = sqrt(fmax(0, guard->square - guard->mean * guard->mean));
    if (guard->seen >= SPIKE_STEPS && step >= guard->quiet_until && guard->mean > 0 &&
        loss > 2 * guard->mean && loss > guard->mean + SPIKE_SIGMA * deviation) {
        ddp_train_metrics_pause(run->metrics);
        ddp_log(DDP_LOG_WARNING,
                "loss spike: %.4g at step %" PRId64 ", where %.4g +- %.2g was usual", loss,
                step + 1, guard->mean, deviation);
        guard->quiet_until = step + QUIET_STEPS;
    }
    const double keep = guard->seen == 0 ? 0 : SPIKE_KEEP;
    guard->mean = keep * guard->mean + (1 - keep) * loss;
    guard->square = keep * guard->square + (1 - keep) * loss * loss;
    guard->seen++;
}

/* A step without a label that counts was left out. When none of the first steps has one, nothing is
 * learned: the labels are wrong. */
static enum ddp_status skip_empty(struct ddp_run *run, int64_t step)
{
    struct ddp_train_guard *guard = &run->guard;
    const bool ends =
        guard->empty_steps + 1 >= EMPTY_STEPS || step + 1 == run->planned.plan.total_steps;
    const bool fails = guard->full_steps == 0 && ends, says = run->planned.plan.rank == 0;
    const int64_t number = guard->empty_steps++;
    if (says && (number == 0 || fails))
        ddp_train_metrics_pause(run->metrics);
    if (says && number == 0 && !fails)
        ddp_log(DDP_LOG_WARNING,
                "step %" PRId64 " is skipped: none of the labels of its global batch counts",
                step + 1);
    if (!fails)
        return DDP_OK;
    if (says)
        (void)ddp_fail(DDP_ERR_INVALID,
                       "no label counts in any step up to step %" PRId64
                       ": all of them are masked; check how the data were made",
                       step + 1);
    enum ddp_status status = ddp_comm_barrier(run->comm); /* no rank ends the job before */
    if (status == DDP_OK)
        status = says ? DDP_ERR_INVALID : DDP_ERR_ABORTED;
    return status;
}

enum ddp_status ddp_train_guard_step(struct ddp_run *run, int64_t step, double loss, double norm)
{
    const bool bad_loss = !isfinite(loss);
    /* A gradient that was scaled above 1 may be finite in a later step, with a smaller scale. */
    const bool bad_norm = ddp_mode_gradient_norm(run->mode) != -1 && !isfinite(norm) &&
                          !(ddp_mode_loss_scale(run->mode).scale >= 1);
    char what[64];
    bool said;
    if (ddp_mode_counted(run->mode) == 0)
        return skip_empty(run, step);
    run->guard.full_steps++;
    if (!bad_loss && !bad_norm) {
        if (run->planned.plan.rank == 0)
            watch_spikes(run, step, loss);
        return DDP_OK;
    }
    const int64_t number = run->guard.bad_steps++;
    if (bad_loss)
        snprintf(what, sizeof what, "the loss is %g", isnan(loss) ? NAN : loss);
    else
        snprintf(what, sizeof what, "the gradient's norm is %g", isnan(norm) ? NAN : norm);
    if (run->planned.plan.rank == 0 && number < SEARCHES)
        ddp_train_metrics_pause(run->metrics);
    switch ((enum ddp_nan_kind)run->planned.options->nan) {
    case DDP_NAN_STOP: {
        enum ddp_status status = explain(run, step, what, DDP_LOG_ERROR, &said);
        if (status == DDP_OK) /* its end is the one to report */
            status = said ? DDP_ERR_DIVERGED : DDP_ERR_ABORTED;
        return status;
    }
    case DDP_NAN_SKIP:
        return number < SEARCHES ? explain(run, step, what, DDP_LOG_WARNING, &said) : DDP_OK;
    case DDP_NAN_WARN:
        if (run->planned.plan.rank == 0 && number == 0)
            ddp_log(DDP_LOG_WARNING, "%s at step %" PRId64 ": a lower --lr may help", what,
                    step + 1);
        break;
    }
    return DDP_OK;
}

void ddp_train_guard_end(const struct ddp_run *run)
{
    const struct ddp_train_guard *guard = &run->guard;
    if (run->planned.plan.rank == 0 && guard->bad_steps > 0 &&
        run->planned.options->nan == DDP_NAN_SKIP)
        ddp_log(DDP_LOG_WARNING,
                "%" PRId64 " of %" PRId64 " updates were skipped: their loss or gradient was "
                "not finite",
                guard->bad_steps, run->planned.plan.total_steps);
    if (run->planned.plan.rank == 0 && guard->empty_steps > 1 && guard->full_steps > 0)
        ddp_log(DDP_LOG_WARNING,
                "%" PRId64 " of %" PRId64 " updates were skipped: none of their labels counts",
                guard->empty_steps, run->planned.plan.total_steps);
}

/* SPDX-License-Identifier: MIT
 *
 * See summary.h. */
#include "config.h"

#include "train/summary.h"

#include "core/memory.h"
#include "core/terminal.h"
#include "core/text.h"
#include "train/run.h"

#include <inttypes.h>

/* What filling and draining the pipeline costs, and what was waited.
 *   idle  the share of the steps, on average; negative: not measured */
static void print_idle(const struct ddp_run *run, double idle, FILE *out)
{
    fprintf(out, "\npipeline bubble %.0f %% of a step",
            100 * ddp_train_plan_bubble(&run->planned.plan));
    if (idle >= 0)
        fprintf(out, ", stages idle for %.0f %% (measured)", 100 * idle);
}

/* What the job's restarts have cost. */
static void print_restarts(const struct ddp_run *run, FILE *out)
{
    const struct ddp_copy_cost cost = ddp_copy_cost(run->copy);
    const double seconds = (double)cost.ns * 1e-9;
    ddp_train_metrics_restarts(run->metrics, cost.restarts, cost.steps, seconds);
    if (cost.restarts > 0 && out)
        fprintf(out,
                "restarts %" PRId64 ", which cost %" PRId64 " step%s, computed again, and %.2f s\n",
                cost.restarts, cost.steps, cost.steps == 1 ? "" : "s", seconds);
}

static void print_loss_scale(const struct ddp_run *run, FILE *out)
{
    const struct ddp_loss_scale scale = ddp_mode_loss_scale(run->mode);
    if (scale.scale > 0)
        fprintf(out,
                "scale    the loss is multiplied by %.10g; %" PRId64 " update%s skipped, whose "
                "gradient overflowed\n",
                (double)scale.scale, scale.skipped, scale.skipped == 1 ? " was" : "s were");
}

enum ddp_status ddp_run_print_summary(struct ddp_run *run)
{
    struct ddp_memory memory;
    struct ddp_train_totals totals;
    const bool gpu = !run->planned.plan.device.host_memory;
    int64_t peak = (int64_t)ddp_memory_peak();
    char text[3][DDP_TEXT_BYTES];
    double idle = run->idle;
    enum ddp_status status = ddp_comm_allreduce(run->comm, &peak, 1, DDP_I64, DDP_MAX);
    if (status == DDP_OK && run->planned.plan.mode == DDP_MODE_PIPELINE)
        status = ddp_comm_allreduce(run->comm, &idle, 1, DDP_F64, DDP_SUM);
    ddp_train_metrics_totals(run->metrics, &totals);
    ddp_train_metrics_memory(run->metrics, (double)peak);
    if (run->copy && run->planned.plan.rank == 0)
        print_restarts(run, run->out);
    if (status != DDP_OK || !run->out || totals.steps == 0)
        return status;
    status = ddp_memory_of_mode(&run->planned, run->mode, &memory);
    if (status != DDP_OK)
        return status;
    const struct ddp_mode_memory *worker = &memory.worker;
    const double planned = (double)(worker->weights + worker->frozen + worker->gradients +
                                    worker->optimizer + worker->activations);
    const double speed = totals.flops / (totals.seconds + 1e-9);
    ddp_train_metrics_pause(run->metrics);
    struct ddp_terminal_text lines;
    FILE *out = ddp_terminal_begin(&lines, run->out);
    fprintf(out, "speed    %" PRId64 " step%s in %.2f s, %s of the model", totals.steps,
            totals.steps == 1 ? "" : "s", totals.seconds,
            ddp_train_show_count(speed, "FLOP/s", text[0], sizeof text[0]));
    if (run->planned.peak_flops > 0)
        fprintf(out, ": %.0f %% of %s", 100 * speed / run->planned.peak_flops,
                ddp_train_show_count(run->planned.peak_flops, "FLOP/s", text[1], sizeof text[1]));
    if (run->planned.plan.mode == DDP_MODE_PIPELINE)
        print_idle(run, idle / (double)run->planned.plan.world_size / (double)totals.steps, out);
    fprintf(
        out,
        gpu ? "\nmemory   %s on the host at the peak of a worker, %s on GPUs as planned; of the "
              "host's, data %s\n"
            : "\nmemory   %s at the peak of a worker: %s as planned, data %s, the rest program, "
              "libraries and buffers\n",
        ddp_text_bytes((double)peak, text[0]), ddp_text_bytes(planned, text[1]),
        ddp_text_bytes((double)ddp_dataset_info(run->planned.data)->memory_bytes, text[2]));
    print_loss_scale(run, out);
    ddp_terminal_end(&lines);
    return DDP_OK;
}

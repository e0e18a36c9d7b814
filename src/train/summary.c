/* SPDX-License-Identifier: MIT
 *
 * See summary.h. */
#include "config.h"

#include "train/summary.h"

#include "core/clock.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "train/run.h"

#include <inttypes.h>

#define PROBE_NS       INT64_C(150000000) /* how long the peak is looked for */
#define PROBE_LEAST    3                  /* products, at least */
#define PROBE_SIZE_MAX 8192               /* on GPUs; from 1024 on */
#define PROBE_SECONDS  1e-3               /* of a product at least, there */

/* --- the peak --- */

struct probe {
    int64_t size; /* of square matrices */
    ddp_device *device;
    float *memory; /* three of them, then scratch */
    size_t bytes, scratch_bytes;
};

/* As a layer of the graph has it; in bf16 activations with rounded weights. */
static enum ddp_status multiply(const struct probe *probe, const ddp_graph *graph)
{
    const bool bf16 = ddp_graph_activations(graph) == DDP_BF16;
    const size_t count = (size_t)(probe->size * probe->size);
    struct ddp_linear_forward product = {
        .rows = probe->size,
        .in = probe->size,
        .out = probe->size,
        .compute = ddp_graph_compute(graph),
        .dtype = ddp_graph_activations(graph),
        .x = probe->memory,
        .weight = probe->memory + count,
        .weight_bf16 = bf16 ? (const uint16_t *)(const void *)(probe->memory + count) : NULL,
        .y = probe->memory + 2 * count,
        .scratch = probe->scratch_bytes ? probe->memory + 3 * count : NULL,
    };
    enum ddp_status status = ddp_device_kernels(probe->device)
                                 ->linear_forward(&product, ddp_device_stream(probe->device));
    return status == DDP_OK ? ddp_device_synchronize(probe->device) : status;
}

/* The best of several products while all workers compute, in operations a second. */
static enum ddp_status run_probe(struct ddp_run *run, struct probe *probe, double *flops)
{
    int64_t best = INT64_MAX;
    enum ddp_status status = multiply(probe, run->planned.graph);
    if (status == DDP_OK)
        status = ddp_comm_barrier(run->comm);
    const int64_t end = ddp_clock_ns() + PROBE_NS;
    for (int i = 0; status == DDP_OK && (i < PROBE_LEAST || ddp_clock_ns() < end); i++) {
        const int64_t begin = ddp_clock_ns();
        status = multiply(probe, run->planned.graph);
        const int64_t taken = ddp_clock_ns() - begin;
        best = taken < best ? taken : best;
    }
    const double size = (double)probe->size;
    *flops = 2 * size * size * size / ((double)best * 1e-9 + 1e-12);
    return status;
}

static enum ddp_status measure_size(struct ddp_run *run, struct probe *probe, double *flops)
{
    const enum ddp_dtype activations = ddp_graph_activations(run->planned.graph);
    probe->scratch_bytes = ddp_linear_scratch_bytes(probe->size, probe->size, probe->size,
                                                    ddp_graph_compute(run->planned.graph),
                                                    activations, activations == DDP_BF16);
    probe->bytes = 3 * (size_t)(probe->size * probe->size) * sizeof(float) + probe->scratch_bytes;
    enum ddp_status status = ddp_device_alloc(probe->device, probe->bytes, (void **)&probe->memory);
    if (status == DDP_OK)
        status = run_probe(run, probe, flops);
    ddp_device_free(probe->device, probe->memory, probe->bytes);
    probe->memory = NULL;
    return status;
}

/* What is a large product depends on the GPU: the size grows until one takes long enough to time.
 */
static enum ddp_status measure_on(struct ddp_run *run, struct probe *probe, double *flops)
{
    for (;;) {
        enum ddp_status status = measure_size(run, probe, flops);
        double slowest = *flops;
        if (status == DDP_OK)
            status = ddp_comm_allreduce(run->comm, &slowest, 1, DDP_F64, DDP_MIN);
        const double size = (double)probe->size;
        if (status != DDP_OK || run->planned.plan.device.host_memory ||
            probe->size >= PROBE_SIZE_MAX || 2 * size * size * size > slowest * PROBE_SECONDS)
            return status;
        probe->size *= 2;
    }
}

/* The GPUs of this process. */
static int distinct_devices(const struct ddp_train_plan *plan)
{
    int count = 0;
    for (int r = 0; r < ddp_train_plan_local_devices(plan); r++) {
        bool seen = false;
        for (int before = 0; before < r; before++)
            seen = seen || plan->devices[before] == plan->devices[r];
        count += !seen;
    }
    return count;
}

enum ddp_status ddp_run_measure_peak(struct ddp_run *run)
{
    const int threads =
        run->planned.plan.threads * ddp_train_plan_local_devices(&run->planned.plan);
    struct probe probe = {.size = threads > 4 ? 2048 : 1024};
    double flops = 0;
    if (!run->planned.options->mfu)
        return DDP_OK;
    ddp_job_report(run->job, "measure", 0);
    enum ddp_status status = ddp_device_open(&probe.device, run->planned.plan.device.name,
                                             run->planned.plan.devices[0], threads);
    if (status != DDP_OK)
        return status;
    status = measure_on(run, &probe, &flops);
    ddp_device_close(probe.device);
    if (!run->planned.plan.device.host_memory)
        flops *= distinct_devices(&run->planned.plan);
    if (status == DDP_OK)
        status = ddp_comm_allreduce(run->comm, &flops, 1, DDP_F64, DDP_SUM);
    run->planned.peak_flops = flops;
    return status;
}

/* --- what is printed --- */

/* What filling and draining the pipeline costs, and what was waited.
 *   idle  the share of the steps, on average; negative: not measured */
static void print_idle(const struct ddp_run *run, double idle, FILE *out)
{
    fprintf(out, "\npipeline bubble %.0f %% of a step",
            100 * ddp_train_plan_bubble(&run->planned.plan));
    if (idle >= 0)
        fprintf(out, ", stages idle for %.0f %% (measured)", 100 * idle);
}

enum ddp_status ddp_run_print_summary(struct ddp_run *run)
{
    struct ddp_memory memory;
    struct ddp_train_totals totals;
    const bool gpu = !run->planned.plan.device.host_memory;
    int64_t peak = (int64_t)ddp_memory_peak();
    char text[3][DDP_TRAIN_BYTES];
    double idle = run->idle;
    enum ddp_status status = ddp_comm_allreduce(run->comm, &peak, 1, DDP_I64, DDP_MAX);
    if (status == DDP_OK && run->planned.plan.mode == DDP_MODE_PIPELINE)
        status = ddp_comm_allreduce(run->comm, &idle, 1, DDP_F64, DDP_SUM);
    ddp_train_metrics_totals(run->metrics, &totals);
    ddp_train_metrics_memory(run->metrics, (double)peak);
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
        ddp_train_show_bytes((double)peak, text[0]), ddp_train_show_bytes(planned, text[1]),
        ddp_train_show_bytes((double)ddp_dataset_info(run->planned.data)->memory_bytes, text[2]));
    ddp_terminal_end(&lines);
    return DDP_OK;
}

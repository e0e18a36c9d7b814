/* SPDX-License-Identifier: MIT
 *
 * See plan_memory.h. */
#include "config.h"

#include "train/plan_memory.h"

#include "core/terminal.h"
#include "train/best.h"
#include "train/pipeline.h"
#include "train/run.h"
#include "train/summary.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Of a GPU that is not here: CUDA's, cuBLAS' and NCCL's own memory, and cuDNN's workspace. */
#define UNSEEN_GPU_USED          1e9
#define UNSEEN_WORKSPACE(memory) fmin(512.0 * 0x1p20, (memory) / 64)

static bool is_gpu(const struct ddp_run *run)
{
    return !run->plan.device.host_memory;
}

/* A cell of 10 columns; nothing is "-". */
static const char *cell(double bytes, char text[DDP_TRAIN_BYTES])
{
    return bytes > 0 ? ddp_train_show_bytes(bytes, text) : "-";
}

static const char *column_of_unit(const struct ddp_run *run)
{
    return is_gpu(run)                                    ? "GPU"
           : ddp_train_plan_local_devices(&run->plan) > 1 ? "process"
                                                          : "worker";
}

static void print_row(const struct ddp_run *run, const char *name, double unit, double host)
{
    char text[2][DDP_TRAIN_BYTES];
    fprintf(run->out, "  %-14s %10s %10s\n", name, cell(unit, text[0]), cell(host, text[1]));
}

static void print_limits(const struct ddp_run *run, const struct ddp_memory *memory,
                         const struct ddp_memory_limits *limits)
{
    char unit[DDP_TRAIN_BYTES], host[DDP_TRAIN_BYTES];
    const bool gpu = is_gpu(run) && isfinite(limits->unit);
    fprintf(run->out, "  %-14s %10s", "there is", gpu ? cell(limits->unit, unit) : "");
    if (isfinite(limits->host))
        fprintf(run->out, " %10s", cell(limits->host, host));
    if (!ddp_memory_fits(&run->plan, memory, limits))
        fputs("  DOES NOT FIT", run->out);
    fputc('\n', run->out);
}

static void print_parts(const struct ddp_run *run, const struct ddp_memory *memory,
                        const struct ddp_memory_limits *limits)
{
    const char *host = is_gpu(run) ? "host" : run->plan.nodes > 1 ? "node" : "machine";
    fprintf(run->out, "\n  %-14s %10s %10s\n", "memory of", column_of_unit(run), host);
    for (int part = 0; part < DDP_MEMORY_PARTS; part++)
        if (memory->unit[part] > 0 || memory->host[part] > 0)
            print_row(run, ddp_memory_part_names[part], memory->unit[part], memory->host[part]);
    print_row(run, "total", memory->unit_total, memory->host_total);
    print_limits(run, memory, limits);
}

/* What a step moves, and where to. */
static void print_traffic(const struct ddp_run *run, const struct ddp_mode_traffic *traffic)
{
    const struct ddp_train_plan *plan = &run->plan;
    const bool dp = plan->mode == DDP_MODE_DP, pipeline = plan->mode == DDP_MODE_PIPELINE;
    char text[4][DDP_TRAIN_BYTES];
    const double total = ddp_mode_traffic_total(traffic);
    if (total <= 0) {
        fprintf(run->out, "\nexchange nothing: one %s\n", dp ? "replica" : "worker");
        return;
    }
    struct ddp_terminal_text line;
    FILE *out = ddp_terminal_begin(&line, run->out);
    fprintf(out, "\nexchange %s a step %s: ", ddp_train_show_bytes(total, text[0]),
            dp         ? "between master and replicas"
            : pipeline ? "sent by each stage on average"
                       : "sent by each worker");
    if (pipeline)
        fprintf(out, "activations and their gradients %s, ",
                ddp_train_show_bytes(traffic->scattered, text[3]));
    fprintf(out, "gradients %s", ddp_train_show_bytes(traffic->gradients, text[1]));
    if (traffic->weights > 0)
        fprintf(out, ", weights %s", ddp_train_show_bytes(traffic->weights, text[2]));
    if (plan->shared_weights)
        fputs(plan->nodes > 1 ? "; weights are one copy a node" : "; weights are one copy", out);
    if (dp && traffic->scattered > 0)
        fprintf(out, ", samples and outputs %s", ddp_train_show_bytes(traffic->scattered, text[3]));
    if (traffic->between > 0)
        fprintf(out, "; each node sends %s to others",
                ddp_train_show_bytes(traffic->between, text[3]));
    fputc('\n', out);
    ddp_terminal_end(&line);
}

static enum ddp_status print_largest(const struct ddp_run *run,
                                     const struct ddp_memory_limits *limits)
{
    struct ddp_train_plan plan = run->plan;
    struct ddp_memory memory;
    char text[DDP_TRAIN_BYTES];
    int64_t batch;
    const double limit = is_gpu(run) ? limits->unit : limits->host;
    if (!isfinite(limit))
        return DDP_OK;
    enum ddp_status status =
        ddp_memory_largest_batch(run, &plan, &run->model_config, limits, &memory, &batch);
    if (status != DDP_OK)
        return status;
    const char *where = is_gpu(run) ? "a GPU" : "this machine";
    ddp_train_show_bytes(limit, text);
    if (batch == 0)
        ddp_terminal_print(run->out, "largest  not even --batch-size 1 fits %s of %s\n", where,
                           text);
    else if (!ddp_dataset_info(run->data)->planned &&
             batch == ddp_sampler_shard_samples(&plan.sampler))
        ddp_terminal_print(
            run->out, "largest  --batch-size %" PRId64 ", all samples of a shard, fits %s of %s\n",
            batch, where, text);
    else
        ddp_terminal_print(run->out,
                           "largest  --batch-size %" PRId64 " is the largest that fits %s of %s\n",
                           batch, where, text);
    return DDP_OK;
}

/* The device's words, as far as there is one; what a GPU has and holds already. */
static enum ddp_status look_at_device(struct ddp_run *run, struct ddp_memory_limits *limits,
                                      char *description, size_t size)
{
    const struct ddp_train_plan *plan = &run->plan;
    ddp_device *device = NULL;
    enum ddp_status status = DDP_OK;
    snprintf(description, size, "none is here");
    if (plan->device.host_memory || plan->device.count > 0)
        status = ddp_device_open(&device, plan->device.name, plan->devices[0], 1);
    if (status != DDP_OK)
        return status;
    if (device)
        snprintf(description, size, "%s", ddp_device_describe(device));
    ddp_memory_of_device(device, limits, &run->device_bytes);
    ddp_device_close(device);
    if (run->options->plan_memory > 0) {
        limits->unit = is_gpu(run) ? run->options->plan_memory : INFINITY;
        limits->host = is_gpu(run) ? INFINITY : run->options->plan_memory;
    }
    if (!device)
        run->device_bytes = UNSEEN_GPU_USED + UNSEEN_WORKSPACE(limits->unit);
    return DDP_OK;
}

static enum ddp_status print_all(struct ddp_run *run)
{
    struct ddp_memory_limits limits;
    struct ddp_memory memory;
    char description[320];
    enum ddp_status status = look_at_device(run, &limits, description, sizeof description);
    if (status == DDP_OK)
        status = ddp_memory_choose_zero(run, &limits);
    if (status == DDP_OK)
        status = ddp_memory_plan(run, &run->plan, &run->model_config, &memory);
    if (status != DDP_OK)
        return status;
    ddp_train_plan_print(&run->plan, run->options, ddp_dataset_info(run->data), run->graph,
                         memory.stages, description, run->out);
    ddp_run_print_compute(run);
    ddp_run_evaluation_print(run);
    ddp_run_resume_print(run);
    status = ddp_run_print_stages(run, memory.stages);
    if (status != DDP_OK)
        return status;
    print_parts(run, &memory, &limits);
    print_traffic(run, &memory.traffic);
    status = print_largest(run, &limits);
    return status == DDP_OK && run->options->plan_memory > 0
               ? ddp_run_print_plan_table(run, &limits)
               : status;
}

enum ddp_status ddp_run_print_plan(struct ddp_run *run)
{
    enum ddp_status status = ddp_run_measure_peak(run);
    return status == DDP_OK && run->out ? print_all(run) : status;
}

/* SPDX-License-Identifier: MIT
 *
 * What --plan prints beside the plan itself: operations, memory, traffic, what would fit. */
#include "config.h"

#include "plan/planned.h"

#include "core/terminal.h"
#include "core/text.h"
#include "graph/describe.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Of a GPU that is not here: CUDA's, cuBLAS' and NCCL's own memory. */
#define UNSEEN_GPU_USED 1e9

/* --- operations --- */

double ddp_planned_step_flops(const struct ddp_planned *planned, const ddp_graph *graph)
{
    const double filled = ddp_dataset_info(planned->data)->filled; /* such rows are packed */
    return ddp_graph_flops(graph) * (double)planned->plan.global_shards * (filled > 0 ? filled : 1);
}

const char *ddp_train_show_count(double value, const char *unit, char *text, size_t size)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    int prefix = 0;
    for (; value >= 999.5 && prefix < 6; prefix++)
        value /= 1000;
    snprintf(text, size, "%.*f %s%s",
             value < 9.995   ? 2
             : value < 99.95 ? 1
                             : 0,
             value, prefixes[prefix], unit);
    return text;
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

/* What NVIDIA says of dense bf16 products. The first name that is part of the device's counts. */
void ddp_planned_know_peak(struct ddp_planned *planned, const char *description)
{
    static const struct {
        const char *name;
        double flops;
    } peaks[] = {{"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989.4e12},
                 {"H200", 989.4e12},    {"B200", 2250e12},    {"A100", 312e12},
                 {"L40S", 362e12},      {"RTX 4090", 165e12}, {"RTX 3090", 71e12}};
    const struct ddp_train_plan *plan = &planned->plan;
    const int sharing = plan->gpu_workers > 1 ? plan->gpu_workers : 1;
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++)
        if (planned->model_config.compute == DDP_BF16 && planned->peak_flops == 0 &&
            strstr(description, peaks[i].name))
            planned->peak_flops =
                peaks[i].flops * distinct_devices(plan) * plan->world_size / sharing;
}

static void print_operations(const struct ddp_planned *planned, FILE *out)
{
    char flops[32], parameters[32];
    fprintf(out, "%-22s %-28s %-22s %12s %14s\n", "operation", "output", "shape", "parameters",
            "forward");
    for (int i = 0; i < ddp_graph_operation_count(planned->graph); i++) {
        struct ddp_operation operation;
        char shape[96] = "";
        ddp_graph_describe(planned->graph, i, &operation);
        for (int d = 0; d < operation.dim_count; d++) {
            const size_t used = strlen(shape);
            snprintf(shape + used, sizeof shape - used, "%s%" PRId64, d ? " x " : "",
                     operation.dims[d]);
        }
        snprintf(parameters, sizeof parameters, "%" PRId64, operation.parameter_count);
        fprintf(out, "%-22s %-28s %-22s %12s %14s\n", operation.name, operation.output, shape,
                operation.parameter_count ? parameters : "",
                operation.flops > 0
                    ? ddp_train_show_count(operation.flops, "FLOP", flops, sizeof flops)
                    : "");
    }
}

void ddp_planned_print_compute(const struct ddp_planned *planned, FILE *to)
{
    const double step = ddp_planned_step_flops(planned, planned->graph);
    char text[3][32];
    struct ddp_terminal_text line;
    FILE *out = ddp_terminal_begin(&line, to);
    fprintf(out, "compute  %s a step, %s a sample",
            ddp_train_show_count(step, "FLOP", text[0], sizeof text[0]),
            ddp_train_show_count(
                step / (double)(planned->plan.batch_size * planned->plan.global_shards), "FLOP",
                text[1], sizeof text[1]));
    if (planned->peak_flops > 0)
        fprintf(out, ", of %s that the GPUs can do",
                ddp_train_show_count(planned->peak_flops, "FLOP/s", text[2], sizeof text[2]));
    fputc('\n', out);
    ddp_terminal_end(&line);
    if (planned->options->plan && planned->options->report.verbose)
        print_operations(planned, to);
    fflush(to);
}

void ddp_planned_print_copies(const struct ddp_planned *planned, FILE *to)
{
    const int64_t every = planned->options->copy_every;
    char text[DDP_TEXT_BYTES];
    if (!planned->plan.copies)
        return;
    struct ddp_terminal_text line;
    FILE *out = ddp_terminal_begin(&line, to);
    fprintf(out, "restarts from two copies of the state in memory, %s together, made in turn ",
            ddp_text_bytes(ddp_memory_of_copies(&planned->plan, planned->graph), text));
    if (every > 0)
        fprintf(out, "every %" PRId64 " step%s\n", every, every == 1 ? "" : "s");
    else
        fputs("as often as 2 % of the time allows\n", out);
    ddp_terminal_end(&line);
}

/* --- stages --- */

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
static void print_piece(const ddp_graph *graph, const struct ddp_piece *piece, bool last,
                        const struct ddp_mode_memory *memory, FILE *out)
{
    char names[96], flops[32], text[2][DDP_TEXT_BYTES];
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
    fprintf(out, "  %5d  %-44s %12" PRId64 " %12s %10s %10s\n", piece->stage, names, parameters,
            ddp_train_show_count(operations, "FLOP", flops, sizeof flops),
            memory ? ddp_text_bytes(ddp_mode_memory_total(memory), text[0]) : "",
            crosses > 0 ? ddp_text_bytes((double)crosses, text[1]) : "-");
}

static enum ddp_status print_stages(const struct ddp_planned *planned,
                                    const struct ddp_mode_memory *memory, FILE *out)
{
    const struct ddp_train_plan *plan = &planned->plan;
    struct ddp_stages stages;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    enum ddp_status status = ddp_stages_make(&stages, planned->graph, plan->stages, plan->cuts);
    if (status != DDP_OK)
        return status;
    fprintf(out, "\n  %5s  %-44s %12s %12s %10s %10s\n", "stage", "operations", "parameters",
            "a shard", "memory", "crosses");
    for (int i = 0; i < stages.piece_count; i++) {
        const int stage = stages.pieces[i].stage;
        const bool first = i == 0 && stage > 0; /* of two */
        print_piece(planned->graph, &stages.pieces[i], i == stages.piece_count - 1,
                    first ? NULL : &memory[stage], out);
    }
    return DDP_OK;
}

/* --- memory --- */

static bool is_gpu(const struct ddp_planned *planned)
{
    return !planned->plan.device.host_memory;
}

/* A cell of 10 columns; nothing is "-". */
static const char *cell(double bytes, char text[DDP_TEXT_BYTES])
{
    return bytes > 0 ? ddp_text_bytes(bytes, text) : "-";
}

static const char *column_of_unit(const struct ddp_planned *planned)
{
    return is_gpu(planned)                                    ? "GPU"
           : ddp_train_plan_local_devices(&planned->plan) > 1 ? "process"
                                                              : "worker";
}

static void print_row(const char *name, double unit, double host, FILE *out)
{
    char text[2][DDP_TEXT_BYTES];
    fprintf(out, "  %-14s %10s %10s\n", name, cell(unit, text[0]), cell(host, text[1]));
}

static void print_limits(const struct ddp_planned *planned, const struct ddp_memory *memory,
                         const struct ddp_memory_limits *limits, FILE *out)
{
    char unit[DDP_TEXT_BYTES], host[DDP_TEXT_BYTES];
    const bool gpu = is_gpu(planned) && isfinite(limits->unit);
    fprintf(out, "  %-14s %10s", "there is", gpu ? cell(limits->unit, unit) : "");
    if (isfinite(limits->host))
        fprintf(out, " %10s", cell(limits->host, host));
    if (!ddp_memory_fits(&planned->plan, memory, limits))
        fputs("  DOES NOT FIT", out);
    fputc('\n', out);
}

static void print_parts(const struct ddp_planned *planned, const struct ddp_memory *memory,
                        const struct ddp_memory_limits *limits, FILE *out)
{
    const char *host = is_gpu(planned) ? "host" : planned->plan.nodes > 1 ? "node" : "machine";
    fprintf(out, "\n  %-14s %10s %10s\n", "memory of", column_of_unit(planned), host);
    for (int part = 0; part < DDP_MEMORY_PARTS; part++)
        if (memory->unit[part] > 0 || memory->host[part] > 0)
            print_row(ddp_memory_part_names[part], memory->unit[part], memory->host[part], out);
    print_row("total", memory->unit_total, memory->host_total, out);
    print_limits(planned, memory, limits, out);
}

/* What a step moves, and where to. */
static void print_traffic(const struct ddp_planned *planned, const struct ddp_mode_traffic *traffic,
                          FILE *to)
{
    const struct ddp_train_plan *plan = &planned->plan;
    const bool dp = plan->mode == DDP_MODE_DP, pipeline = plan->mode == DDP_MODE_PIPELINE;
    char text[4][DDP_TEXT_BYTES];
    const double total = ddp_mode_traffic_total(traffic);
    if (total <= 0) {
        fprintf(to, "\nexchange nothing: one %s\n", dp ? "replica" : "worker");
        return;
    }
    struct ddp_terminal_text line;
    FILE *out = ddp_terminal_begin(&line, to);
    fprintf(out, "\nexchange %s a step %s: ", ddp_text_bytes(total, text[0]),
            dp         ? "between master and replicas"
            : pipeline ? "sent by each stage on average"
                       : "sent by each worker");
    if (pipeline)
        fprintf(out, "activations and their gradients %s, ",
                ddp_text_bytes(traffic->scattered, text[3]));
    fprintf(out, "gradients %s", ddp_text_bytes(traffic->gradients, text[1]));
    if (traffic->weights > 0)
        fprintf(out, ", weights %s", ddp_text_bytes(traffic->weights, text[2]));
    if (plan->thin_weights)
        fputs("; weights are split over the nodes", out);
    else if (plan->shared_weights)
        fputs(plan->nodes > 1 ? "; weights are one copy a node" : "; weights are one copy", out);
    if (dp && traffic->scattered > 0)
        fprintf(out, ", samples and outputs %s", ddp_text_bytes(traffic->scattered, text[3]));
    if (traffic->between > 0)
        fprintf(out, "; each node sends up to %s to others",
                ddp_text_bytes(traffic->between, text[3]));
    fputc('\n', out);
    ddp_terminal_end(&line);
}

static enum ddp_status print_largest(const struct ddp_planned *planned,
                                     const struct ddp_memory_limits *limits, FILE *out)
{
    struct ddp_train_plan plan = planned->plan;
    struct ddp_memory memory;
    char text[DDP_TEXT_BYTES];
    int64_t batch;
    const double limit = is_gpu(planned) ? limits->unit : limits->host;
    if (!isfinite(limit))
        return DDP_OK;
    enum ddp_status status =
        ddp_memory_largest_batch(planned, &plan, &planned->model_config, limits, &memory, &batch);
    if (status != DDP_OK)
        return status;
    const char *where = is_gpu(planned) ? "a GPU" : "this machine";
    ddp_text_bytes(limit, text);
    if (batch == 0)
        ddp_terminal_print(out, "largest  not even --batch-size 1 fits %s of %s\n", where, text);
    else if (!ddp_dataset_info(planned->data)->planned &&
             batch == ddp_sampler_shard_samples(&plan.sampler))
        ddp_terminal_print(
            out, "largest  --batch-size %" PRId64 ", all samples of a shard, fits %s of %s\n",
            batch, where, text);
    else
        ddp_terminal_print(out,
                           "largest  --batch-size %" PRId64 " is the largest that fits %s of %s\n",
                           batch, where, text);
    return DDP_OK;
}

/* The device's words, as far as there is one; what a GPU has and holds already. */
static enum ddp_status look_at_device(struct ddp_planned *planned, struct ddp_memory_limits *limits,
                                      char *description, size_t size)
{
    const struct ddp_train_plan *plan = &planned->plan;
    ddp_device *device = NULL;
    enum ddp_status status = DDP_OK;
    snprintf(description, size, "none is here");
    if (plan->device.host_memory || plan->device.count > 0)
        status = ddp_device_open(&device, plan->device.name, plan->devices[0], 1);
    if (status != DDP_OK)
        return status;
    if (device)
        snprintf(description, size, "%s", ddp_device_describe(device));
    ddp_memory_of_device(device, limits, &planned->device_bytes);
    ddp_device_close(device);
    if (planned->options->plan_memory > 0) {
        limits->unit = is_gpu(planned) ? planned->options->plan_memory : INFINITY;
        limits->host = is_gpu(planned) ? INFINITY : planned->options->plan_memory;
    }
    if (!device)
        planned->device_bytes = UNSEEN_GPU_USED;
    return DDP_OK;
}

enum ddp_status ddp_planned_look(struct ddp_planned *planned, struct ddp_memory_limits *limits,
                                 struct ddp_memory *memory, char description[DDP_PLANNED_DEVICE])
{
    enum ddp_status status = look_at_device(planned, limits, description, DDP_PLANNED_DEVICE);
    if (status == DDP_OK)
        status = ddp_memory_choose_zero(planned, limits);
    if (status == DDP_OK)
        ddp_planned_know_peak(planned, description);
    return status == DDP_OK
               ? ddp_memory_plan(planned, &planned->plan, &planned->model_config, memory)
               : status;
}

enum ddp_status ddp_planned_print_needs(const struct ddp_planned *planned,
                                        const struct ddp_memory *memory,
                                        const struct ddp_memory_limits *limits, FILE *out)
{
    enum ddp_status status = print_stages(planned, memory->stages, out);
    if (status != DDP_OK)
        return status;
    print_parts(planned, memory, limits, out);
    print_traffic(planned, &memory->traffic, out);
    status = print_largest(planned, limits, out);
    return status == DDP_OK && planned->options->plan_memory > 0
               ? ddp_planned_print_table(planned, limits, out)
               : status;
}

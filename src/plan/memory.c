/* SPDX-License-Identifier: MIT
 *
 * See memory.h. */
#include "config.h"

#include "plan/memory.h"

#include "checkpoint/copy.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "mode/lanes.h"
#include "plan/evaluation.h"
#include "plan/planned.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#define BATCH_MAX     1000000 /* the largest --batch-size */
#define SCRATCH_LEAST (1 << 20)
#define SCRATCH_GRAIN 256
#define WHOLE_SHARE   0.95 /* of a GPU: as much as is planned may be taken without need */

const char *const ddp_memory_part_names[] = {
    "weights",    "frozen weights", "gradients", "optimizer", "activations", "inputs",
    "evaluation", "exchange",       "batches",   "data",      "copies",      "program"};

/* --- one run ---------------------------------------------------------------------------------- */

static int processes_of(const struct ddp_train_plan *plan)
{
    return plan->mode == DDP_MODE_DP ? 1 : plan->world_size;
}

/* ... on one machine. */
static int node_processes_of(const struct ddp_train_plan *plan)
{
    return plan->mode == DDP_MODE_DP ? 1 : plan->node_workers;
}

static void set_mode_parts(double parts[], const struct ddp_mode_memory *memory, double times)
{
    parts[DDP_MEMORY_WEIGHTS] = times * (double)memory->weights;
    parts[DDP_MEMORY_FROZEN] = times * (double)memory->frozen;
    parts[DDP_MEMORY_GRADIENTS] = times * (double)memory->gradients;
    parts[DDP_MEMORY_OPTIMIZER] = times * (double)memory->optimizer;
    parts[DDP_MEMORY_ACTIVATIONS] = times * (double)memory->activations;
    parts[DDP_MEMORY_INPUTS] = times * (double)memory->inputs;
}

/* One process with several GPUs: all replicas or stages on one device, of the device that holds
 * most. */
static enum ddp_status fullest_device(const struct ddp_mode_setup *setup,
                                      const struct ddp_mode_place *place, int count,
                                      struct ddp_mode_memory *fullest)
{
    enum ddp_status status = DDP_OK;
    for (int first = 0; status == DDP_OK && first < count; first++) {
        struct ddp_mode_memory memory = {0};
        for (int r = first; status == DDP_OK && r < count; r++)
            if (setup->devices[r] == setup->devices[first])
                status = ddp_mode_plan_memory(setup, place, r, &memory);
        if (status == DDP_OK && ddp_mode_memory_total(&memory) > ddp_mode_memory_total(fullest))
            *fullest = memory;
    }
    return status;
}

static struct ddp_mode_place place_of(const struct ddp_train_plan *plan,
                                      const struct ddp_mode_setup *setup)
{
    return (struct ddp_mode_place){
        .kind = plan->mode,
        .workers = processes_of(plan),
        .nodes = plan->nodes,
        .node_workers = plan->node_workers,
        .starts = plan->starts,
        .fast = setup->fast,
        .host_memory = plan->device.host_memory,
    };
}

static void add_memory(struct ddp_mode_memory *sum, const struct ddp_mode_memory *memory)
{
    sum->weights += memory->weights;
    sum->frozen += memory->frozen;
    sum->gradients += memory->gradients;
    sum->optimizer += memory->optimizer;
    sum->activations += memory->activations;
    sum->locked += memory->locked;
    sum->inputs += memory->inputs;
}

/* Each stage of a pipeline, and the worker that holds most, which may have all of them.
 *   all [out]  of all workers that are a replica together */
static enum ddp_status plan_workers(const struct ddp_train_plan *plan,
                                    const struct ddp_mode_setup *setup,
                                    const struct ddp_mode_place *place, struct ddp_memory *memory,
                                    struct ddp_mode_memory *all)
{
    enum ddp_status status = DDP_OK;
    *all = memory->worker = (struct ddp_mode_memory){0};
    if (plan->mode != DDP_MODE_PIPELINE) {
        status = ddp_mode_plan_memory(setup, place, -1, &memory->worker);
        *all = memory->stages[0] = memory->worker;
        return status;
    }
    for (int s = 0; status == DDP_OK && s < plan->stages; s++) {
        memory->stages[s] = (struct ddp_mode_memory){0};
        status = ddp_mode_plan_memory(setup, place, s, &memory->stages[s]);
        add_memory(all, &memory->stages[s]);
        if (ddp_mode_memory_total(&memory->stages[s]) > ddp_mode_memory_total(&memory->worker))
            memory->worker = memory->stages[s];
    }
    if (plan->world_size == 1)
        memory->worker = *all;
    return status;
}

enum ddp_status ddp_memory_of_mode(const struct ddp_planned *planned, const ddp_mode *mode,
                                   struct ddp_memory *memory)
{
    struct ddp_mode_memory all;
    const struct ddp_mode_setup setup =
        ddp_planned_setup(planned, &planned->plan, planned->graph, planned->tail_graph,
                          planned->model_config.compute);
    const struct ddp_mode_place place = place_of(&planned->plan, &setup);
    if (planned->plan.mode == DDP_MODE_PIPELINE)
        return plan_workers(&planned->plan, &setup, &place, memory, &all);
    memory->worker = (struct ddp_mode_memory){0};
    enum ddp_status status = ddp_mode_memory(mode, &memory->worker);
    memory->stages[0] = memory->worker;
    return status;
}

static enum ddp_status add_mode(const struct ddp_train_plan *plan,
                                const struct ddp_mode_setup *setup, struct ddp_memory *memory)
{
    const struct ddp_mode_place place = place_of(plan, setup);
    const int count = ddp_train_plan_local_devices(plan);
    struct ddp_mode_memory all;
    enum ddp_status status = plan_workers(plan, setup, &place, memory, &all);
    if (status != DDP_OK)
        return status;
    ddp_mode_plan_traffic(setup, &place, &memory->traffic);
    const double teams =
        (double)node_processes_of(plan) / (double)ddp_train_plan_stage_workers(plan);
    if (place.host_memory) {
        set_mode_parts(memory->unit, &memory->worker, 1);
        set_mode_parts(memory->host, &all, teams);
        return DDP_OK;
    }
    memory->host[DDP_MEMORY_GRADIENTS] = teams * (double)all.locked;
    if (count > 1) {
        struct ddp_mode_memory fullest = {0};
        status = fullest_device(setup, &place, count, &fullest);
        set_mode_parts(memory->unit, &fullest, 1);
        return status;
    }
    set_mode_parts(memory->unit, &memory->worker, plan->gpu_workers > 1 ? plan->gpu_workers : 1);
    return DDP_OK;
}

/* NCCL adds sums up in a fixed tree: a rank receives the others' parts of its slice of a bucket
 * (cuda/nccl_exchange.c), unless NCCL reduces itself. Its own buffers are not known. */
static double scratch_bytes(const struct ddp_train_plan *plan, const struct ddp_mode_setup *setup,
                            bool fast)
{
    const int workers = processes_of(plan) / ddp_train_plan_stage_workers(plan);
    const double flat = (double)ddp_graph_flat_count(setup->graph) * sizeof(float);
    if (workers == 1 || plan->device.host_memory || fast)
        return 0;
    const double bucket = fmin(flat, (double)setup->bucket_bytes);
    const int arrays = ddp_lanes_room(plan->global_shards, plan->lanes, workers).exchanged;
    const double needed = (ceil(bucket / workers) + SCRATCH_GRAIN) * (arrays - 1);
    double room = SCRATCH_LEAST;
    while (room < needed)
        room *= 2;
    return room;
}

static enum ddp_status add_evaluation(const struct ddp_planned *planned,
                                      const struct ddp_train_plan *plan,
                                      const struct ddp_model_config *config,
                                      struct ddp_memory *memory)
{
    const bool host_memory = plan->device.host_memory;
    const int stages = ddp_train_plan_stage_workers(plan); /* each has a part of the network */
    size_t device = 0, host = 0;
    if (!planned->test || ddp_dataset_info(planned->test)->label_count == 0)
        return DDP_OK;
    struct ddp_dataset_info test = *ddp_dataset_info(planned->test);
    if (planned->plan.eval_samples < test.sample_count)
        test.sample_count = planned->plan.eval_samples;
    const struct ddp_model_config own = ddp_evaluation_config(config, planned->test);
    enum ddp_status status = ddp_evaluation_memory(
        plan->model, &own, &test, processes_of(plan) / stages, host_memory, &device, &host);
    device /= (size_t)stages;
    memory->unit[DDP_MEMORY_EVALUATION] = (double)device + (host_memory ? (double)host : 0);
    memory->host[DDP_MEMORY_EVALUATION] =
        node_processes_of(plan) * ((double)host + (host_memory ? (double)device : 0));
    return status;
}

/* Weights and state, as a checkpoint or a copy in memory has them. */
static int snapshot_arrays(const struct ddp_train_plan *plan)
{
    int states = 0;
    (void)ddp_optimizer_states(&plan->optimizer, &states);
    if (plan->local.every <= 1)
        return 1 + states;
    /* Each worker's, and the outer ones. */
    const int workers = processes_of(plan) > 1 ? processes_of(plan) : 0;
    return (1 + workers) * (1 + states) + (plan->local.outer ? 2 : 0);
}

double ddp_memory_of_copies(const struct ddp_train_plan *plan, const ddp_graph *graph)
{
    const size_t flat = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
    return plan->copies ? (double)ddp_copy_bytes(snapshot_arrays(plan), flat) : 0;
}

/* Checkpoints are written from a copy of weights and state, the other files from one of the
 * weights, or all of them from pieces; a GPU's weights are made in the host's memory. All of that
 * is rank 0's, as are the copies that a restart begins with. */
static double copies_bytes(const struct ddp_planned *planned, const struct ddp_train_plan *plan,
                           const struct ddp_mode_setup *setup)
{
    const struct ddp_train_options *options = planned->options;
    const double flat = (double)ddp_graph_flat_count(setup->graph) * sizeof(float);
    const double kept = ddp_memory_of_copies(plan, setup->graph);
    if (ddp_train_plan_in_parts(plan) && plan->device.host_memory)
        return kept + (options->checkpoint ? (double)(setup->bucket_bytes + DDP_FLAT_PIECE) : 0);
    if (options->checkpoint && !ddp_train_plan_in_parts(plan))
        return kept + snapshot_arrays(plan) * flat;
    return kept + (options->save || options->export_path || !plan->device.host_memory ? flat : 0);
}

/* What a process holds in the host's memory whatever its mode. */
static void add_process(const struct ddp_planned *planned, const struct ddp_train_plan *plan,
                        const struct ddp_mode_setup *setup, struct ddp_memory *memory)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(planned->data);
    const int64_t shards = ddp_train_plan_process_shards(plan);
    int depth = ddp_train_plan_loader_depth(plan);
    if (depth == 0)
        depth = (int)shards * 2 + (int)planned->options->data_threads;
    const double orders = plan->sampler.shuffle ? 2.0 * sizeof(uint32_t) : 0;
    const double each[] = {
        [DDP_MEMORY_BATCHES] = (double)ddp_loader_slot_bytes(info, plan->batch_size) * depth +
                               orders * (double)info->sample_count,
        [DDP_MEMORY_DATA] = (double)info->memory_bytes,
        [DDP_MEMORY_COPIES] = copies_bytes(planned, plan, setup),
        [DDP_MEMORY_PROGRAM] = (double)planned->program_bytes,
    };
    const bool host = plan->device.host_memory;
    for (int part = DDP_MEMORY_BATCHES; part < DDP_MEMORY_PARTS; part++) {
        const bool once = part == DDP_MEMORY_COPIES;
        memory->host[part] = each[part] * (once ? 1 : node_processes_of(plan));
        memory->unit[part] = host ? each[part] : 0;
    }
    if ((planned->options->checkpoint || plan->copies) &&
        plan->local.every > 1) /* the others' way to rank 0 */
        memory->host[DDP_MEMORY_COPIES] += (node_processes_of(plan) - 1) *
                                           (double)ddp_graph_flat_count(setup->graph) *
                                           sizeof(float);
    memory->unit[DDP_MEMORY_EXCHANGE] = scratch_bytes(plan, setup, planned->options->fast);
    if (!host)
        memory->unit[DDP_MEMORY_PROGRAM] = planned->device_bytes;
}

static enum ddp_status add_all(const struct ddp_planned *planned, const struct ddp_train_plan *plan,
                               const struct ddp_model_config *config,
                               const struct ddp_mode_setup *setup, struct ddp_memory *memory)
{
    enum ddp_status status = add_mode(plan, setup, memory);
    if (status == DDP_OK)
        status = add_evaluation(planned, plan, config, memory);
    if (status != DDP_OK)
        return status;
    add_process(planned, plan, setup, memory);
    for (int part = 0; part < DDP_MEMORY_PARTS; part++) {
        memory->unit_total += memory->unit[part];
        memory->host_total += memory->host[part];
    }
    return DDP_OK;
}

enum ddp_status ddp_memory_plan(const struct ddp_planned *planned,
                                const struct ddp_train_plan *plan,
                                const struct ddp_model_config *config, struct ddp_memory *memory)
{
    struct ddp_model_config whole = *config, tail = *config;
    ddp_graph *graph = NULL, *tail_graph = NULL;
    *memory = (struct ddp_memory){0};
    whole.batch = plan->batch_size;
    tail.batch = plan->tail_rows;
    enum ddp_status status = ddp_model_build(&graph, plan->model, &whole);
    if (status == DDP_OK && ddp_train_plan_has_tail(plan))
        status = ddp_model_build(&tail_graph, plan->model, &tail);
    if (status == DDP_OK) {
        const struct ddp_mode_setup setup =
            ddp_planned_setup(planned, plan, graph, tail_graph, config->compute);
        status = add_all(planned, plan, &whole, &setup, memory);
    }
    ddp_graph_destroy(tail_graph);
    ddp_graph_destroy(graph);
    return status;
}

/* --- does it fit, and what would -------------------------------------------------------------- */

bool ddp_memory_fits(const struct ddp_train_plan *plan, const struct ddp_memory *memory,
                     const struct ddp_memory_limits *limits)
{
    return memory->host_total <= limits->host &&
           (plan->device.host_memory || memory->unit_total <= limits->unit);
}

void ddp_memory_set_batch(const struct ddp_planned *planned, struct ddp_train_plan *plan,
                          int64_t batch)
{
    const int64_t samples = ddp_sampler_shard_samples(&plan->sampler);
    plan->batch_size = plan->tail_rows = batch;
    if (ddp_dataset_info(planned->data)->planned)
        return;
    plan->steps_per_epoch = ddp_loader_steps_per_epoch(&plan->sampler, batch);
    plan->tail_rows = samples - (plan->steps_per_epoch - 1) * batch;
    if (!planned->options->steps)
        plan->total_steps = plan->steps_per_epoch;
}

/* Does it fit with this batch? What cannot be built does not. */
static enum ddp_status try_batch(const struct ddp_planned *planned, struct ddp_train_plan *plan,
                                 const struct ddp_model_config *config,
                                 const struct ddp_memory_limits *limits, int64_t batch,
                                 struct ddp_memory *memory, bool *fits)
{
    char message[256];
    ddp_memory_set_batch(planned, plan, batch);
    if (batch > 1)
        ddp_log_hold(message, sizeof message);
    enum ddp_status status = ddp_memory_plan(planned, plan, config, memory);
    ddp_log_hold(NULL, 0);
    *fits = status == DDP_OK && ddp_memory_fits(plan, memory, limits);
    return batch > 1 ? DDP_OK : status;
}

enum ddp_status ddp_memory_largest_batch(const struct ddp_planned *planned,
                                         struct ddp_train_plan *plan,
                                         const struct ddp_model_config *config,
                                         const struct ddp_memory_limits *limits,
                                         struct ddp_memory *memory, int64_t *batch)
{
    const int64_t samples = ddp_sampler_shard_samples(&plan->sampler);
    const bool unknown = ddp_dataset_info(planned->data)->planned;
    const int64_t most = unknown || samples > BATCH_MAX ? BATCH_MAX : samples;
    int64_t low = 0, high = most + 1; /* the one fits, the other does not */
    for (int64_t next = 1; low + 1 < high;) {
        struct ddp_memory with;
        bool fits;
        enum ddp_status status = try_batch(planned, plan, config, limits, next, &with, &fits);
        if (status != DDP_OK)
            return status;
        if (fits || next == 1)
            *memory = with;
        if (fits)
            low = next;
        else
            high = next;
        next = high > most ? (2 * low < most ? 2 * low : most) : low + (high - low) / 2;
    }
    *batch = low;
    ddp_memory_set_batch(planned, plan, low > 0 ? low : 1);
    return DDP_OK;
}

void ddp_memory_of_device(ddp_device *device, struct ddp_memory_limits *limits, double *used)
{
    size_t total, unused;
    limits->host = (double)ddp_memory_total();
    limits->unit = INFINITY;
    *used = 0;
    if (!device || ddp_device_host_memory(device) ||
        ddp_device_memory(device, &total, &unused) != DDP_OK)
        return;
    limits->unit = (double)total;
    *used = (double)total - (double)unused;
}

/* --- refusing --------------------------------------------------------------------------------- */

/* What would make the run fit: a list of options, each enough by itself. */
struct advice {
    char text[256];
    size_t used;
};

static void advise(struct advice *advice, const char *format, ...) DDP_PRINTF(2, 3);

static void advise(struct advice *advice, const char *format, ...)
{
    va_list args;
    char item[64];
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    if (advice->used < sizeof advice->text)
        advice->used +=
            (size_t)snprintf(advice->text + advice->used, sizeof advice->text - advice->used,
                             "%s%s", advice->used ? " or " : "", item);
}

static bool fits_with(const struct ddp_planned *planned, const struct ddp_train_plan *plan,
                      const struct ddp_model_config *config, const struct ddp_memory_limits *limits)
{
    struct ddp_memory memory;
    return ddp_memory_plan(planned, plan, config, &memory) == DDP_OK &&
           ddp_memory_fits(plan, &memory, limits);
}

static void advise_batch(const struct ddp_planned *planned, const struct ddp_memory_limits *limits,
                         struct advice *advice)
{
    struct ddp_train_plan plan = planned->plan;
    struct ddp_memory memory;
    int64_t batch;
    if (ddp_memory_largest_batch(planned, &plan, &planned->model_config, limits, &memory, &batch) ==
            DDP_OK &&
        batch > 0)
        advise(advice, "--batch-size %" PRId64, batch);
}

static void find_advice(const struct ddp_planned *planned, const struct ddp_memory_limits *limits,
                        struct advice *advice)
{
    const int units = ddp_train_plan_units(&planned->plan);
    struct ddp_train_plan plan = planned->plan;
    struct ddp_model_config config = planned->model_config;
    advise_batch(planned, limits, advice);
    if (plan.lanes > units && plan.mode != DDP_MODE_PIPELINE) {
        ddp_train_plan_lanes(&plan, 1);
        if (fits_with(planned, &plan, &config, limits))
            advise(advice, "--lanes %" PRId64, plan.lanes);
        plan = planned->plan;
    }
    if (plan.mode == DDP_MODE_DDP && units > 1 && !plan.zero) {
        plan.zero = true;
        plan.shared_weights = plan.device.host_memory;
        if (fits_with(planned, &plan, &config, limits))
            advise(advice, "--zero 1");
        plan = planned->plan;
    }
    if (plan.mode == DDP_MODE_DDP && units > 1 && plan.shared_weights && !plan.thin_gradients) {
        plan.thin_gradients = true;
        if (fits_with(planned, &plan, &config, limits))
            advise(advice, "--zero 2");
        plan = planned->plan;
    }
    if (plan.mode == DDP_MODE_DDP && plan.nodes > 1 && plan.shared_weights && !plan.thin_weights) {
        plan.thin_gradients = plan.thin_weights = true;
        if (fits_with(planned, &plan, &config, limits))
            advise(advice, "--zero 3");
        plan = planned->plan;
    }
    if (!config.recompute && ddp_graph_block_count(planned->graph) > 0) {
        config.recompute = true;
        if (fits_with(planned, &plan, &config, limits))
            advise(advice, "--recompute");
        config.recompute = false;
    }
    if (!plan.device.host_memory && config.compute == DDP_F32) {
        ddp_train_config_dtype(&config, &plan, DDP_TRAIN_BF16);
        if (fits_with(planned, &plan, &config, limits))
            advise(advice, "--dtype bf16");
    }
    if (advice->used == 0)
        advise(advice, "a smaller model%s%s", plan.mode == DDP_MODE_PIPELINE ? ", or more " : "",
               plan.mode == DDP_MODE_PIPELINE ? "--stages" : "");
    else
        advise(advice, "a smaller model%s%s",
               plan.device.host_memory && units > 1 ? ", or fewer " : "",
               !plan.device.host_memory || units == 1 ? ""
               : plan.mode == DDP_MODE_DP             ? "replicas"
                                                      : "workers");
}

/* With thin weights: what a node needs at once, however many there are. */
static enum ddp_status describe_largest(const struct ddp_planned *planned, char *text, size_t size)
{
    const char *name = "";
    char needed[DDP_TEXT_BYTES];
    size_t bytes = 0;
    if (!planned->plan.thin_weights)
        return DDP_OK;
    enum ddp_status status = ddp_graph_largest_group(planned->graph, &bytes, &name);
    if (status == DDP_OK)
        snprintf(text, size, "; its largest block begins with %s and takes %s in each node", name,
                 ddp_text_bytes((double)bytes, needed));
    return status;
}

enum ddp_status ddp_memory_check(const struct ddp_planned *planned, double *exchange_bytes)
{
    const struct ddp_train_plan *plan = &planned->plan;
    const int64_t units = ddp_train_plan_units(plan), lanes = (plan->lanes + units - 1) / units;
    const struct ddp_memory_limits limits = {INFINITY, (double)ddp_memory_total()};
    const char *unit = ddp_train_plan_unit_name(plan);
    struct ddp_memory memory;
    enum ddp_status status = ddp_memory_plan(planned, plan, &planned->model_config, &memory);
    if (status == DDP_OK)
        *exchange_bytes = ddp_mode_traffic_total(&memory.traffic);
    if (status != DDP_OK || ddp_memory_fits(plan, &memory, &limits))
        return status;
    struct advice advice = {.used = 0};
    find_advice(planned, &limits, &advice);
    const int arrays = ddp_train_plan_arrays(plan);
    char largest[256] = "";
    status = describe_largest(planned, largest, sizeof largest);
    if (status != DDP_OK)
        return status;
    return ddp_fail(DDP_ERR_MEMORY,
                    "out of memory: %" PRId64 " %s%s with %" PRId64
                    " parameters and batches of %" PRId64
                    " need %.1f GB, and there are %.1f GB: use %s (gradients take %.1f GB of it, "
                    "in %d array%s each for %" PRId64 " lane%s%s; see --plan)",
                    units, unit, units == 1 ? "" : "s", ddp_graph_element_count(planned->graph),
                    plan->batch_size, memory.host_total / 1e9, limits.host / 1e9, advice.text,
                    memory.host[DDP_MEMORY_GRADIENTS] / 1e9, arrays, arrays == 1 ? "" : "s", lanes,
                    lanes == 1 ? "" : "s", largest);
}

enum ddp_status ddp_memory_choose_zero(struct ddp_planned *planned,
                                       const struct ddp_memory_limits *limits)
{
    struct ddp_memory memory;
    if (!planned->plan.zero_open)
        return DDP_OK;
    planned->plan.zero = false;
    enum ddp_status status =
        ddp_memory_plan(planned, &planned->plan, &planned->model_config, &memory);
    planned->plan.zero = status == DDP_OK && memory.unit_total > WHOLE_SHARE * limits->unit;
    return status;
}

/* A GPU is known to be too small only when it is: what it had before is asked for anew. */
enum ddp_status ddp_memory_explain(const struct ddp_planned *planned, const char *message)
{
    struct ddp_planned after = *planned;
    struct ddp_memory_limits limits;
    struct ddp_memory memory;
    struct advice advice = {.used = 0};
    ddp_device *device = NULL;
    char held[256], needed[DDP_TEXT_BYTES], there[DDP_TEXT_BYTES];
    if (planned->plan.device.host_memory)
        return ddp_fail(DDP_ERR_MEMORY, "%s", message);
    ddp_log_hold(held, sizeof held);
    enum ddp_status status =
        ddp_device_open(&device, planned->plan.device.name, planned->plan.devices[0], 1);
    if (status == DDP_OK)
        ddp_memory_of_device(device, &limits, &after.device_bytes);
    if (status == DDP_OK)
        status = ddp_memory_plan(&after, &after.plan, &after.model_config, &memory);
    if (status == DDP_OK)
        find_advice(&after, &limits, &advice);
    ddp_device_close(device);
    ddp_log_hold(NULL, 0);
    if (status != DDP_OK || ddp_memory_fits(&after.plan, &memory, &limits))
        return ddp_fail(DDP_ERR_MEMORY, "%s", message);
    return ddp_fail(DDP_ERR_MEMORY, "%s (planned: %s of %s; use %s; see --plan)", message,
                    ddp_text_bytes(memory.unit_total, needed), ddp_text_bytes(limits.unit, there),
                    advice.text);
}

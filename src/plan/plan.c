/* SPDX-License-Identifier: MIT
 *
 * From options to a plan; see options.h. */
#include "config.h"

#include "plan/options.h"

#include "core/log.h"
#include "core/parse.h"
#include "core/terminal.h"
#include "core/text.h"
#include "core/thread.h"
#include "graph/describe.h"
#include "job/job.h"
#include "kernels/reduce.h"
#include "mode/lanes.h"
#include "plan/devices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DP_SHARDS_MAX 16000 /* within what a loader can hold */
#define EPOCH_STEPS   20    /* of a default batch that may be smaller, at least */
#define RUN_STEPS     900   /* of default epochs that may be more, at least */

/* Local steps: each worker has weights of its own. */
static enum ddp_status choose_local(struct ddp_train_plan *plan,
                                    const struct ddp_train_options *options)
{
    const bool local = options->sync_every > 1;
    const char *of_local = ddp_train_given_of(options, DDP_OF_LOCAL);
    if (of_local && !local)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every 1: %s= needs an average after more steps than 1",
                        of_local + strlen("sync-every" DDP_OPTION_PART));
    if (local && ddp_train_given(options, "zero") && options->zero > 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 ": each worker updates weights of "
                        "its own: it goes with --zero 0",
                        options->sync_every);
    if (local && options->sync_batch_norm)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 " and --sync-batch-norm, which needs all workers "
                        "in each step, exclude each other: give one",
                        options->sync_every);
    if (local && options->load_frozen)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 ", which averages all weights, and --load "
                        "PATH,frozen exclude each other: give one",
                        options->sync_every);
    if (local && options->average > 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 " and --optimizer ...,ema=, which follows weights "
                        "that all workers share, exclude each other: give one",
                        options->sync_every);
    if (local && options->dtype == DDP_TRAIN_FP16)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 " and --dtype fp16, which scales the loss of all "
                        "workers alike, exclude each other: use --dtype bf16",
                        options->sync_every);
    if (local && options->wire_dtype)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 ": workers send weights, not gradients: "
                        "--dtype TYPE,wire=bf16 has nothing to round: leave it out",
                        options->sync_every);
    if (local)
        plan->local = (struct ddp_mode_local){
            .every = options->sync_every,
            .from = options->local_from,
            .outer = ddp_train_given(options, "sync-every ...,lr") ||
                     ddp_train_given(options, "sync-every ...,momentum"),
            .outer_rate = options->outer_rate,
            .outer_momentum = options->outer_momentum,
        };
    return DDP_OK;
}

/* How workers share the update out: not at all when there is one. */
static enum ddp_status choose_sharing(struct ddp_train_plan *plan,
                                      const struct ddp_train_options *options)
{
    const bool ddp = plan->mode == DDP_MODE_DDP, pipeline = plan->mode == DDP_MODE_PIPELINE;
    const bool zero = ddp_train_given(options, "zero") && options->zero > 0;
    if (zero && !ddp)
        return ddp_fail(DDP_ERR_INVALID,
                        "--zero %" PRId64 " splits the update over the workers of --mode ddp, and "
                        "the mode is %s, which %s",
                        options->zero, ddp_mode_names[plan->mode],
                        pipeline ? "splits it over its stages" : "has one process");
    if (options->zero > 1 && !plan->device.host_memory)
        return ddp_fail(DDP_ERR_INVALID,
                        "--zero %" PRId64 " splits %s in the memory of the host, and the "
                        "device is %s: use --zero 1",
                        options->zero, options->zero > 2 ? "weights and gradients" : "gradients",
                        plan->device.name);
    const bool may = ddp && plan->world_size > 1 && plan->local.every <= 1;
    plan->zero_open = may && !plan->device.host_memory && !ddp_train_given(options, "zero");
    plan->zero = may && options->zero > 0 && !plan->zero_open;
    plan->shared_weights = plan->zero && plan->device.host_memory;
    plan->thin_gradients = plan->zero && options->zero > 1;
    plan->thin_weights = plan->thin_gradients && options->zero > 2 && plan->nodes > 1;
    if (options->zero > 2 && !plan->thin_weights && plan->rank == 0)
        ddp_log(DDP_LOG_INFO, "--zero 3 splits weights over nodes, and there is one: as --zero 2");
    return DDP_OK;
}

/* Options that belong to another mode. */
static enum ddp_status check_scopes(const struct ddp_train_plan *plan,
                                    const struct ddp_train_options *options)
{
    for (int mode = 0; ddp_mode_names[mode]; mode++) {
        const char *name = mode == (int)plan->mode
                               ? NULL
                               : ddp_train_given_of(options, DDP_OF_MODE((unsigned)mode));
        if (name)
            return ddp_fail(DDP_ERR_INVALID, "--%s belongs to --mode %s, and the mode is %s", name,
                            ddp_mode_names[mode], ddp_mode_names[plan->mode]);
    }
    return DDP_OK;
}

static enum ddp_status choose_mode(struct ddp_train_plan *plan,
                                   const struct ddp_train_options *options, bool launched)
{
    const bool given = ddp_train_given(options, "mode");
    if (options->distributed && given && options->mode != DDP_MODE_DDP)
        return ddp_fail(DDP_ERR_INVALID, "--distributed means --mode ddp, but --mode %s was given",
                        ddp_mode_names[options->mode]);
    plan->mode = launched ? DDP_MODE_DDP : DDP_MODE_ACCUM;
    if (ddp_train_given(options, "stages") || options->cut)
        plan->mode = DDP_MODE_PIPELINE;
    if (given)
        plan->mode = (enum ddp_mode_kind)options->mode;
    if (options->distributed)
        plan->mode = DDP_MODE_DDP;
    char nodes[DDP_TRAIN_NODES];
    const bool parallel = plan->mode == DDP_MODE_DDP || plan->mode == DDP_MODE_PIPELINE;
    if (!parallel && plan->world_size > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "--mode %s runs in one process, but ddprun started %d workers%s: "
                        "use --mode ddp, or ddprun --nproc 1%s",
                        ddp_mode_names[plan->mode], plan->world_size,
                        ddp_train_show_nodes(plan, nodes), plan->nodes > 1 ? " --nnodes 1" : "");
    if (parallel && plan->node_workers > DDP_REDUCE_MAX)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "--mode %s supports at most %d workers on one machine, ddprun started %d: "
                        "give ddprun a lower --nproc",
                        ddp_mode_names[plan->mode], DDP_REDUCE_MAX, plan->node_workers);
    if (check_scopes(plan, options) != DDP_OK)
        return DDP_ERR_INVALID;
    enum ddp_status status = ddp_train_plan_stages(plan, options);
    plan->replicas = plan->mode == DDP_MODE_DP ? plan->replicas : 1;
    if (status == DDP_OK)
        status = choose_local(plan, options);
    return status == DDP_OK ? choose_sharing(plan, options) : status;
}

/* Batch norm's sums can be added up over shards that are there at the same moment only. */
static enum ddp_status choose_sync(struct ddp_train_plan *plan,
                                   const struct ddp_train_options *options)
{
    if (options->sync_batch_norm && plan->mode == DDP_MODE_PIPELINE)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-batch-norm needs workers that run a shard each at the same time, "
                        "and the shards of --mode pipeline run one after another: use --mode ddp");
    if (options->sync_batch_norm && plan->mode != DDP_MODE_DDP)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-batch-norm needs workers that run a shard each at the same "
                        "time, and --mode %s has one worker: start several with ddprun, "
                        "--mode ddp",
                        ddp_mode_names[plan->mode]);
    if (options->sync_batch_norm && plan->local_shards > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-batch-norm: each worker runs %" PRId64
                        " shards of a step one after another, and batch norm can be synchronised "
                        "only over shards that run at the same time: use --acc-steps 1, with "
                        "more workers or a larger --batch-size",
                        plan->local_shards);
    plan->sync_batch_norm = options->sync_batch_norm;
    return DDP_OK;
}

/* Was the model to follow from data that are not there? */
static bool is_unfounded(const struct ddp_train_options *options)
{
    return !ddp_train_given(options, "model") && !options->load && options->data &&
           !strpbrk(options->data, ",*?[") && access(options->data, F_OK) != 0;
}

static enum ddp_status check_model_options(const struct ddp_train_plan *plan,
                                           const struct ddp_train_options *options)
{
    const bool article = plan->model == &ddp_model_article;
    if (article && options->data)
        return ddp_fail(DDP_ERR_INVALID,
                        "--data: the model article draws its own samples; leave --data out");
    for (int i = 0; ddp_model_at(i); i++)
        for (const struct ddp_option *row = ddp_model_at(i)->options; row && row->name; row++)
            if (ddp_model_at(i)->options != plan->model->options &&
                ddp_train_given(options, row->name))
                return is_unfounded(options)
                           ? ddp_fail_path(options->data, "open the data")
                           : ddp_fail(DDP_ERR_INVALID,
                                      "--%s belongs to the model %s, and the model is %s",
                                      row->name, ddp_model_at(i)->name, plan->model->name);
    if (!article && ddp_train_given(options, "data-size"))
        return ddp_fail(DDP_ERR_INVALID, "--data-size belongs to the model article");
    return DDP_OK;
}

/* The global batch is as many shards for each unit as there are. It stays what it was when the job
 * is restarted with other workers: the run goes on. */
static void take_first_batch(struct ddp_train_plan *plan, int64_t units, int first_size)
{
    plan->global_shards = units * plan->local_shards * first_size / plan->world_size;
    plan->local_shards = (plan->global_shards + units - 1) / units;
}

/* Divides --global-batch by what was given, or chooses what was not. */
static enum ddp_status divide_global_batch(struct ddp_train_plan *plan,
                                           const struct ddp_train_options *options, int64_t units,
                                           const char *unit_name)
{
    const int64_t global = options->global_batch;
    const bool batch_given = ddp_train_given(options, "batch-size");
    const bool steps_given = ddp_train_given(options, "acc-steps");
    int64_t part = units * (steps_given ? options->acc_steps : 1);
    if (batch_given)
        part *= options->batch_size;
    int64_t below = global / part * part;
    if (!steps_given && global >= part && global % part != 0) {
        int64_t batch = plan->batch_size < global / units ? plan->batch_size : global / units;
        while (!batch_given && global % batch != 0)
            batch--;
        if (global % batch == 0) { /* shards that do not divide evenly over the workers */
            plan->batch_size = batch;
            plan->global_shards = global / batch;
            plan->local_shards = (plan->global_shards + units - 1) / units;
            return DDP_OK;
        }
    }
    if (global % part != 0) {
        char fits[96];
        if (below > 0)
            snprintf(fits, sizeof fits, "%" PRId64 " or %" PRId64 " would fit", below,
                     below + part);
        else
            snprintf(fits, sizeof fits, "%" PRId64 " would fit", part);
        return ddp_fail(DDP_ERR_INVALID,
                        "--global-batch %" PRId64 " is not a multiple of %" PRId64 " (%" PRId64
                        " %s%s%s%s): %s",
                        global, part, units, unit_name, units == 1 ? "" : "s",
                        batch_given ? " x the --batch-size" : "",
                        steps_given ? " x the --acc-steps" : "", fits);
    }
    int64_t rest = global / part;
    if (batch_given && steps_given) {
        if (rest != 1)
            return ddp_fail(DDP_ERR_INVALID,
                            "--global-batch %" PRId64
                            " contradicts --batch-size x --acc-steps x %" PRId64 " %s%s = %" PRId64
                            ": leave one of them out",
                            global, units, unit_name, units == 1 ? "" : "s", part);
    } else if (batch_given) {
        plan->local_shards = rest;
    } else if (steps_given) {
        plan->batch_size = rest;
    } else {
        int64_t batch = rest < plan->batch_size ? rest : plan->batch_size;
        while (rest % batch != 0)
            batch--;
        plan->batch_size = batch;
        plan->local_shards = rest / batch;
    }
    return DDP_OK;
}

bool ddp_train_plan_has_tail(const struct ddp_train_plan *plan)
{
    return plan->tail_rows != plan->batch_size && plan->total_steps >= plan->steps_per_epoch;
}

/* A GPU that is only planned for has all that its kernels offer. Without eps Adam divides zero by
 * zero, and padding would not stay zero. */
void ddp_train_config_dtype(struct ddp_model_config *config, const struct ddp_train_plan *plan,
                            enum ddp_train_dtype dtype)
{
    const struct ddp_kernels *kernels = plan->device.kernels;
    const bool bf16 = dtype == DDP_TRAIN_BF16;
    config->compute = bf16 ? DDP_BF16 : dtype == DDP_TRAIN_FP16 ? DDP_F16 : DDP_F32;
    config->activations = bf16 && (!kernels || kernels->bf16_activations) ? DDP_BF16 : DDP_F32;
    config->offers.fuses_norms = !kernels || kernels->add_layer_norm_forward;
    config->offers.pads_classes =
        (!kernels || kernels->pads_classes) && (float)plan->optimizer.eps > 0;
    config->offers.reads_bf16_weights = kernels && kernels->reads_bf16_weights;
}

const char *ddp_train_show_nodes(const struct ddp_train_plan *plan, char text[DDP_TRAIN_NODES])
{
    text[0] = '\0';
    if (plan->nodes > 1)
        snprintf(text, DDP_TRAIN_NODES, " on %d nodes", plan->nodes);
    return text;
}

int ddp_train_threads(const struct ddp_train_options *options, int replicas)
{
    int64_t threads;
    if (ddp_train_given(options, "threads"))
        return (int)options->threads;
    if (ddp_parse_int64(getenv("OMP_NUM_THREADS"), 1, 1024, &threads))
        return (int)threads;
    const int cores = ddp_cpu_count() / replicas;
    return cores < 1 ? 1 : cores;
}

enum ddp_status ddp_train_plan_workers(struct ddp_train_plan *plan,
                                       const struct ddp_train_options *options, const ddp_job *job,
                                       bool launched)
{
    *plan = (struct ddp_train_plan){
        .model = options->model,
        .rank = ddp_job_rank(job),
        .world_size = ddp_job_world_size(job),
        .nodes = ddp_job_node_count(job),
        .node_workers = ddp_job_node_size(job),
        .starts = ddp_job_node_starts(job),
        .stages = 1,
        .batch_size = options->batch_size,
        .local_shards = options->acc_steps,
        .copies = ddp_job_copy_fd(job) >= 0 && !ddp_train_evaluates_only(options) &&
                  options->verify_step == 0,
    };
    if (options->copy_every > 0 && !plan->copies)
        return ddp_fail(DDP_ERR_INVALID, "--copy-every: only ddprun --max-restarts N keeps a copy");
    if (!ddp_train_given(options, "batch-size") && plan->model->batch)
        plan->batch_size = plan->model->batch;
    /* Of the size that is asked for, whatever --global-batch makes of it on these workers. */
    plan->eval_samples = options->eval_steps ? options->eval_steps * plan->batch_size : INT64_MAX;
    enum ddp_status status = ddp_train_plan_kind(plan, options);
    if (status == DDP_OK)
        status = choose_mode(plan, options, launched);
    if (status == DDP_OK)
        status = ddp_train_plan_devices(plan, options, job);
    if (status == DDP_OK)
        status = check_model_options(plan, options);
    if (status != DDP_OK)
        return status;
    const int64_t units = ddp_train_plan_units(plan);
    if (ddp_train_given(options, "global-batch"))
        status = divide_global_batch(plan, options, units, ddp_train_plan_unit_name(plan));
    if (status != DDP_OK)
        return status;
    status = choose_sync(plan, options);
    if (status != DDP_OK)
        return status;
    const bool fixed = ddp_train_given(options, "global-batch") || plan->local.every > 1;
    if (plan->global_shards == 0)
        take_first_batch(plan, units, fixed ? plan->world_size : ddp_job_first_size(job));
    ddp_train_plan_lanes(plan, options->lanes);
    const bool resumes = options->resume || options->resume_from; /* perhaps with other lanes */
    if (!ddp_train_evaluates_only(options) && (!resumes || ddp_train_given(options, "lanes")))
        status = ddp_train_plan_check_lanes(plan);
    if (status != DDP_OK)
        return status;
    if (plan->mode == DDP_MODE_DP && plan->global_shards > DP_SHARDS_MAX)
        return ddp_fail(DDP_ERR_INVALID,
                        "%" PRId64 " --replicas x %" PRId64
                        " --acc-steps: --mode dp holds the batches of a whole step, of at most %d "
                        "shards; --mode accum holds one at a time",
                        units, plan->local_shards, DP_SHARDS_MAX);
    if (plan->local_shards < plan->stages && plan->rank == 0 && !ddp_train_evaluates_only(options))
        ddp_log(DDP_LOG_INFO,
                "note: %" PRId64 " shard%s cannot keep %d stages busy: each waits for %.0f %% of "
                "the time; a higher --acc-steps lowers that",
                plan->local_shards, plan->local_shards == 1 ? "" : "s", plan->stages,
                100 * ddp_train_plan_bubble(plan));
    plan->threads = ddp_train_threads(options, ddp_train_plan_local_devices(plan));
    status = ddp_train_plan_optimizer(plan, options);
    return status == DDP_OK ? ddp_train_check_options(options, plan) : status;
}

/* The default batch is smaller where it would leave few steps in an epoch. */
static void fit_default_batch(struct ddp_train_plan *plan, const struct ddp_train_options *options,
                              const struct ddp_dataset_info *data, int64_t samples)
{
    const struct ddp_model *model = plan->model;
    if (model->batch_least == 0 || data->planned || ddp_train_given(options, "batch-size") ||
        ddp_train_given(options, "global-batch"))
        return;
    while (plan->batch_size > model->batch_least && plan->batch_size * EPOCH_STEPS > samples)
        plan->batch_size /= 2;
    if (options->eval_steps)
        plan->eval_samples = options->eval_steps * plan->batch_size;
}

/* By default more of short epochs, which would be few steps in all. */
static int64_t choose_epochs(const struct ddp_train_plan *plan,
                             const struct ddp_train_options *options,
                             const struct ddp_dataset_info *data)
{
    const int64_t most = plan->model->epochs_most;
    if (most == 0 || data->planned || ddp_train_given(options, "epochs"))
        return options->epochs;
    const int64_t enough = (RUN_STEPS + plan->steps_per_epoch - 1) / plan->steps_per_epoch;
    return enough < options->epochs ? options->epochs : enough < most ? enough : most;
}

enum ddp_status ddp_train_plan_steps(struct ddp_train_plan *plan,
                                     const struct ddp_train_options *options,
                                     const struct ddp_dataset_info *data)
{
    plan->sampler = (struct ddp_sampler_config){
        .sample_count = data->sample_count,
        .shard_count = plan->global_shards,
        .shuffle = ddp_train_given(options, "shuffle") ? options->shuffle : data->shuffled,
        .drop_last = options->drop_last,
        .seed = options->seed,
    };
    const int64_t samples = ddp_sampler_shard_samples(&plan->sampler);
    if (samples == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%" PRId64 " samples are too few for %" PRId64
                        " shards with --drop-last: at least %" PRId64
                        " are needed; use fewer workers or leave --drop-last out",
                        data->sample_count, plan->global_shards, plan->global_shards);
    if (data->sample_count < plan->global_shards && plan->rank == 0)
        ddp_log(DDP_LOG_WARNING,
                "%" PRId64 " samples are fewer than %" PRId64
                " shards: some are repeated in every step",
                data->sample_count, plan->global_shards);
    fit_default_batch(plan, options, data, samples);
    if (plan->batch_size > samples)
        plan->batch_size = samples; /* one batch an epoch: its short batch is the only one */
    plan->steps_per_epoch = ddp_loader_steps_per_epoch(&plan->sampler, plan->batch_size);
    plan->tail_rows = samples - (plan->steps_per_epoch - 1) * plan->batch_size;
    plan->epochs = choose_epochs(plan, options, data);
    plan->total_steps = options->steps;
    if (!options->steps &&
        __builtin_mul_overflow(plan->epochs, plan->steps_per_epoch, &plan->total_steps))
        return ddp_fail(DDP_ERR_INVALID, "--epochs %" PRId64 ": too many steps", plan->epochs);
    plan->local.steps = plan->total_steps;
    enum ddp_status status = ddp_train_plan_schedule(plan, options);
    if (status != DDP_OK)
        return status;
    if (!data->planned)
        ddp_train_check_length(options, plan);
    return DDP_OK;
}

static void print_data(const struct ddp_train_plan *plan, const struct ddp_dataset_info *data,
                       FILE *out)
{
    char shown[DDP_TEXT_SHOWN], bytes[DDP_TEXT_BYTES];
    if (data->planned) {
        fputs("data     none: samples of ", out);
        for (int i = 0; i < data->dim_count; i++)
            fprintf(out, "%s%" PRId64, i ? " x " : "", data->dims[i]);
        fprintf(out,
                data->x_dtype == DDP_I32 ? " tokens, of %" PRId64 "\n"
                : data->class_count      ? ", %" PRId64 " classes\n"
                                         : "\n",
                data->class_count);
        return;
    }
    fprintf(out, "data     %s%s%" PRId64 " samples", ddp_text_show(shown, data->path),
            *data->path ? ", " : "", data->sample_count);
    if (data->x_dtype == DDP_I32)
        fprintf(out, " of %" PRId64 " tokens", data->dims[data->dim_count - 1]);
    if (data->label_std > 0)
        fprintf(out, " of %zu numbers, to predict one", data->sample_values);
    else if (data->class_names && data->dim_count == 1)
        fprintf(out, " of %zu numbers in %" PRId64 " classes", data->sample_values,
                data->class_count);
    else if (data->class_names)
        fprintf(out, " of %" PRId64 " x %" PRId64 " x %" PRId64 " in %" PRId64 " classes",
                data->dims[0], data->dims[1], data->dims[2], data->class_count);
    if (data->x_dtype == DDP_I32 && data->memory_bytes >= 1000000) /* unpacked texts */
        fprintf(out, ", %s in memory of each worker",
                ddp_text_bytes((double)data->memory_bytes, bytes));
    fprintf(out, "%s\n", plan->sampler.shuffle ? ", shuffled" : "");
}

static void print_local(const struct ddp_mode_local *local, FILE *out)
{
    if (local->every <= 1)
        return;
    fputs("sync     ", out);
    if (local->from > 0)
        fprintf(out, "each of the first %" PRId64 " steps, then ", local->from);
    fprintf(out, "every %" PRId64 " steps: weights averaged", local->every);
    if (local->outer)
        fprintf(out, ", outer SGD with rate %g, momentum %g%s", local->outer_rate,
                local->outer_momentum, local->outer_momentum > 0 ? " (Nesterov's)" : "");
    fputc('\n', out);
}

/* Without data an epoch has no length. */
static void print_steps(const struct ddp_train_plan *plan, const struct ddp_train_options *options,
                        const struct ddp_dataset_info *data, FILE *out)
{
    fputs("steps    ", out);
    if (!data->planned)
        fprintf(out, "%" PRId64 " (%" PRId64 " an epoch)", plan->total_steps,
                plan->steps_per_epoch);
    else if (options->steps)
        fprintf(out, "%" PRId64, options->steps);
    else
        fprintf(out, "%" PRId64 " epoch%s of the data", options->epochs,
                options->epochs == 1 ? "" : "s");
    fprintf(out, ", learning rate %g %s\n", plan->schedule.rate,
            ddp_schedule_names[plan->schedule.kind]);
}

/* Where the stages begin, and how long they wait for one another when a step begins and ends. */
static void print_stages(const struct ddp_train_plan *plan, const ddp_graph *graph, FILE *out)
{
    fprintf(out, "stages   %d, the later ones begin at", plan->stages);
    for (int i = 0; i < plan->stages - 1; i++)
        fprintf(out, "%s %s", i ? "," : "", ddp_graph_result_name(graph, plan->cuts[i]));
    fprintf(out, "; bubble %.0f %% of a step\n", 100 * ddp_train_plan_bubble(plan));
}

/* Of a worker, or of a stage. */
static void print_memory(const struct ddp_train_plan *plan, const ddp_graph *graph,
                         const struct ddp_mode_memory *memory, int stage, FILE *out)
{
    char text[4][DDP_TEXT_BYTES], locked[64] = "", frozen[64] = "", owner[32] = "a worker";
    if (plan->mode == DDP_MODE_PIPELINE)
        snprintf(owner, sizeof owner, "in stage %d", stage);
    if (memory->locked > 0)
        snprintf(locked, sizeof locked, " (and %s of the host)",
                 ddp_text_bytes((double)memory->locked, text[0]));
    if (memory->frozen > 0)
        snprintf(frozen, sizeof frozen, " + frozen weights %s",
                 ddp_text_bytes((double)memory->frozen, text[0]));
    fprintf(out, "memory   weights %s%s + gradients %s%s + optimizer %s + %sactivations %s %s\n",
            ddp_text_bytes((double)memory->weights, text[0]), frozen,
            ddp_text_bytes((double)memory->gradients, text[1]), locked,
            ddp_text_bytes((double)memory->optimizer, text[2]),
            ddp_graph_activations(graph) == DDP_BF16 ? "bf16 " : "",
            ddp_text_bytes((double)memory->activations, text[3]), owner);
}

void ddp_train_plan_print(const struct ddp_train_plan *plan,
                          const struct ddp_train_options *options,
                          const struct ddp_dataset_info *data, const ddp_graph *graph,
                          const struct ddp_mode_memory *memory, const char *device, FILE *to)
{
    struct ddp_terminal_text lines;
    FILE *out = ddp_terminal_begin(&lines, to);
    char shown[DDP_TEXT_SHOWN], nodes[DDP_TRAIN_NODES], frozen[48] = "", shards[DDP_TRAIN_SHARDS];
    const int units = ddp_train_plan_units(plan);
    const char *unit = ddp_train_plan_unit_name(plan);
    if (ddp_graph_frozen_count(graph) > 0)
        snprintf(frozen, sizeof frozen, " and %" PRId64 " frozen ones",
                 ddp_graph_frozen_element_count(graph));
    else if (ddp_graph_held_count(graph) > 0)
        snprintf(frozen, sizeof frozen, ", of which %" PRId64 " are learned",
                 ddp_graph_element_count(graph) - ddp_graph_held_count(graph));
    fprintf(out, "model    %s, %" PRId64 " parameters%s%s%s\n", plan->model->name,
            ddp_graph_element_count(graph), frozen, options->load ? ", from " : "",
            options->load ? ddp_text_show(shown, options->load) : "");
    print_data(plan, data, out);
    fprintf(out, "workers  %d %s%s", units, unit, units == 1 ? "" : "s");
    if (plan->mode == DDP_MODE_PIPELINE)
        fprintf(out, " x %d stages", plan->stages);
    fputs(ddp_train_show_nodes(plan, nodes), out);
    if (plan->device.host_memory)
        fprintf(out, " x %d %s thread%s", plan->threads, device, plan->threads == 1 ? "" : "s");
    else
        fprintf(out, "%s on %s: %s", plan->nodes > 1 ? "," : "", plan->device.name, device);
    fprintf(out, ", mode %s%s%s%s\n", ddp_mode_names[plan->mode],
            plan->sync_batch_norm ? ", batch norm synchronised" : "",
            options->recompute ? ", blocks recomputed" : "",
            options->fast && !plan->device.host_memory ? ", in NCCL's order" : "");
    fprintf(out,
            "batch    %" PRId64 " samples x %" PRId64 " shard%s (%s a %s) = global batch %" PRId64
            "\n",
            plan->batch_size, plan->global_shards, plan->global_shards == 1 ? "" : "s",
            ddp_train_plan_show_shards(plan, shards), unit, plan->batch_size * plan->global_shards);
    if (plan->mode == DDP_MODE_PIPELINE)
        print_stages(plan, graph, out);
    ddp_train_plan_print_lanes(plan, out);
    print_steps(plan, options, data, out);
    if (options->objective.kind) {
        char objective[DDP_TRAIN_OBJECTIVE];
        fprintf(out, "prefer   %s\n", ddp_train_show_objective(&options->objective, objective));
    }
    ddp_train_plan_print_optimizer(plan, out);
    print_local(&plan->local, out);
    for (int stage = 0; stage < plan->stages; stage++)
        print_memory(plan, graph, &memory[stage], stage, out);
    ddp_terminal_end(&lines);
}

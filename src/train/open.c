/* SPDX-License-Identifier: MIT
 *
 * Opens a training run: job, plan, data, model, weights, communicator, mode, evaluator, loader. */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "graph/exec.h"
#include "job/board.h"
#include "job/job.h"
#include "model/gpt2.h"
#include "train/best.h"
#include "train/data_notes.h"
#include "train/devices.h"
#include "train/llama_run.h"
#include "train/memory.h"
#include "train/nodes.h"
#include "train/outputs.h"
#include "train/pipeline.h"
#include "train/plan_memory.h"
#include "train/predict.h"
#include "train/texts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_GROWS ((size_t)14 << 20) /* while it trains: generated code, threads */
#define BYTES         256                /* tokens there are in a text */

/* Can the model learn from such data? And does every option for the data mean something? */
static enum ddp_status check_fit(const struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const struct ddp_model *model = run->plan.model;
    const struct ddp_dataset_info *info = ddp_dataset_info(run->data);
    const bool tokens = info->x_dtype == DDP_I32;
    const char *where = ddp_dataset_where(info);
    if (!options->custom && tokens != (model->x_dtype == DDP_I32))
        return ddp_fail(DDP_ERR_INVALID, "%s holds %s, and the model %s learns from %s%s", where,
                        tokens ? "tokens" : "numbers", model->name, tokens ? "numbers" : "tokens",
                        options->load ? ""
                        : tokens      ? ": use --model gpt2"
                                      : ": use --model mlp, or cnn or resnet for images");
    if (model == &ddp_model_gpt2 && info->dim_count == 2)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s has prompts or chats, whose boundaries the model gpt2 does not know: "
                        "use "
                        "--model llama, or lines with a \"text\"",
                        where);
    if (!options->custom && info->float_labels)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model %s learns classes, and %s has numbers for labels: give a model "
                        "with ddp_graph_mse() to ddp_train_set_model()",
                        model->name, where);
    if (model->labels && info->label_count == 0 && !ddp_train_evaluates_only(options))
        return ddp_fail(
            DDP_ERR_INVALID, "%s has no labels, and the model %s needs them%s", where, model->name,
            strcmp(info->source, "npy") == 0 ? ": name their array too, as in --data X.npy,Y.npy"
            : strcmp(info->source, "images") == 0
                ? ": put the images of each class into a directory of its own"
                : "");
    static const char *const of_tokens[] = {"seq-len",      "tokens",        "vocab-size",
                                            "tokenizer",    "chat-template", "packing",
                                            "long-samples", "show-masks"};
    for (size_t i = 0; i < sizeof of_tokens / sizeof of_tokens[0]; i++)
        if (!tokens && ddp_train_given(options, of_tokens[i]))
            return ddp_fail(DDP_ERR_INVALID, "--%s belongs to token data, and %s holds numbers",
                            of_tokens[i], where);
    return DDP_OK;
}

static const char *kind_of(const struct ddp_dataset_info *info)
{
    return info->dim_count == 2    ? "prompts or chats"
           : info->bytes           ? "a text"
           : info->token_bytes > 0 ? "an encoded text"
                                   : "a file of tokens";
}

/* Bytes and other tokens are not the same language, and rows of chats have borders of documents. */
static enum ddp_status check_val(const struct ddp_run *run)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(run->data);
    const struct ddp_dataset_info *test = run->test ? ddp_dataset_info(run->test) : info;
    if (info->bytes == test->bytes && info->dim_count == test->dim_count)
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID,
                    "--val %s is %s, and --data %s is %s: both must be of the same kind, encoded "
                    "by the same tokenizer",
                    test->path, kind_of(test), info->path, kind_of(info));
}

/* Would the bytes of a text be taken for tokens of another kind, or are tokens beyond the model's
 * vocabulary? A few samples tell which a file without a header has. */
static enum ddp_status check_vocabulary(const struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const struct ddp_dataset_info *info = ddp_dataset_info(run->data);
    const int64_t last = info->sample_count - 1, samples[] = {0, last / 2, last};
    const int64_t vocabulary = ddp_run_model_classes(run);
    const char *flag = options->config ? "config" : options->load ? "load" : "size";
    const char *path = options->config ? options->config
                       : options->load ? options->load
                                       : options->size;
    char unsaid[1024];
    if (info->x_dtype != DDP_I32)
        return DDP_OK;
    if (info->bytes && options->vocab_size > BYTES) {
        if (run->plan.rank == 0)
            ddp_log(DDP_LOG_WARNING,
                    "--vocab-size %" PRId64
                    ": %s is a text, whose bytes are taken as tokens from 0 "
                    "to 255",
                    options->vocab_size, info->path);
        return DDP_OK;
    }
    if (vocabulary == 0 || options->vocab_size)
        return DDP_OK;
    if (info->bytes && vocabulary != BYTES)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s is a text, whose bytes would be taken as tokens of the vocabulary of "
                        "%" PRId64
                        " that --%s %s has: name the model's tokenizer with --tokenizer, "
                        "or train a model of bytes without --%s",
                        info->path, vocabulary, flag, path, flag);
    int32_t *x = ddp_array_alloc(3 * info->sample_values, sizeof *x);
    if (!x)
        return DDP_ERR_MEMORY;
    ddp_log_hold(unsaid, sizeof unsaid);
    const enum ddp_status status = ddp_dataset_read(run->data, samples, 3, x, NULL);
    ddp_log_hold(NULL, 0);
    free(x);
    if (status != DDP_OK)
        return ddp_fail(
            status == DDP_ERR_FORMAT ? DDP_ERR_INVALID : status,
            "the tokens do not fit the model of --%s %s: %s: give tokens of the model's "
            "tokenizer, or train another model without --%s",
            flag, path, unsaid, flag);
    return DDP_OK;
}

/* While texts are encoded, until the job is taken down. A new phase is progress, for --timeout. */
static bool goes_on(void *arg, double share)
{
    ddp_job *job = arg;
    char phase[16] = "await texts";
    if (share >= 0)
        snprintf(phase, sizeof phase, "encode %.0f %%", 100 * share);
    ddp_job_report(job, phase, 0);
    return *ddp_job_abort_word(job) == 0;
}

/* Opens the sets that the options name. */
static enum ddp_status open_sets(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    struct ddp_dataset_options data = {
        .path = options->data,
        .val = options->val,
        .own = options->own_data,
        .own_test = options->own_test,
        .val_split = options->val_split,
        .unlabelled = options->predict && !options->eval_only,
        .normalize = options->normalize,
        .class_count = options->vocab_size ? options->vocab_size : ddp_run_model_classes(run),
        .seq_len = ddp_run_sequence_length(run),
        .tokens = (enum ddp_token_kind)options->tokens,
        .chat = options->chat_template,
        .packing = (enum ddp_packing_kind)options->packing,
        .long_samples = (enum ddp_long_kind)options->long_samples,
        .watch = {goes_on, run->job},
        .data_size = options->data_size,
        .seed = options->seed,
        .image_height = options->image_height,
        .image_width = options->image_width,
    };
    const char *source = options->dataset;
    if (!source && !options->data)
        source = run->plan.model->dataset;
    enum ddp_status status = DDP_OK;
    if (!options->own_data)
        status = ddp_train_open_tokenizer(&run->tokenizer, options, run->plan.rank == 0);
    data.tokenizer = run->tokenizer;
    if (status == DDP_OK)
        status = ddp_dataset_open(source, &data, &run->data, options->evaluate ? &run->test : NULL);
    ddp_job_report(run->job, "start", 0);
    if (status == DDP_OK && options->show_masks && run->out)
        status = ddp_train_show_masks(run->data, run->tokenizer, options->show_masks, run->out);
    return status;
}

static enum ddp_status open_data(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    enum ddp_status status = open_sets(run);
    if (status == DDP_OK)
        status = check_fit(run);
    if (status == DDP_OK)
        status = check_val(run);
    if (status == DDP_OK)
        status = check_vocabulary(run);
    if (status == DDP_OK)
        status = ddp_run_check_evaluation(run);
    if (status == DDP_OK && run->plan.rank == 0)
        status = ddp_train_data_notes(options, run->data, run->test);
    if (status == DDP_OK)
        status = ddp_train_plan_steps(&run->plan, options, ddp_dataset_info(run->data));
    return status;
}

/* For a plan without any: their shape. */
static enum ddp_status open_shape(struct ddp_run *run)
{
    enum ddp_status status = ddp_run_open_shape(run);
    if (status == DDP_OK)
        status = check_fit(run);
    if (status == DDP_OK)
        status = ddp_train_plan_steps(&run->plan, run->options, ddp_dataset_info(run->data));
    return status;
}

static enum ddp_status build_model(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const struct ddp_dataset_info *info = ddp_dataset_info(run->data);
    struct ddp_model_config *config = &run->model_config;
    *config = (struct ddp_model_config){
        .batch = run->plan.batch_size,
        .features = (int64_t)info->sample_values,
        .classes = info->class_count,
        .dim_count = info->dim_count,
        .x_dtype = info->x_dtype,
        .label_count = info->label_count,
        .label_dtype = info->float_labels ? DDP_F32 : DDP_I32,
        .size = options->size,
        .own = *ddp_train_model_own(options),
    };
    for (int i = 0; i < info->dim_count; i++)
        config->dims[i] = info->dims[i];
    ddp_train_config_dtype(config, &run->plan, options->dtype == DDP_TRAIN_BF16);
    config->recompute = options->recompute;
    if (ddp_train_evaluates_only(options) && config->classes < run->load.config.classes)
        config->classes = run->load.config.classes; /* of samples without labels */
    enum ddp_status status = ddp_run_apply_config(run, config);
    if (status == DDP_OK)
        status = ddp_model_configure(run->plan.model, config);
    if (status == DDP_OK)
        status = ddp_model_build(&run->graph, run->plan.model, config);
    if (status == DDP_OK)
        status = ddp_exec_check_device(run->graph, run->plan.device.name);
    if (status == DDP_OK && !ddp_train_evaluates_only(options) &&
        ddp_graph_frozen_count(run->graph) > 0 && ddp_graph_element_count(run->graph) == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model %s has nothing to learn: all of its parameters are frozen",
                        run->plan.model->name);
    if (status == DDP_OK && info->label_count == 0 && !ddp_train_evaluates_only(options) &&
        ddp_exec_graph_input_bytes(run->graph, 1) > 0)
        return ddp_fail(DDP_ERR_INVALID, "the model %s has an input of labels, and %s has none",
                        run->plan.model->name, ddp_dataset_where(info));
    if (status == DDP_OK && options->sync_batch_norm && ddp_graph_statistics_count(run->graph) == 0)
        return ddp_fail(DDP_ERR_INVALID, "--sync-batch-norm: the model %s has no batch norm",
                        run->plan.model->name);
    if (status == DDP_OK && options->recompute && ddp_graph_block_count(run->graph) == 0)
        return ddp_fail(DDP_ERR_INVALID, "--recompute: the model %s has no blocks",
                        run->plan.model->name);
    if (status == DDP_OK && ddp_train_plan_has_tail(&run->plan)) {
        struct ddp_model_config tail = *config;
        tail.batch = run->plan.tail_rows;
        status = ddp_model_build(&run->tail_graph, run->plan.model, &tail);
    }
    return status;
}

/* More memory than the machine has would be promised by the kernel, and its use ended by a kill. A
 * checkpoint brings its own number of lanes, perhaps fewer.
 *   resumed  the lanes are known */
static enum ddp_status check_memory(struct ddp_run *run, bool resumed)
{
    const struct ddp_train_options *options = run->options;
    const int64_t wanted = run->plan.wanted_lanes;
    if (options->plan)
        return DDP_OK;
    if (!resumed && (options->resume || options->resume_from))
        ddp_train_plan_lanes(&run->plan, 1);
    enum ddp_status status = ddp_memory_check(run, &run->exchange_bytes);
    ddp_train_plan_lanes(&run->plan, wanted);
    return status;
}

/* The same on all ranks: all GPUs must have the memory. */
static enum ddp_status choose_zero(struct ddp_run *run)
{
    struct ddp_run after = *run;
    struct ddp_memory_limits limits;
    ddp_device *device = NULL;
    int64_t zero = 0;
    if (!run->plan.zero_open || run->options->plan || ddp_train_evaluates_only(run->options))
        return DDP_OK;
    enum ddp_status status =
        ddp_device_open(&device, run->plan.device.name, run->plan.devices[0], 1);
    if (status == DDP_OK)
        ddp_memory_of_device(device, &limits, &after.device_bytes);
    ddp_device_close(device);
    if (status == DDP_OK)
        status = ddp_memory_choose_zero(&after, &limits);
    zero = after.plan.zero;
    if (status == DDP_OK)
        status = ddp_comm_allreduce(run->comm, &zero, 1, DDP_I64, DDP_MAX);
    run->plan.zero = zero != 0;
    return status;
}

/* Rank 0's. */
static enum ddp_status fill_weights(struct ddp_run *run)
{
    run->weights = ddp_array_alloc((size_t)ddp_graph_flat_count(run->graph), sizeof(float));
    return run->weights ? ddp_run_begin_weights(run, run->weights, run->frozen.values)
                        : DDP_ERR_MEMORY;
}

/* What is learned goes to all when the mode is made. */
static enum ddp_status init_weights(struct ddp_run *run)
{
    enum ddp_status status = DDP_OK;
    if (run->options->plan)
        return DDP_OK;
    status = ddp_frozen_host_alloc(&run->frozen, run->graph, run->comm,
                                   run->plan.device.host_memory, run->model_config.compute);
    if (status == DDP_OK && run->plan.rank == 0)
        status = fill_weights(run);
    if (status == DDP_OK && run->plan.rank == 0)
        run->frozen_hash = ddp_frozen_hash(run->graph, run->frozen.values);
    if (status == DDP_OK)
        status = ddp_frozen_host_complete(&run->frozen, run->graph, run->plan.nodes);
    return status;
}

static enum ddp_status create_mode(struct ddp_run *run)
{
    const struct ddp_mode_setup setup =
        ddp_run_mode_setup(run, &run->plan, run->graph, run->tail_graph, run->model_config.compute);
    enum ddp_status status = ddp_mode_create(&run->mode, run->plan.mode, &setup);
    free(run->weights); /* the mode has its own */
    run->weights = NULL;
    if (!run->frozen.shared)
        ddp_frozen_host_free(&run->frozen);
    return status;
}

static enum ddp_status create_evaluator(struct ddp_run *run)
{
    const struct ddp_train_evaluator_setup setup = {
        .mode = run->mode,
        .comm = run->comm,
        .stages = ddp_train_plan_stage_workers(&run->plan),
        .model = run->plan.model,
        .config = &run->model_config,
        .test = run->test,
        .samples = run->plan.eval_samples,
        .confusion = run->options->report.verbose,
        .threads = (int)run->options->data_threads,
    };
    const bool wanted = run->options->eval_only || !run->options->predict;
    if (!wanted || !run->test || ddp_dataset_info(run->test)->label_count == 0)
        return DDP_OK;
    return ddp_train_evaluator_create(&run->evaluator, &setup);
}

/* Only a device with memory of its own knows whether it suffices: when it does not, the message
 * says what would. */
static enum ddp_status on_device(struct ddp_run *run,
                                 enum ddp_status (*create)(struct ddp_run *run))
{
    char message[1024];
    ddp_log_hold(message, sizeof message);
    enum ddp_status status = create(run);
    ddp_log_hold(NULL, 0);
    if (status == DDP_ERR_MEMORY && *message) {
        ddp_mode_destroy(run->mode); /* makes room to ask the device */
        run->mode = NULL;
        return ddp_memory_explain(run, message);
    }
    return *message ? ddp_fail(status, "%s", message) : status;
}

static enum ddp_status alloc_batch(void *device, size_t bytes, void **memory)
{
    return ddp_device_host_alloc(device, bytes, memory);
}

static void free_batch(void *device, void *memory, size_t bytes)
{
    ddp_device_host_free(device, memory, bytes);
}

enum ddp_status ddp_run_open_loader(const struct ddp_run *run, int64_t step, int depth,
                                    ddp_loader **loader)
{
    const struct ddp_train_plan *plan = &run->plan;
    const int64_t shards = plan->local_shards * plan->replicas;
    struct ddp_loader_config config = {
        .dataset = run->data,
        .sampler = plan->sampler,
        .batch_size = plan->batch_size,
        .first_shard = plan->rank / ddp_train_plan_stage_workers(plan) * shards,
        .shard_count = shards,
        .epoch = step / plan->steps_per_epoch,
        .step = step % plan->steps_per_epoch,
        .end_epoch = -1,
        .augment = {.crop = run->options->crop,
                    .flip = run->options->flip,
                    .seed = run->options->seed},
        .threads = (int)run->options->data_threads,
        .memory = {alloc_batch, free_batch, ddp_mode_device(run->mode)},
        .depth = depth,
    };
    return ddp_loader_create(loader, &config);
}

enum ddp_status ddp_run_open(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const bool launched = getenv(DDP_BOARD_FD_VARIABLE) != NULL;
    enum ddp_status status = ddp_job_open(&run->job);
    if (status != DDP_OK)
        return status;
    run->program_bytes = ddp_memory_peak() + PROGRAM_GROWS;
    if (ddp_train_options_accept_stop(options))
        status = ddp_job_accept_stop(run->job);
    if (status != DDP_OK)
        return status;
    ddp_job_sole_output(run->job);
    ddp_job_report(run->job, "start", 0);
    if (ddp_job_rank(run->job) != 0 || options->quiet)
        run->out = NULL;
    status = ddp_train_check_pairs(options);
    if (status == DDP_OK)
        status = ddp_load_open(&run->load, options, ddp_job_rank(run->job) == 0);
    if (status == DDP_OK)
        status = ddp_load_choose_model(&run->load, run->options);
    if (status == DDP_OK)
        status = ddp_train_plan_workers(&run->plan, options, run->job, launched);
    if (status == DDP_OK)
        status = ddp_run_check_prediction(run);
    if (status == DDP_OK && run->plan.rank == 0)
        status = ddp_train_check_outputs(options, run->out);
    if (status == DDP_OK && ddp_train_evaluates_only(options))
        run->plan.optimizer = (struct ddp_optimizer_config){.name = "sgd"}; /* without a state */
    /* A plan reads a checkpoint, and leaves nothing behind. */
    const bool resumes = options->resume || options->resume_from;
    if (status == DDP_OK && (resumes || !options->plan))
        status = ddp_run_checkpoint_open(run);
    if (status == DDP_OK)
        status = ddp_run_read_config(run);
    if (status == DDP_OK)
        status = ddp_run_lacks_data(run) ? open_shape(run) : open_data(run);
    if (status == DDP_OK)
        status = build_model(run);
    if (status == DDP_OK && run->plan.rank == 0 && !options->plan)
        status = ddp_run_check_room(run, ddp_run_export_bytes(run));
    if (status == DDP_OK)
        status = ddp_run_plan_cuts(run);
    if (status == DDP_OK)
        status = check_memory(run, false);
    if (status == DDP_OK)
        status = ddp_comm_create(&run->comm, run->job, NULL);
    if (status == DDP_OK)
        status = ddp_run_meet_nodes(run);
    if (status == DDP_OK)
        status = ddp_run_check_directory(run);
    if (status == DDP_OK)
        status = ddp_run_check_devices(run);
    if (status == DDP_OK)
        status = init_weights(run);
    if (status == DDP_OK && (resumes || !options->plan))
        status = ddp_run_resume(run);
    if (status == DDP_OK)
        status = ddp_run_balance_cuts(run);
    if (status == DDP_OK)
        status = on_device(run, choose_zero);
    if (status == DDP_OK)
        status = check_memory(run, true);
    if (status != DDP_OK || options->plan)
        return status;
    status = on_device(run, create_mode);
    if (status == DDP_OK)
        status = ddp_run_restore(run);
    if (status == DDP_OK)
        status = on_device(run, create_evaluator);
    if (status == DDP_OK)
        status = ddp_run_best_open(run);
    if (status == DDP_OK)
        status = ddp_run_sample_open(run);
    if (status == DDP_OK && !ddp_train_evaluates_only(options))
        status = ddp_run_open_loader(run, run->first_step, ddp_run_loader_depth(&run->plan),
                                     &run->loader);
    return status;
}

void ddp_run_close(struct ddp_run *run)
{
    ddp_run_checkpoint_close(run); /* waits for what is being written */
    ddp_loader_destroy(run->loader);
    ddp_trace_close(run->complete && ddp_job_node_rank(run->job) == 0);
    ddp_train_evaluator_destroy(run->evaluator);
    ddp_run_sample_close(run);
    ddp_mode_destroy(run->mode);
    ddp_frozen_host_free(&run->frozen);
    ddp_comm_destroy(run->comm);
    free(run->weights);
    free(run->hosts);
    free(run->tensors);
    ddp_graph_destroy(run->tail_graph);
    ddp_graph_destroy(run->graph);
    ddp_dataset_close(run->test);
    ddp_dataset_close(run->data);
    ddp_tokenizer_close(run->tokenizer);
    ddp_load_close(&run->load);
    ddp_job_close(run->job);
}

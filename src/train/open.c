/* SPDX-License-Identifier: MIT
 *
 * Opens a training run: job, plan, data, model, weights, communicator, mode, evaluator, loader. */
#include "config.h"

#include "train/run.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "graph/exec.h"
#include "job/board.h"
#include "job/job.h"
#include "train/best.h"
#include "train/data_notes.h"
#include "train/devices.h"
#include "plan/weights.h"
#include "train/nodes.h"
#include "train/outputs.h"
#include "train/pipeline.h"
#include "train/predict.h"
#include "generate/texts.h"

#include <inttypes.h>
#include <stdlib.h>

#define PROGRAM_GROWS ((size_t)14 << 20) /* while it trains: generated code, threads */

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
    const struct ddp_train_options *options = run->planned.options;
    struct ddp_dataset_options data = {
        .path = options->data,
        .val = options->val,
        .own = options->own_data,
        .own_test = options->own_test,
        .val_split = options->val_split,
        .unlabelled = options->predict && !options->eval_only,
        .embeds = ddp_planned_embeds(&run->planned),
        .normalize = options->normalize,
        .class_count =
            options->vocab_size ? options->vocab_size : ddp_planned_model_classes(&run->planned),
        .seq_len = ddp_planned_sequence_length(&run->planned),
        .tokens = (enum ddp_token_kind)options->tokens,
        .chat = options->chat_template,
        .packing = (enum ddp_packing_kind)options->packing,
        .long_samples = (enum ddp_long_kind)options->long_samples,
        .preferences = options->objective.kind == DDP_OBJECTIVE_NONE  ? DDP_PREFERENCES_NONE
                       : options->objective.kind == DDP_OBJECTIVE_KTO ? DDP_PREFERENCES_RATED
                                                                      : DDP_PREFERENCES_PAIRS,
        .group = run->planned.plan.batch_size,
        .watch = {goes_on, run->job},
        .data_size = options->data_size,
        .seed = options->seed,
        .image_height = options->image_height,
        .image_width = options->image_width,
        .image_reduced = options->image_reduced,
        .target = options->target,
        .columns = options->columns,
        .ignore = options->ignore,
        .header_given = ddp_train_given(options, "header"),
        .header = options->header,
        .keep_rows = options->predict != NULL,
        .description = run->planned.load.data,
    };
    const struct ddp_model *model = run->planned.plan.model;
    const char *source = options->dataset;
    if (!source && (!options->data || model->sentence))
        source = model->dataset;
    enum ddp_status status = DDP_OK;
    if (model->sentence)
        status = ddp_planned_open_wordpiece(&run->planned);
    else if (!options->own_data)
        status = ddp_train_open_tokenizer(&run->tokenizer, options, run->planned.plan.rank == 0);
    run->planned.program_bytes = ddp_memory_peak() + PROGRAM_GROWS; /* with the tokenizer */
    data.tokenizer = run->tokenizer;
    data.wordpiece = run->planned.wordpiece;
    if (status == DDP_OK)
        status = ddp_dataset_open(source, &data, &run->planned.data,
                                  options->evaluate ? &run->planned.test : NULL);
    ddp_job_report(run->job, "start", 0);
    if (status == DDP_OK && options->show_masks && run->out)
        status =
            ddp_train_show_masks(run->planned.data, run->tokenizer, options->show_masks, run->out);
    return status;
}

static enum ddp_status open_data(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    enum ddp_status status = open_sets(run);
    if (status == DDP_OK)
        status = ddp_planned_check_sets(&run->planned);
    if (status == DDP_OK && run->planned.plan.rank == 0)
        status = ddp_train_data_notes(options, run->planned.data, run->planned.test,
                                      run->planned.load.data);
    if (status == DDP_OK)
        status =
            ddp_train_plan_steps(&run->planned.plan, options, ddp_dataset_info(run->planned.data));
    return status;
}

/* For a plan without any: their shape. */
static enum ddp_status open_shape(struct ddp_run *run)
{
    enum ddp_status status = ddp_planned_open_shape(&run->planned);
    if (status == DDP_OK)
        status = ddp_planned_check_fit(&run->planned);
    if (status == DDP_OK)
        status = ddp_train_plan_steps(&run->planned.plan, run->planned.options,
                                      ddp_dataset_info(run->planned.data));
    return status;
}

/* More memory than the machine has would be promised by the kernel, and its use ended by a kill. A
 * checkpoint brings its own number of lanes, perhaps fewer.
 *   resumed  the lanes are known */
static enum ddp_status check_memory(struct ddp_run *run, bool resumed)
{
    const struct ddp_train_options *options = run->planned.options;
    const int64_t wanted = run->planned.plan.wanted_lanes;
    const bool copies = run->planned.plan.copies;
    if (options->plan)
        return DDP_OK;
    run->planned.plan.copies = false; /* without room for them there are none */
    if (!resumed && (options->resume || options->resume_from))
        ddp_train_plan_lanes(&run->planned.plan, 1);
    enum ddp_status status = ddp_memory_check(&run->planned, &run->planned.exchange_bytes);
    ddp_train_plan_lanes(&run->planned.plan, wanted);
    run->planned.plan.copies = copies;
    return status;
}

/* The same on all ranks: all GPUs must have the memory. */
static enum ddp_status choose_zero(struct ddp_run *run)
{
    struct ddp_planned after = run->planned;
    struct ddp_memory_limits limits;
    ddp_device *device = NULL;
    int64_t zero = 0;
    if (!run->planned.plan.zero_open || run->planned.options->plan ||
        ddp_train_evaluates_only(run->planned.options))
        return DDP_OK;
    enum ddp_status status =
        ddp_device_open(&device, run->planned.plan.device.name, run->planned.plan.devices[0], 1);
    if (status == DDP_OK)
        ddp_memory_of_device(device, &limits, &after.device_bytes);
    ddp_device_close(device);
    if (status == DDP_OK)
        status = ddp_memory_choose_zero(&after, &limits);
    zero = after.plan.zero;
    if (status == DDP_OK)
        status = ddp_comm_allreduce(run->comm, &zero, 1, DDP_I64, DDP_MAX);
    run->planned.plan.zero = zero != 0;
    return status;
}

/* Rank 0's. Where others may be in a checkpoint or in a copy in memory, no time and no room is
 * spent on those that training began with. */
static enum ddp_status fill_weights(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    run->weights_due =
        (options->resume || options->resume_from || (run->copy && ddp_copy_step(run->copy) >= 0)) &&
        !ddp_run_refers(run) && ddp_graph_frozen_count(run->planned.graph) == 0;
    return run->weights_due ? DDP_OK : ddp_run_begin_weights(run);
}

/* What is learned goes to all when the mode is made. */
static enum ddp_status init_weights(struct ddp_run *run)
{
    enum ddp_status status = DDP_OK;
    if (run->planned.options->plan)
        return DDP_OK;
    status = run->planned.plan.thin_weights
                 ? ddp_frozen_host_alloc_thin(&run->frozen, run->planned.graph, run->comm,
                                              run->planned.model_config.compute)
                 : ddp_frozen_host_alloc(&run->frozen, run->planned.graph, run->comm,
                                         run->planned.plan.device.host_memory,
                                         run->planned.model_config.compute);
    if (status == DDP_OK && run->planned.plan.rank == 0)
        status = fill_weights(run);
    if (status == DDP_OK && run->planned.plan.rank == 0 && ddp_run_refers(run))
        run->reference_hash = ddp_hash(
            run->weights, (size_t)ddp_graph_flat_count(run->planned.graph) * sizeof(float));
    if (status == DDP_OK && run->planned.plan.rank == 0)
        run->frozen_hash = ddp_frozen_hash(run->planned.graph, run->frozen.values);
    if (status == DDP_OK)
        status =
            ddp_frozen_host_complete(&run->frozen, run->planned.graph, run->planned.plan.nodes);
    return status;
}

static enum ddp_status create_mode(struct ddp_run *run)
{
    const size_t bytes = (size_t)ddp_graph_flat_count(run->planned.graph) * sizeof(float);
    enum ddp_status status = DDP_OK;
    struct ddp_mode_setup setup =
        ddp_planned_setup(&run->planned, &run->planned.plan, run->planned.graph,
                          run->planned.tail_graph, run->planned.model_config.compute);
    setup.job = run->job;
    setup.comm = run->comm;
    setup.weights = run->weights;
    if (run->weights_later && !ddp_run_refers(run)) {
        setup.weights = NULL;
        setup.everywhere = true;
    } else if (run->source && !ddp_run_refers(run)) {
        setup.everywhere = run->everywhere;
        status = ddp_copy_array(run->source, 0, bytes, &setup.weights);
    }
    setup.frozen = &run->frozen;
    setup.gradient_norm = setup.gradient_norm || run->own_loop || run->hooks->after_step;
    if (status == DDP_OK)
        status = ddp_mode_create(&run->mode, run->planned.plan.mode, &setup);
    free(run->weights); /* the mode has its own */
    run->weights = NULL;
    if (!run->frozen.shared)
        ddp_frozen_host_free(&run->frozen);
    return status;
}

static enum ddp_status create_evaluator(struct ddp_run *run)
{
    struct ddp_train_evaluator_setup setup =
        ddp_run_evaluator_setup(run, run->planned.test, run->planned.plan.eval_samples);
    setup.confusion = run->planned.options->report.verbose;
    setup.threads = (int)run->planned.options->data_threads;
    const bool wanted = run->planned.options->eval_only || !run->planned.options->predict;
    if (!wanted || !run->planned.test || ddp_dataset_info(run->planned.test)->label_count == 0)
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
        return ddp_memory_explain(&run->planned, message);
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
    const struct ddp_train_plan *plan = &run->planned.plan;
    const int64_t shards = ddp_train_plan_process_shards(plan);
    struct ddp_loader_config config = {
        .dataset = run->planned.data,
        .sampler = plan->sampler,
        .batch_size = plan->batch_size,
        .first_shard = plan->mode == DDP_MODE_DP ? 0 : ddp_lanes_first_shard(&plan->run),
        .shard_count = shards,
        .epoch = step / plan->steps_per_epoch,
        .step = step % plan->steps_per_epoch,
        .end_epoch = -1,
        .augment = run->planned.options->augment,
        .threads = (int)run->planned.options->data_threads,
        .memory = {alloc_batch, free_batch, ddp_mode_device(run->mode)},
        .depth = depth,
    };
    config.augment.seed = run->planned.options->seed;
    const bool softens = ddp_augment_softens(&config.augment);
    if (softens && !ddp_graph_takes_soft_labels(run->planned.graph))
        return ddp_fail(DDP_ERR_INVALID,
                        "--augment: mixup and smooth soften labels for a softmax cross-entropy, "
                        "and the model %s has another loss: leave them out",
                        plan->model->name);
    return ddp_loader_create(loader, &config);
}

enum ddp_status ddp_run_open(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    const bool launched = getenv(DDP_BOARD_FD_VARIABLE) != NULL;
    enum ddp_status status = ddp_job_open(&run->job);
    if (status != DDP_OK)
        return status;
    run->planned.program_bytes = ddp_memory_peak() + PROGRAM_GROWS;
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
        status = ddp_load_open(&run->planned.load, options, ddp_job_rank(run->job) == 0);
    if (status == DDP_OK)
        status = ddp_load_choose_model(&run->planned.load, run->planned.options);
    if (status == DDP_OK)
        status = ddp_train_plan_workers(&run->planned.plan, options, run->job, launched);
    if (status == DDP_OK)
        status = ddp_run_check_prediction(run);
    if (status == DDP_OK && run->planned.plan.rank == 0)
        status = ddp_train_check_outputs(options, run->out);
    if (status == DDP_OK && ddp_train_evaluates_only(options))
        run->planned.plan.optimizer =
            (struct ddp_optimizer_config){.name = "sgd"}; /* without a state */
    /* A plan reads a checkpoint, and leaves nothing behind. */
    const bool resumes = options->resume || options->resume_from;
    if (status == DDP_OK && (resumes || !options->plan))
        status = ddp_run_checkpoint_open(run);
    if (status == DDP_OK)
        status = ddp_run_copy_open(run);
    if (status == DDP_OK)
        status = ddp_planned_read_config(&run->planned);
    if (status == DDP_OK)
        status = ddp_planned_lacks_data(&run->planned) ? open_shape(run) : open_data(run);
    if (status == DDP_OK)
        status = ddp_planned_build(&run->planned);
    if (status == DDP_OK && run->planned.plan.rank == 0 && !options->plan)
        status = ddp_run_check_room(run, ddp_planned_export_bytes(&run->planned));
    if (status == DDP_OK)
        status = ddp_planned_cut(&run->planned);
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
        status = ddp_run_make_reference(run);
    if (status == DDP_OK)
        status = ddp_run_restore(run);
    if (status == DDP_OK)
        status = ddp_run_copy_reserve(run);
    if (status == DDP_OK)
        ddp_job_limit_workers(run->job, ddp_train_plan_most_workers(&run->planned.plan));
    if (status == DDP_OK)
        status = on_device(run, create_evaluator);
    if (status == DDP_OK)
        status = ddp_run_best_open(run);
    if (status == DDP_OK)
        status = ddp_run_sample_open(run);
    if (status == DDP_OK && !ddp_train_evaluates_only(options))
        status = ddp_run_open_loader(run, run->first_step,
                                     ddp_train_plan_loader_depth(&run->planned.plan), &run->loader);
    return status;
}

void ddp_run_close(struct ddp_run *run)
{
    ddp_run_checkpoint_close(run); /* waits for what is being written */
    ddp_loader_destroy(run->loader);
    ddp_trace_close(run->complete && ddp_job_node_rank(run->job) == 0);
    json_decref(run->record);
    ddp_train_evaluator_destroy(run->evaluator);
    ddp_run_sample_close(run);
    ddp_mode_destroy(run->mode);
    ddp_frozen_host_free(&run->frozen);
    ddp_comm_destroy(run->comm);
    free(run->weights);
    free(run->hosts);
    free(run->tensors);
    ddp_planned_close(&run->planned);
    ddp_tokenizer_close(run->tokenizer);
    ddp_job_close(run->job);
}

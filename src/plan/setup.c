/* SPDX-License-Identifier: MIT
 *
 * What a run's mode and loader are made from, as its plan and options say. */
#include "config.h"

#include "plan/planned.h"

#define THIN_BUCKET_MB 4  /* a block's weights begin and end inside buckets, which come whole */
#define LOADER_DEPTH   16 /* batches read ahead: what evens out a slow read */

void ddp_planned_close(struct ddp_planned *planned)
{
    ddp_graph_destroy(planned->tail_graph);
    ddp_graph_destroy(planned->graph);
    ddp_dataset_close(planned->test);
    ddp_dataset_close(planned->data);
    ddp_wordpiece_close(planned->wordpiece);
    ddp_load_close(&planned->load);
}

struct ddp_mode_setup ddp_planned_setup(const struct ddp_planned *planned,
                                        const struct ddp_train_plan *plan, const ddp_graph *graph,
                                        const ddp_graph *tail_graph, enum ddp_dtype compute)
{
    const struct ddp_train_options *options = planned->options;
    const bool thin = plan->thin_weights && !ddp_train_given(options, "bucket-mb");
    const double bucket_mb = thin ? THIN_BUCKET_MB : options->bucket_mb;
    return (struct ddp_mode_setup){
        .graph = graph,
        .tail_graph = tail_graph,
        .compute = compute,
        .loss_scale = options->loss_scale,
        .scale_every = options->scale_every,
        .batch_rows = plan->batch_size,
        .tail_rows = plan->tail_rows,
        .device = plan->device.name,
        .devices = plan->devices,
        .fast = options->fast,
        .threads = plan->threads,
        .replicas = plan->replicas,
        .local_shards = plan->local_shards,
        .run = plan->run,
        .global_shards = plan->global_shards,
        .seed = options->seed,
        .optimizer = plan->optimizer,
        .decay_matrices_only = plan->decay_matrices_only,
        .clip_norm = plan->clip_norm,
        .only_finite = options->nan != DDP_NAN_WARN,
        .gradient_norm =
            options->report.log || options->report.tensorboard || options->nan == DDP_NAN_SKIP,
        .zero = plan->zero,
        .thin_gradients = plan->thin_gradients,
        .thin_weights = plan->thin_weights,
        .whole_weights = options->sample_every > 0,
        .shared_weights = plan->shared_weights,
        .wire_bf16 = options->wire_dtype == DDP_TRAIN_BF16,
        .sync_batch_norm = plan->sync_batch_norm,
        .local = plan->local,
        .stages = plan->stages,
        .cuts = plan->cuts,
        .bucket_bytes = (size_t)(bucket_mb * 1048576),
    };
}

/* Batches held at once: DataParallel takes all of a step before it begins (the loader's default is
 * enough for that); a pipeline holds those between its ends; the others hold one, so that
 * accumulation costs time, not memory. */
int ddp_train_plan_loader_depth(const struct ddp_train_plan *plan)
{
    const int64_t two_steps = 2 * plan->local_shards + 1;
    const int64_t depth = LOADER_DEPTH + (plan->stages > 1 ? 2 * plan->stages : 0);
    if (plan->mode == DDP_MODE_DP)
        return 0;
    return (int)(two_steps < depth ? two_steps : depth);
}

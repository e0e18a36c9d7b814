/* SPDX-License-Identifier: MIT
 *
 * DataParallel, the older way: one process, a replica and a thread for each device, and a master
 * (replica 0's device) that everything waits for. A step, as torch.nn.DataParallel does it:
 *   - the master broadcasts the weights and scatters the inputs,
 *   - the replicas run forward,
 *   - the master gathers the outputs, computes the loss, returns its gradient,
 *   - the replicas run backward,
 *   - the master sums the gradients and updates its weights.
 *
 * With several shards a replica, everything from scattering to backward repeats before the sum. The
 * host puts all of it in line, and waits only for the sum; where a device needs what another made,
 * its stream waits. Gradients are summed in pairs, on the first one's device, and end on the
 * master's.
 *
 * Replica r runs the shards that rank r would run under DDP, so the sums are the same trees and end
 * in the same bits. */
#include "config.h"

#include "mode/replica_threads.h"
#include "mode/updater.h"

#include "core/memory.h"
#include "core/trace.h"
#include "kernels/merge.h"

#include <stdlib.h>

#define REPLICA_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_BACKWARD)
#define MASTER_PARTS  (DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

struct dp {
    struct ddp_mode_setup setup;
    struct ddp_replica *replicas; /* 0 is the master's */
    int replica_count;
    ddp_exec *loss_exec, *tail_loss_exec; /* on the master */
    float *loss;     /* where they write the loss: DDP_FLAT_ALIGN floats of the master */
    int32_t *labels; /* staging of labels on the master; NULL when not needed */
    float **staging; /* of each replica: gradients that come from another device; or NULL */
    struct ddp_updater updater;
    ddp_replica_threads *team;
    const struct ddp_batch **batches; /* of a step: replica r, shard i: [r * local_shards + i] */
    bool failed;
};

#define LOSS_BYTES (DDP_FLAT_ALIGN * sizeof(float))

static struct ddp_replica *master(const struct dp *dp)
{
    return &dp->replicas[0];
}

static size_t labels_bytes(const struct dp *dp)
{
    return ddp_exec_input_bytes(dp->loss_exec, 1);
}

static void destroy(void *state)
{
    struct dp *dp = state;
    /* No device waits for another one any more when memory is freed. */
    for (int r = 0; !dp->failed && r < dp->replica_count; r++)
        (void)ddp_device_synchronize(dp->replicas[r].device);
    ddp_replica_threads_destroy(dp->team);
    ddp_updater_close(&dp->updater);
    if (dp->labels)
        ddp_device_free(master(dp)->device, dp->labels, labels_bytes(dp));
    if (dp->replica_count > 0)
        ddp_device_free(master(dp)->device, dp->loss, LOSS_BYTES);
    ddp_exec_destroy(dp->tail_loss_exec);
    ddp_exec_destroy(dp->loss_exec);
    for (int r = 0; r < dp->replica_count; r++)
        ddp_device_free(dp->replicas[r].device, dp->staging[r], dp->replicas[r].flat_bytes);
    for (int r = dp->replica_count - 1; r >= 0; r--)
        ddp_replica_close(&dp->replicas[r]);
    free(dp->staging);
    free(dp->replicas);
    free(dp->batches);
    free(dp);
}

/* What only the master has: the loss, the optimizer. */
static enum ddp_status create_master(struct dp *dp)
{
    const struct ddp_mode_setup *setup = &dp->setup;
    ddp_device *device = master(dp)->device;
    enum ddp_status status =
        ddp_exec_create(&dp->loss_exec, setup->graph, device, MASTER_PARTS, master(dp)->weights);
    if (status == DDP_OK && setup->tail_graph)
        status = ddp_exec_create(&dp->tail_loss_exec, setup->tail_graph, device, MASTER_PARTS,
                                 master(dp)->weights);
    if (status == DDP_OK)
        status = ddp_device_alloc(device, LOSS_BYTES, (void **)&dp->loss);
    if (status == DDP_OK && !ddp_device_host_memory(device))
        status = ddp_device_alloc(device, labels_bytes(dp), (void **)&dp->labels);
    if (status == DDP_OK)
        status = ddp_updater_open(&dp->updater, master(dp), setup, master(dp)->flat_count, NULL);
    return status;
}

/* Can one replica's device read the other's memory as its own? */
static bool share_memory(const struct dp *dp, int a, int b)
{
    const int *devices = dp->setup.devices;
    return ddp_device_host_memory(master(dp)->device) || (devices && devices[a] == devices[b]);
}

/* Where the sum over replicas [low, high) is cut in two: as over ranks. */
static int middle_of(int low, int high)
{
    int half = 1;
    while (half * 2 < high - low)
        half *= 2;
    return low + half;
}

/* Memory for what sum_gradients() takes from other devices. */
static enum ddp_status make_staging(struct dp *dp, int low, int high)
{
    if (high - low < 2)
        return DDP_OK;
    const int middle = middle_of(low, high);
    enum ddp_status status = make_staging(dp, low, middle);
    if (status == DDP_OK)
        status = make_staging(dp, middle, high);
    if (status != DDP_OK || dp->staging[low] || share_memory(dp, low, middle))
        return status;
    return ddp_device_alloc(dp->replicas[low].device, dp->replicas[low].flat_bytes,
                            (void **)&dp->staging[low]);
}

static enum ddp_status create(void **state, const struct ddp_mode_setup *setup)
{
    enum ddp_status status = DDP_OK;
    struct dp *dp = ddp_array_alloc(1, sizeof *dp);
    if (!dp)
        return DDP_ERR_MEMORY;
    dp->setup = *setup;
    dp->replicas = ddp_array_alloc((size_t)setup->replicas, sizeof *dp->replicas);
    dp->batches = ddp_array_alloc((size_t)setup->global_shards, sizeof(const struct ddp_batch *));
    dp->staging = ddp_array_alloc((size_t)setup->replicas, sizeof *dp->staging);
    if (!dp->replicas || !dp->batches || !dp->staging)
        status = DDP_ERR_MEMORY;
    for (; status == DDP_OK && dp->replica_count < setup->replicas; dp->replica_count++) {
        struct ddp_replica *replica = &dp->replicas[dp->replica_count];
        status = ddp_replica_open(replica, setup, dp->replica_count, REPLICA_PARTS, NULL);
        if (status != DDP_OK)
            break;
        status = ddp_replica_stage_inputs(replica);
    }
    if (status == DDP_OK)
        status = make_staging(dp, 0, dp->replica_count);
    if (status == DDP_OK)
        status = create_master(dp);
    if (status == DDP_OK)
        status = ddp_replica_threads_create(&dp->team, dp->replica_count);
    if (status != DDP_OK) {
        dp->failed = true;
        destroy(dp);
        return status;
    }
    *state = dp;
    return DDP_OK;
}

static const struct ddp_batch *batch_of(const struct dp *dp, int replica, int64_t shard)
{
    return dp->batches[replica * dp->setup.local_shards + shard];
}

/* Master: the weights go to all replicas. */
static enum ddp_status broadcast_weights(struct dp *dp)
{
    const struct ddp_replica *from = master(dp);
    const size_t bf16_bytes = from->weights_bf16 ? from->flat_bytes / 2 : 0;
    enum ddp_status status = DDP_OK;
    for (int r = 1; status == DDP_OK && r < dp->replica_count; r++) {
        struct ddp_replica *to = &dp->replicas[r];
        status = ddp_device_wait(to->device, from->device);
        if (status == DDP_OK)
            status = ddp_device_copy(to->device, to->weights, from->weights, from->flat_bytes);
        if (status == DDP_OK && bf16_bytes > 0)
            status = ddp_device_copy(to->device, to->weights_bf16, from->weights_bf16, bf16_bytes);
    }
    return status;
}

/* Master: every replica gets the samples of its current shard. */
static enum ddp_status scatter_inputs(struct dp *dp, int64_t shard)
{
    enum ddp_status status = DDP_OK;
    for (int r = 0; status == DDP_OK && r < dp->replica_count; r++)
        status = ddp_replica_bind(&dp->replicas[r], shard, batch_of(dp, r, shard));
    return status;
}

static enum ddp_status forward_member(void *arg, int member)
{
    struct dp *dp = arg;
    return ddp_replica_forward(&dp->replicas[member]);
}

static enum ddp_status backward_member(void *arg, int member)
{
    struct dp *dp = arg;
    return ddp_replica_backward(&dp->replicas[member], NULL, NULL);
}

/* Master: one replica's output comes in, its loss is computed, the gradient goes back. The loss
 * itself joins the replica's gradients as their element 0, so that it is summed with them. */
static enum ddp_status loss_of(struct dp *dp, int r, const struct ddp_batch *batch)
{
    struct ddp_replica *replica = &dp->replicas[r];
    ddp_device *device = master(dp)->device;
    ddp_exec *exec = batch->rows == dp->setup.batch_rows ? dp->loss_exec : dp->tail_loss_exec;
    const size_t bytes = ddp_exec_output_bytes(exec);
    float *gradients = ddp_lanes_array(&replica->lanes);
    const bool adding = !ddp_lanes_first(&replica->lanes);
    enum ddp_status status = ddp_exec_load_input(exec, 1, batch->labels, dp->labels);
    ddp_exec_set_gradients(exec, dp->loss);
    ddp_exec_set_adding(exec, adding);
    if (status == DDP_OK)
        status = ddp_device_wait(device, replica->device);
    if (status == DDP_OK && adding)
        status = ddp_device_copy(device, dp->loss, gradients, sizeof(float));
    if (status == DDP_OK)
        status = ddp_device_copy(device, ddp_exec_output(exec), ddp_exec_output(replica->current),
                                 bytes);
    if (status == DDP_OK)
        status = ddp_exec_loss(exec);
    if (status == DDP_OK)
        status = ddp_exec_loss_backward(exec);
    if (status == DDP_OK)
        status = ddp_device_copy(device, ddp_exec_output_gradient(replica->current),
                                 ddp_exec_output_gradient(exec), bytes);
    if (status == DDP_OK)
        status = ddp_device_copy(device, gradients, dp->loss, sizeof(float));
    if (status == DDP_OK)
        status = ddp_device_wait(replica->device, device);
    return status;
}

static enum ddp_status run_shard(struct dp *dp, int64_t shard)
{
    int64_t begin = ddp_trace_begin();
    enum ddp_status status = scatter_inputs(dp, shard);
    ddp_trace_end("scatter", begin, "shard", shard);
    if (status == DDP_OK)
        status = ddp_replica_threads_run(dp->team, forward_member, dp);
    begin = ddp_trace_begin();
    for (int r = 0; status == DDP_OK && r < dp->replica_count; r++)
        status = loss_of(dp, r, batch_of(dp, r, shard));
    ddp_trace_end("gather, loss", begin, "shard", shard);
    if (status == DDP_OK)
        status = ddp_replica_threads_run(dp->team, backward_member, dp);
    return status;
}

/* Adds the gradients of replicas [low, high) up in those of `low`, on its device: the same tree
 * over replicas as over ranks. */
static enum ddp_status sum_gradients(struct dp *dp, int low, int high)
{
    if (high - low < 2)
        return DDP_OK;
    const int middle = middle_of(low, high);
    struct ddp_replica *to = &dp->replicas[low], *from = &dp->replicas[middle];
    const float *gradients = from->gradients;
    enum ddp_status status = sum_gradients(dp, low, middle);
    if (status == DDP_OK)
        status = sum_gradients(dp, middle, high);
    if (status == DDP_OK)
        status = ddp_device_wait(to->device, from->device);
    if (status == DDP_OK && !share_memory(dp, low, middle)) {
        gradients = dp->staging[low];
        status = ddp_device_copy(to->device, dp->staging[low], from->gradients, to->flat_bytes);
    }
    if (status != DDP_OK)
        return status;
    struct ddp_merge args = {
        .count = to->flat_count,
        .partial_count = 1,
        .partials = (const float *const[]){to->gradients},
        .leaf = gradients,
        .destination = to->gradients,
    };
    return ddp_device_kernels(to->device)->merge(&args, ddp_device_stream(to->device));
}

static enum ddp_status step(void *state, ddp_loader *loader, double rate, int64_t number,
                            float *loss)
{
    struct dp *dp = state;
    const int64_t shards = dp->setup.global_shards;
    int64_t taken = 0;
    enum ddp_status status = DDP_OK;
    for (int r = 0; r < dp->replica_count; r++)
        dp->replicas[r].step = number;
    ddp_job_report(dp->setup.job, "compute", number);
    for (; status == DDP_OK && taken < shards; taken++) {
        status = ddp_loader_next(loader, &dp->batches[taken]);
        if (status != DDP_OK)
            break;
    }
    if (status == DDP_OK)
        status = broadcast_weights(dp);
    for (int64_t i = 0; status == DDP_OK && i < dp->setup.local_shards; i++)
        status = run_shard(dp, i);
    for (int r = 0; status == DDP_OK && r < dp->replica_count; r++)
        status = ddp_device_copied(dp->replicas[r].device);
    for (int64_t i = 0; i < taken; i++)
        ddp_loader_release(loader, dp->batches[i]);
    const int64_t begin = ddp_trace_begin();
    if (status == DDP_OK)
        status = sum_gradients(dp, 0, dp->replica_count);
    ddp_trace_end("sum gradients", begin, "replicas", dp->replica_count);
    if (status == DDP_OK)
        status = ddp_updater_run(&dp->updater, rate, number, loss);
    /* The sum was behind their work, which is done; errors in the data are reported here. */
    for (int r = 1; status == DDP_OK && r < dp->replica_count; r++)
        status = ddp_device_synchronize(dp->replicas[r].device);
    dp->failed = status != DDP_OK;
    return status;
}

static void memory(const void *state, struct ddp_mode_memory *total)
{
    const struct dp *dp = state;
    size_t loss_arena = 0, tail_arena = 0;
    for (int r = 0; r < dp->replica_count; r++)
        ddp_replica_memory(&dp->replicas[r], &dp->setup, REPLICA_PARTS, total);
    for (int r = 0; r < dp->replica_count; r++)
        total->gradients += dp->staging[r] ? master(dp)->flat_bytes : 0;
    if (ddp_exec_arena_bytes(dp->setup.graph, MASTER_PARTS, &loss_arena) == DDP_OK &&
        (!dp->setup.tail_graph ||
         ddp_exec_arena_bytes(dp->setup.tail_graph, MASTER_PARTS, &tail_arena) == DDP_OK))
        total->activations += loss_arena + tail_arena;
    ddp_updater_memory(&dp->updater, total);
}

static const struct ddp_replica *replica(const void *state)
{
    return master(state);
}

static const struct ddp_updater *updater(const void *state)
{
    return &((const struct dp *)state)->updater;
}

const struct ddp_mode_ops ddp_mode_dp = {
    .name = "dp",
    .create = create,
    .destroy = destroy,
    .step = step,
    .memory = memory,
    .replica = replica,
    .updater = updater,
};

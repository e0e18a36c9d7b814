/* SPDX-License-Identifier: MIT
 *
 * DataParallel, the older way: one process, a replica and a thread for each device, and a master
 * (replica 0's device) that everything waits for. A step, as torch.nn.DataParallel does it:
 *   - the master broadcasts the weights and scatters the inputs,
 *   - the replicas run forward,
 *   - the master gathers the outputs, computes the loss, returns its gradient,
 *   - the replicas run backward,
 *   - the master sums the gradients and updates its weights.
 * A graph whose output is the loss has it computed by each replica, as a module that returns its
 * loss: the master only sums.
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
#include "mode/internal.h"

#include "core/memory.h"
#include "core/trace.h"
#include "kernels/merge.h"
#include "mode/tuning.h"

#include <assert.h>
#include <stdlib.h>

struct dp {
    struct ddp_mode mode;                 /* replica 0 is the master's */
    ddp_exec *loss_exec, *tail_loss_exec; /* on the master */
    float *loss;     /* where they write the loss: DDP_FLAT_ALIGN floats of the master */
    int32_t *labels; /* staging of labels on the master; NULL when not needed */
    struct ddp_soft_labels *soft; /* likewise */
    int64_t cuts[2];              /* of a recorded backward pass: lanes are joined behind them */
    float **staging; /* of each replica: gradients that come from another device; or NULL */
    ddp_replica_threads *team;
    const struct ddp_batch **batches; /* of a step */
    struct root *roots;               /* of all replicas, in the order of the tree */
    int64_t shard;                    /* that each replica runs now, if it has so many */
    int next;                         /* of the roots, while they are added up */
};

/* What a replica has added up of its lanes. */
struct root {
    int replica, number; /* of its roots */
    int end;             /* of the subtree */
    float *sum;
};

#define LOSS_BYTES (DDP_FLAT_ALIGN * sizeof(float))

static struct ddp_replica *replica_of(const struct dp *dp, int r)
{
    return &dp->mode.replicas[r];
}

static struct ddp_replica *master(const struct dp *dp)
{
    return replica_of(dp, 0);
}

static int replica_count(const struct dp *dp)
{
    return dp->mode.setup.replicas;
}

static size_t labels_bytes(const struct dp *dp)
{
    return ddp_exec_input_bytes(dp->loss_exec, 1);
}

static void dp_close(ddp_mode *mode)
{
    struct dp *dp = (struct dp *)mode;
    /* No device reads another's memory any more when that is freed, also after a failure of one. */
    for (int r = 0; mode->replicas && r < replica_count(dp); r++)
        if (replica_of(dp, r)->device)
            (void)ddp_device_synchronize(replica_of(dp, r)->device);
    ddp_replica_threads_destroy(dp->team);
    if (dp->loss_exec)
        ddp_device_free(master(dp)->device, dp->labels, labels_bytes(dp));
    if (mode->replicas) {
        ddp_device_free(master(dp)->device, dp->loss, LOSS_BYTES);
        ddp_device_free(master(dp)->device, dp->soft, sizeof *dp->soft);
    }
    ddp_exec_destroy(dp->tail_loss_exec);
    ddp_exec_destroy(dp->loss_exec);
    for (int r = 0; dp->staging && r < replica_count(dp); r++)
        ddp_device_free(replica_of(dp, r)->device, dp->staging[r], master(dp)->flat_bytes);
    free(dp->staging);
    free(dp->batches);
    free(dp->roots);
}

/* What computes the loss on the master. */
static enum ddp_status create_loss(struct dp *dp)
{
    const struct ddp_mode_setup *setup = &dp->mode.setup;
    ddp_device *device = master(dp)->device;
    enum ddp_status status = ddp_exec_create(&dp->loss_exec, setup->graph, device,
                                             DDP_MODE_MASTER_PARTS, master(dp)->weights);
    if (status == DDP_OK && setup->tail_graph)
        status = ddp_exec_create(&dp->tail_loss_exec, setup->tail_graph, device,
                                 DDP_MODE_MASTER_PARTS, master(dp)->weights);
    if (status == DDP_OK)
        ddp_replica_equip(master(dp), dp->loss_exec);
    if (status == DDP_OK && dp->tail_loss_exec)
        ddp_replica_equip(master(dp), dp->tail_loss_exec);
    if (status == DDP_OK)
        status = ddp_device_alloc(device, LOSS_BYTES, (void **)&dp->loss);
    if (status == DDP_OK && !ddp_device_host_memory(device))
        status = ddp_device_alloc(device, labels_bytes(dp), (void **)&dp->labels);
    return status;
}

/* What only the master has: mostly the loss, and the optimizer. */
static enum ddp_status create_master(struct dp *dp)
{
    const struct ddp_mode_setup *setup = &dp->mode.setup;
    enum ddp_status status = ddp_graph_outputs_loss(setup->graph) ? DDP_OK : create_loss(dp);
    if (status == DDP_OK)
        status =
            ddp_updater_open(&dp->mode.updater, master(dp), setup, master(dp)->flat_count, NULL);
    return status;
}

/* Can one replica's device read the other's memory as its own? */
static bool one_memory(const struct ddp_mode_setup *setup, bool host_memory, int a, int b)
{
    return host_memory || (setup->devices && setup->devices[a] == setup->devices[b]);
}

static bool share_memory(const struct dp *dp, int a, int b)
{
    return one_memory(&dp->mode.setup, ddp_device_host_memory(master(dp)->device), a, b);
}

/* The roots of all replicas, in the order of the tree, without their sums: returns their number.
 *   roots [out]  (lanes) */
static int list_roots(const struct ddp_mode_setup *setup, struct root *roots)
{
    int count = 0;
    for (int r = 0; r < setup->replicas; r++) {
        const struct ddp_lanes_run run = ddp_mode_replica_run(setup, r);
        int ends[DDP_REDUCE_ROOTS];
        const int own = ddp_lanes_roots(&run, ends);
        for (int i = 0; i < own; i++)
            roots[count++] = (struct root){.replica = r, .number = i, .end = ends[i]};
    }
    return count;
}

/* As sum_roots() goes over devices. */
struct route {
    const struct ddp_mode_setup *setup;
    const struct root *next;
    int replica;
    bool stages; /* it takes sums from another device's memory */
};

/* The replica that has the sum of lanes [low, high) in the end. */
static int follow(struct route *route, int low, int high)
{
    if (route->next->end == high)
        return route->next++->replica;
    const int middle = ddp_reduce_middle(low, high);
    const int first = follow(route, low, middle), second = follow(route, middle, high);
    route->stages = route->stages ||
                    (first == route->replica && !one_memory(route->setup, false, first, second));
    return first;
}

bool ddp_dp_stages(const struct ddp_mode_setup *setup, bool host_memory, int replica)
{
    struct root roots[DDP_REDUCE_LEAVES];
    struct route route = {.setup = setup, .next = roots, .replica = replica};
    if (host_memory)
        return false;
    assert(setup->run.lanes <= DDP_REDUCE_LEAVES);
    list_roots(setup, roots);
    (void)follow(&route, 0, (int)setup->run.lanes);
    return route.stages;
}

/* Memory for what sum_gradients() takes from other devices. */
static enum ddp_status make_staging(struct dp *dp)
{
    const struct ddp_mode_setup *setup = &dp->mode.setup;
    enum ddp_status status = DDP_OK;
    for (int r = 0; status == DDP_OK && r < setup->replicas; r++)
        if (ddp_dp_stages(setup, ddp_device_host_memory(master(dp)->device), r))
            status = ddp_device_alloc(replica_of(dp, r)->device, replica_of(dp, r)->flat_bytes,
                                      (void **)&dp->staging[r]);
    return status;
}

static enum ddp_status tune(struct dp *dp)
{
    const int count = replica_count(dp);
    struct ddp_tuning_unit *units = ddp_array_alloc((size_t)count, sizeof *units);
    if (!units)
        return DDP_ERR_MEMORY;
    for (int r = 0; r < count; r++)
        units[r] = ddp_tuning_unit_of(replica_of(dp, r));
    enum ddp_status status = ddp_tuning_run(dp->mode.setup.comm, units, count);
    free(units);
    return status;
}

static enum ddp_status make_roots(struct dp *dp)
{
    dp->roots = ddp_array_alloc((size_t)dp->mode.setup.run.lanes, sizeof *dp->roots);
    if (!dp->roots)
        return DDP_ERR_MEMORY;
    const int count = list_roots(&dp->mode.setup, dp->roots);
    for (int i = 0; i < count; i++) {
        const struct ddp_replica *replica = replica_of(dp, dp->roots[i].replica);
        dp->roots[i].sum =
            replica->gradients + dp->roots[i].number * ddp_lanes_stride(replica->flat_count);
    }
    return DDP_OK;
}

static enum ddp_status dp_open(ddp_mode *mode)
{
    struct dp *dp = (struct dp *)mode;
    const struct ddp_mode_setup *setup = &mode->setup;
    enum ddp_status status = DDP_OK;
    dp->batches = ddp_array_alloc((size_t)setup->global_shards, sizeof(const struct ddp_batch *));
    dp->staging = ddp_array_alloc((size_t)setup->replicas, sizeof *dp->staging);
    if (!dp->batches || !dp->staging)
        return DDP_ERR_MEMORY;
    const int64_t count = ddp_graph_flat_count(setup->graph);
    dp->cuts[0] = count < DDP_UPDATE_GRAIN ? count : DDP_UPDATE_GRAIN;
    dp->cuts[1] = count;
    for (int r = 0; status == DDP_OK && r < setup->replicas; r++) {
        replica_of(dp, r)->cuts = dp->cuts;
        replica_of(dp, r)->cut_count = 2;
        status = ddp_replica_open(replica_of(dp, r), setup, r, DDP_MODE_REPLICA_PARTS, NULL);
    }
    if (status == DDP_OK)
        status = make_roots(dp);
    if (status == DDP_OK)
        status = make_staging(dp);
    if (status == DDP_OK)
        status = create_master(dp);
    if (status == DDP_OK)
        status = tune(dp);
    return status == DDP_OK ? ddp_replica_threads_create(&dp->team, setup->replicas) : status;
}

/* A replica's run of lanes may be longer than another's. */
static bool has_shard(const struct dp *dp, int replica, int64_t shard)
{
    return shard < ddp_lanes_shards(&replica_of(dp, replica)->lanes.run);
}

static const struct ddp_batch *batch_of(const struct dp *dp, int replica, int64_t shard)
{
    return dp->batches[ddp_lanes_first_shard(&replica_of(dp, replica)->lanes.run) + shard];
}

/* Master: the weights go to all replicas. */
static enum ddp_status broadcast_weights(struct dp *dp)
{
    const struct ddp_replica *from = master(dp);
    const size_t bf16_bytes = from->weights_bf16 ? from->flat_bytes / 2 : 0;
    enum ddp_status status = DDP_OK;
    for (int r = 1; status == DDP_OK && r < replica_count(dp); r++) {
        struct ddp_replica *to = replica_of(dp, r);
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
    for (int r = 0; status == DDP_OK && r < replica_count(dp); r++)
        if (has_shard(dp, r, shard))
            status = ddp_replica_bind(replica_of(dp, r), shard, batch_of(dp, r, shard));
    return status;
}

static enum ddp_status forward_member(void *arg, int member)
{
    struct dp *dp = arg;
    return has_shard(dp, member, dp->shard) ? ddp_replica_run_forward(replica_of(dp, member))
                                            : DDP_OK;
}

static enum ddp_status backward_member(void *arg, int member)
{
    struct dp *dp = arg;
    return has_shard(dp, member, dp->shard) ? ddp_replica_run_backward(replica_of(dp, member))
                                            : DDP_OK;
}

/* Master: one replica's output comes in, its loss is computed, the gradient goes back. The loss
 * itself joins the replica's gradients as their first elements, so that it is summed with them. */
static enum ddp_status loss_of(struct dp *dp, int r, const struct ddp_batch *batch)
{
    struct ddp_replica *replica = replica_of(dp, r);
    ddp_device *device = master(dp)->device;
    ddp_exec *exec = batch->rows == dp->mode.setup.batch_rows ? dp->loss_exec : dp->tail_loss_exec;
    const size_t bytes = ddp_exec_output_bytes(exec);
    float *gradients = ddp_lanes_array(&replica->lanes);
    const bool adding = !ddp_lanes_first(&replica->lanes);
    enum ddp_status status = ddp_exec_load_input(exec, 1, batch->labels, dp->labels);
    ddp_exec_set_gradients(exec, dp->loss);
    ddp_exec_set_adding(exec, adding);
    if (status == DDP_OK)
        status = ddp_inputs_soften(&dp->soft, device, exec, batch->soft);
    if (status == DDP_OK)
        status = ddp_exec_send_loss_scale(exec);
    if (status == DDP_OK)
        status = ddp_device_wait(device, replica->device);
    if (status == DDP_OK && adding)
        status = ddp_device_copy(device, dp->loss, gradients, 2 * sizeof(float));
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
        status = ddp_device_copy(device, gradients, dp->loss, 2 * sizeof(float));
    if (status == DDP_OK)
        status = ddp_device_wait(replica->device, device);
    return status;
}

/* Master: the outputs come in, their gradients go back. */
static enum ddp_status compute_losses(struct dp *dp, int64_t shard)
{
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = DDP_OK;
    for (int r = 0; status == DDP_OK && r < replica_count(dp); r++)
        if (has_shard(dp, r, shard))
            status = loss_of(dp, r, batch_of(dp, r, shard));
    ddp_trace_end("gather, loss", begin, "shard", shard);
    return status;
}

static enum ddp_status run_shard(struct dp *dp, int64_t shard)
{
    const int64_t begin = ddp_trace_begin();
    dp->shard = shard;
    enum ddp_status status = scatter_inputs(dp, shard);
    ddp_trace_end("scatter", begin, "shard", shard);
    if (status == DDP_OK)
        status = ddp_replica_threads_run(dp->team, forward_member, dp);
    if (status == DDP_OK && dp->loss_exec)
        status = compute_losses(dp, shard);
    if (status == DDP_OK)
        status = ddp_replica_threads_run(dp->team, backward_member, dp);
    return status;
}

/* Adds the roots of [low, high) up in the first of them, on its device: the one tree. */
static enum ddp_status sum_roots(struct dp *dp, int low, int high, const struct root **first)
{
    *first = &dp->roots[dp->next];
    if ((*first)->end == high) {
        dp->next++;
        return DDP_OK;
    }
    const int middle = ddp_reduce_middle(low, high);
    const struct root *second;
    enum ddp_status status = sum_roots(dp, low, middle, first);
    if (status == DDP_OK)
        status = sum_roots(dp, middle, high, &second);
    if (status != DDP_OK)
        return status;
    struct ddp_replica *to = replica_of(dp, (*first)->replica);
    const float *gradients = second->sum;
    status = ddp_device_wait(to->device, replica_of(dp, second->replica)->device);
    if (status == DDP_OK && !share_memory(dp, (*first)->replica, second->replica)) {
        gradients = dp->staging[(*first)->replica];
        status = ddp_device_copy(to->device, dp->staging[(*first)->replica], second->sum,
                                 to->flat_bytes);
    }
    if (status != DDP_OK)
        return status;
    struct ddp_merge args = {
        .count = to->flat_count,
        .partial_count = 1,
        .partials = (const float *const[]){(*first)->sum},
        .leaf = gradients,
        .destination = (*first)->sum,
        .rounded = ddp_lanes_rounded(to->lanes.rounded_from, 0, to->flat_count),
    };
    return ddp_device_kernels(to->device)->merge(&args, ddp_device_stream(to->device));
}

static enum ddp_status sum_gradients(struct dp *dp)
{
    const struct root *first;
    dp->next = 0;
    return sum_roots(dp, 0, (int)dp->mode.setup.run.lanes, &first);
}

static enum ddp_status dp_step(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                               float *loss)
{
    struct dp *dp = (struct dp *)mode;
    const int64_t shards = mode->setup.global_shards;
    int64_t taken = 0;
    enum ddp_status status = DDP_OK;
    ddp_job_report(dp->mode.setup.job, "compute", step);
    for (; status == DDP_OK && taken < shards; taken++) {
        status = ddp_loader_next(loader, &dp->batches[taken]);
        if (status != DDP_OK)
            break;
    }
    if (status == DDP_OK)
        status = broadcast_weights(dp);
    for (int64_t i = 0; status == DDP_OK && i < dp->mode.setup.local_shards; i++)
        status = run_shard(dp, i);
    for (int r = 0; r < replica_count(dp); r++) { /* or a GPU reads on what is given back */
        const enum ddp_status copied = ddp_device_copied(replica_of(dp, r)->device);
        status = status == DDP_OK ? copied : status;
    }
    for (int64_t i = 0; i < taken; i++)
        ddp_loader_release(loader, dp->batches[i]);
    const int64_t begin = ddp_trace_begin();
    if (status == DDP_OK)
        status = sum_gradients(dp);
    ddp_trace_end("sum gradients", begin, "replicas", replica_count(dp));
    if (status == DDP_OK)
        status = ddp_updater_run(&dp->mode.updater, rate, step, loss);
    /* The sum was behind their work, which is done; errors in the data are reported here. */
    for (int r = 1; status == DDP_OK && r < replica_count(dp); r++)
        status = ddp_device_synchronize(replica_of(dp, r)->device);
    return status;
}

/* The master's, which go to all replicas as the next step begins. */
static enum ddp_status put_weights(ddp_mode *mode, int64_t begin, int64_t count,
                                   const float *values)
{
    struct ddp_replica *replica = mode->replicas;
    enum ddp_status status = ddp_device_copy_in(replica->device, replica->weights + begin, values,
                                                (size_t)count * sizeof *values);
    if (status == DDP_OK)
        status = ddp_replica_round_weights(replica, begin, count);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

const struct ddp_mode_ops ddp_mode_dp = {
    .bytes = sizeof(struct dp),
    .open = dp_open,
    .close = dp_close,
    .step = dp_step,
    .put_weights = put_weights,
};

/* SPDX-License-Identifier: MIT
 *
 * See local.h. Averages travel in the array of gradients, which nobody needs after an update. */
#include "config.h"

#include "mode/local.h"

#include "comm/comm.h"
#include "core/trace.h"
#include "kernels/add.h"
#include "kernels/ema.h"
#include "kernels/preference.h"
#include "kernels/sgd.h"

#include <math.h>
#include <stdlib.h>

static struct ddp_replica *replica_of(const struct ddp_local *local)
{
    return local->share->mode->replicas;
}

static int64_t first_parameter(const struct ddp_local *local)
{
    return local->share->mode->updater.first_parameter;
}

enum ddp_status ddp_local_open(struct ddp_local *local, struct ddp_share *share)
{
    const struct ddp_mode_local *config = &share->mode->setup.local;
    struct ddp_replica *replica = share->mode->replicas;
    const struct ddp_optimizer_config outer = {
        .name = "sgd", .momentum = config->outer_momentum, .nesterov = config->outer_momentum > 0};
    *local = (struct ddp_local){.share = share, .config = config};
    if (config->every <= 1)
        return DDP_OK;
    enum ddp_status status =
        ddp_device_alloc(replica->device, replica->flat_bytes, (void **)&local->kept);
    if (status == DDP_OK && config->outer)
        status = ddp_device_alloc(replica->device, replica->flat_bytes, (void **)&local->anchor);
    if (status == DDP_OK && config->outer)
        status =
            ddp_optimizer_create(&local->outer, replica->device, replica->flat_count, &outer, NULL);
    return status == DDP_OK ? ddp_local_name_arrays(local) : status;
}

void ddp_local_close(struct ddp_local *local)
{
    if (!local->kept)
        return;
    ddp_optimizer_destroy(local->outer);
    free(local->names);
    if (local->anchor)
        ddp_device_free(replica_of(local)->device, local->anchor, replica_of(local)->flat_bytes);
    ddp_device_free(replica_of(local)->device, local->kept, replica_of(local)->flat_bytes);
    *local = (struct ddp_local){0};
}

/* --- averages --------------------------------------------------------------------------------- */

/* Elements from `begin` to the end of a flat array. */
static enum ddp_status copy(const struct ddp_local *local, float *to, const float *from,
                            int64_t begin, int64_t end)
{
    ddp_device *device = replica_of(local)->device;
    const struct ddp_add args = {
        .count = end - begin, .dtype = DDP_F32, .a = from + begin, .y = to + begin};
    return ddp_device_kernels(device)->add(&args, ddp_device_stream(device));
}

static enum ddp_status copy_all(const struct ddp_local *local, float *to, const float *from)
{
    return copy(local, to, from, 0, replica_of(local)->flat_count);
}

/* A flat array becomes the mean of all workers': their sum in the fixed tree, divided. */
static enum ddp_status average(struct ddp_local *local, float *flat)
{
    struct ddp_share *share = local->share;
    struct ddp_replica *replica = replica_of(local);
    const struct ddp_ema mean = {.count = replica->flat_count,
                                 .momentum = 1,
                                 .scale = 1.0f / (float)share->size,
                                 .sum = replica->gradients,
                                 .running = flat};
    if (!share->wire)
        return DDP_OK;
    const int64_t began = ddp_trace_begin();
    enum ddp_status status = copy_all(local, replica->gradients, flat);
    for (int bucket = 0; status == DDP_OK && bucket < share->bucket_count; bucket++)
        status = ddp_share_reduce_first(share, bucket);
    if (status == DDP_OK)
        status = ddp_comm_finish(share->wire);
    if (status == DDP_OK)
        status =
            ddp_device_kernels(replica->device)->ema(&mean, ddp_device_stream(replica->device));
    ddp_trace_end("average", began, "elements", replica->flat_count);
    return status;
}

/* With the average in the weights: from the weights of the last synchronisation a step against the
 * difference. The statistics stay averages. */
static enum ddp_status run_outer(struct ddp_local *local)
{
    struct ddp_replica *replica = replica_of(local);
    const int64_t first = first_parameter(local), count = replica->flat_count;
    const struct ddp_sgd difference = {
        .count = count - first,
        .weight = local->kept + first,
        .gradient = replica->weights + first,
        .scale = 1,
        .rate = 1,
    };
    const struct ddp_optimizer_step step = {
        .begin = first,
        .end = count,
        .state_begin = first,
        .weights = local->anchor,
        .gradients = local->kept,
        .scale = 1,
        .rate = local->config->outer_rate,
        .step = 1, /* the momentum begins as zeros, which is the same */
    };
    enum ddp_status status = copy(local, local->kept, local->anchor, first, count);
    if (status == DDP_OK)
        status = ddp_device_kernels(replica->device)
                     ->sgd(&difference, ddp_device_stream(replica->device));
    if (status == DDP_OK)
        status = ddp_optimizer_run(local->outer, &step);
    return status == DDP_OK ? copy(local, replica->weights, local->anchor, first, count) : status;
}

static enum ddp_status synchronise(struct ddp_local *local)
{
    struct ddp_replica *replica = replica_of(local);
    enum ddp_status status = average(local, replica->weights);
    if (status == DDP_OK && local->outer)
        status = run_outer(local);
    if (status == DDP_OK)
        status = ddp_replica_round_weights(replica, 0, replica->flat_count);
    local->apart = false;
    return status;
}

enum ddp_status ddp_local_average(struct ddp_local *local)
{
    struct ddp_replica *replica = replica_of(local);
    if (!local->apart || local->averaged)
        return DDP_OK;
    enum ddp_status status = copy_all(local, local->kept, replica->weights);
    if (status == DDP_OK)
        status = average(local, replica->weights);
    if (status == DDP_OK)
        status = ddp_replica_round_weights(replica, 0, replica->flat_count);
    local->averaged = true;
    return status;
}

enum ddp_status ddp_local_return(struct ddp_local *local)
{
    struct ddp_replica *replica = replica_of(local);
    if (!local->averaged)
        return DDP_OK;
    local->averaged = false;
    enum ddp_status status = copy_all(local, replica->weights, local->kept);
    return status == DDP_OK ? ddp_replica_round_weights(replica, 0, replica->flat_count) : status;
}

enum ddp_status ddp_local_put_weights(struct ddp_local *local, int64_t begin, int64_t count)
{
    return local->anchor
               ? copy(local, local->anchor, replica_of(local)->weights, begin, begin + count)
               : DDP_OK;
}

/* --- a step ----------------------------------------------------------------------------------- */

#define OF_PREFERENCES 5 /* sums before those that their metrics are made of */

/* All workers report the same, and leave the same updates out; a worker whose targets all do not
 * count leaves out its own. */
static enum ddp_status agree(const struct ddp_local *local)
{
    struct ddp_updater *updater = &local->share->mode->updater;
    const bool counts = updater->counted > 0;
    const double shards = ddp_updater_divisor(updater); /* as far as their targets count */
    double sums[OF_PREFERENCES + DDP_PREFERENCE_SUMS] = {
        counts ? shards * (double)updater->loss : 0,
        counts ? updater->norm : 0,
        shards,
        (double)counts,
        (double)updater->counted,
    };
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        sums[OF_PREFERENCES + i] = (double)updater->loss_sum[i];
    enum ddp_status status =
        ddp_comm_allreduce(local->share->mode->setup.comm, sums,
                           OF_PREFERENCES + DDP_PREFERENCE_SUMS, DDP_F64, DDP_SUM);
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        updater->loss_sum[i] = (float)sums[OF_PREFERENCES + i];
    updater->loss = (float)(sums[0] / sums[2]);
    updater->norm = sums[1] / sums[3];
    updater->counted = (int64_t)sums[4];
    updater->left_out =
        !counts || (updater->only_finite && (!isfinite(updater->loss) || !isfinite(updater->norm)));
    return status;
}

enum ddp_status ddp_local_step(struct ddp_local *local, ddp_loader *loader, double rate,
                               int64_t step, float *loss)
{
    ddp_mode *mode = local->share->mode;
    struct ddp_replica *replica = replica_of(local);
    struct ddp_updater *updater = &mode->updater;
    enum ddp_status status = DDP_OK;
    if (local->anchor && !local->apart)
        status = copy_all(local, local->anchor, replica->weights);
    updater->global_shards = mode->setup.local_shards;
    ddp_job_report(mode->setup.job, "compute", step);
    if (status == DDP_OK)
        status = ddp_replica_run_shards(replica, loader, NULL, NULL);
    if (status == DDP_OK)
        status = ddp_lanes_sum(&replica->lanes, 0, replica->flat_count);
    if (status == DDP_OK)
        status = ddp_updater_begin(updater);
    if (status == DDP_OK)
        status = ddp_updater_measure(updater, 0, replica->flat_count);
    if (status == DDP_OK)
        status = ddp_updater_wait(updater);
    if (status != DDP_OK)
        return status;
    ddp_job_report(mode->setup.job, "update", step);
    ddp_updater_decide(updater, rate, step);
    status = agree(local);
    *loss = updater->loss;
    if (status == DDP_OK)
        status = ddp_share_update(local->share);
    local->apart = true;
    local->state_apart = ddp_mode_state(mode, 0) != NULL;
    if (status != DDP_OK || !ddp_mode_local_synchronises(local->config, step + 1))
        return status;
    ddp_job_report(mode->setup.job, "reduce", step);
    return synchronise(local);
}

/* SPDX-License-Identifier: MIT
 *
 * Gradient accumulation and DistributedDataParallel: every worker runs its contiguous block of
 * shards, one after another, without communication; during the last backward pass the local sums go
 * out in buckets, in the order in which they become ready, and are added up while backward goes on.
 * One exchange an optimizer step, and none where the worker is alone. share.h has who updates what.
 */
#include "config.h"

#include "mode/local.h"

#include "comm/comm.h"
#include "mode/tuning.h"

#include <assert.h>

struct ddp {
    struct ddp_mode mode;
    struct ddp_share share;
    struct ddp_local local;
    ddp_comm *own_wire; /* for the device's memory; or NULL */
    ddp_comm *sync;     /* for batch norm's sums: buckets are on their way on the wire; or NULL */
    int next_bucket;    /* the first that has not been started in this step */
};

static void ddp_close(ddp_mode *mode)
{
    struct ddp *ddp = (struct ddp *)mode;
    if (mode->replicas && mode->replicas->device && !mode->failed)
        (void)ddp_device_synchronize(mode->replicas->device);
    /* Registered and shared memory goes with the communicator: freeing it is collective, and a rank
     * that fails comes here alone. Communicators go first, since a device with a collective that
     * never ends frees no memory. */
    ddp_comm_destroy(ddp->sync);
    ddp_comm_destroy(ddp->own_wire);
    ddp_local_close(&ddp->local);
    ddp_share_close(&ddp->share);
}

/* A communicator for memory of the device; NULL where the worker's serves it, or it is alone. */
static enum ddp_status open_wire(struct ddp *ddp, ddp_comm **comm)
{
    const struct ddp_mode_setup *setup = &ddp->mode.setup;
    ddp_device *device = ddp->mode.replicas->device;
    if (ddp_device_host_memory(device) || ddp_comm_size(setup->comm) == 1)
        return DDP_OK;
    enum ddp_status status = ddp_comm_create_on(comm, setup->job, "nccl", device);
    if (status == DDP_OK)
        ddp_comm_set_fast(*comm, setup->fast);
    return status;
}

/* In double and in the fixed tree: a repeated run has the same bits. */
static enum ddp_status sync_sums(void *arg, double *sums, size_t count)
{
    struct ddp *ddp = arg;
    enum ddp_status status = DDP_OK;
    /* Another machine's messages move while somebody waits for them: nobody may wait for these sums
     * while a bucket is on its way. */
    if (ddp->share.nodes > 1 && !ddp->own_wire)
        status = ddp_comm_finish(ddp->share.wire);
    return status == DDP_OK ? ddp_comm_allreduce(ddp->sync, sums, count, DDP_F64, DDP_SUM) : status;
}

static enum ddp_status open_sync(struct ddp *ddp)
{
    struct ddp_replica *replica = ddp->mode.replicas;
    assert(ddp->mode.setup.local_shards == 1);
    if (!ddp->share.wire)
        return DDP_OK; /* this worker's sums are all there are */
    enum ddp_status status = ddp->own_wire ? open_wire(ddp, &ddp->sync)
                                           : ddp_comm_create(&ddp->sync, ddp->mode.setup.job, NULL);
    if (status != DDP_OK)
        return status;
    ddp_exec_set_sync(replica->exec, sync_sums, ddp, ddp->share.size);
    if (replica->tail_exec)
        ddp_exec_set_sync(replica->tail_exec, sync_sums, ddp, ddp->share.size);
    return DDP_OK;
}

static enum ddp_status ddp_open(ddp_mode *mode)
{
    struct ddp *ddp = (struct ddp *)mode;
    const struct ddp_mode_setup *setup = &mode->setup;
    enum ddp_status status = ddp_replica_open_device(mode->replicas, setup, 0);
    if (status == DDP_OK)
        status = open_wire(ddp, &ddp->own_wire);
    if (status != DDP_OK)
        return status;
    ddp_comm *wire = ddp_comm_size(setup->comm) > 1 ? setup->comm : NULL;
    status = ddp_share_open(&ddp->share, mode, ddp->own_wire ? ddp->own_wire : wire,
                            DDP_MODE_WORKER_PARTS);
    if (status == DDP_OK)
        status = ddp_local_open(&ddp->local, &ddp->share);
    if (status == DDP_OK && setup->sync_batch_norm)
        status = open_sync(ddp);
    const struct ddp_tuning_unit unit = ddp_tuning_unit_of(mode->replicas);
    return status == DDP_OK ? ddp_tuning_run(setup->comm, &unit, 1) : status;
}

/* Called by the last backward pass: everything below `end` is summed locally. */
static enum ddp_status start_buckets(void *arg, int64_t end)
{
    struct ddp *ddp = arg;
    const struct ddp_share *share = &ddp->share;
    while (ddp->next_bucket < share->bucket_count && share->bucket_end[ddp->next_bucket] <= end) {
        enum ddp_status status = ddp_share_reduce(&ddp->share, ddp->next_bucket++);
        if (status != DDP_OK)
            return status;
    }
    return ddp_comm_progress(share->wire);
}

static enum ddp_status ddp_step(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                                float *loss)
{
    struct ddp *ddp = (struct ddp *)mode;
    ddp_comm *wire = ddp->share.wire;
    enum ddp_status status = ddp_local_return(&ddp->local);
    if (status == DDP_OK && ddp_mode_local_is(&mode->setup.local, step))
        return ddp_local_step(&ddp->local, loader, rate, step, loss);
    ddp->next_bucket = 0;
    ddp_job_report(mode->setup.job, "compute", step);
    if (status == DDP_OK)
        status = ddp_share_begin(&ddp->share);
    if (status == DDP_OK)
        status = ddp_replica_run_shards(mode->replicas, loader, wire ? start_buckets : NULL, ddp);
    if (status != DDP_OK)
        return status; /* the board keeps the phase that failed */
    ddp_job_report(mode->setup.job, "reduce", step);
    if (wire)
        status = ddp_comm_finish(wire);
    return status == DDP_OK ? ddp_share_finish(&ddp->share, rate, step, loss) : status;
}

static const char *array_name(const ddp_mode *mode, int i)
{
    return ddp_local_array_name(&((const struct ddp *)mode)->local, i);
}

static bool has_array(const ddp_mode *mode, int i, const struct ddp_mode_apart *apart)
{
    return ddp_local_has_array(&((const struct ddp *)mode)->local, i, apart);
}

static struct ddp_mode_apart apart(const ddp_mode *mode)
{
    const struct ddp *ddp = (const struct ddp *)mode;
    const bool local = mode->setup.local.every > 1;
    return (struct ddp_mode_apart){local ? ddp->share.size : 0, ddp->local.apart,
                                   ddp->local.state_apart};
}

static enum ddp_status save_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                  float *values)
{
    struct ddp_local *local = &((struct ddp *)mode)->local;
    if (i >= ddp_mode_state_count(mode))
        return ddp_local_save_array(local, i - ddp_mode_state_count(mode), values);
    if (local->state_apart)
        return ddp_local_save_mean(local, i, values);
    return ddp_share_save_state(&((struct ddp *)mode)->share, i, begin, count, values);
}

static enum ddp_status load_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                  const float *values)
{
    const int own = i - ddp_mode_state_count(mode);
    if (own >= 0)
        return ddp_local_load_array(&((struct ddp *)mode)->local, own, values);
    return ddp_share_load_state(&((struct ddp *)mode)->share, i, begin, count, values);
}

static enum ddp_status put_weights(ddp_mode *mode, int64_t begin, int64_t count,
                                   const float *values)
{
    struct ddp *ddp = (struct ddp *)mode;
    enum ddp_status status = ddp_local_return(&ddp->local);
    if (status == DDP_OK)
        status = ddp_share_put_weights(&ddp->share, begin, count, values);
    return status == DDP_OK ? ddp_local_put_weights(&ddp->local, begin, count) : status;
}

static enum ddp_status complete_weights(ddp_mode *mode, int64_t begin, int64_t count)
{
    return ddp_share_complete_weights(&((struct ddp *)mode)->share, begin, count);
}

static enum ddp_status average(ddp_mode *mode)
{
    return ddp_local_average(&((struct ddp *)mode)->local);
}

static enum ddp_status gather_gradients(ddp_mode *mode, int64_t begin, int64_t count)
{
    return ddp_share_gather_gradients(&((struct ddp *)mode)->share, begin, count);
}

static enum ddp_status open_reader(ddp_mode *mode, const ddp_graph *graph, unsigned parts,
                                   struct ddp_share_reader **reader)
{
    struct ddp_share *share = &((struct ddp *)mode)->share;
    return share->held ? ddp_share_reader_open(reader, share, graph, parts) : DDP_OK;
}

const struct ddp_mode_ops ddp_mode_ddp = {
    .bytes = sizeof(struct ddp),
    .open = ddp_open,
    .close = ddp_close,
    .step = ddp_step,
    .save_state = save_state,
    .load_state = load_state,
    .complete_weights = complete_weights,
    .put_weights = put_weights,
    .array_name = array_name,
    .has_array = has_array,
    .apart = apart,
    .average = average,
    .gather_gradients = gather_gradients,
    .open_reader = open_reader,
};

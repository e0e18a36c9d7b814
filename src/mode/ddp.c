/* SPDX-License-Identifier: MIT
 *
 * DistributedDataParallel: every worker runs its contiguous block of shards without communication;
 * during the last backward pass the local sums go out in buckets, in the order in which they become
 * ready, and are added up while backward goes on. One exchange an optimizer step.
 *
 * The update comes in three kinds, which end in the same bits:
 *   replicas   each worker gets the whole sum (all-reduce), and updates all of its weights
 *   zero       each worker gets the sum of its slices (reduce-scatter), keeps the optimizer's state
 *              for these and updates them; then all collect the weights (ZeRO, stage 1)
 *   shared     likewise, but weights and state are one copy in memory that all workers map: nothing
 *              is collected, and the machine holds each weight once
 *
 * Gradients and weights travel by `wire`: on the CPU the worker's communicator, on a device with
 * memory of its own one for that memory, whose work the host only puts in line. Host data (sums of
 * the norm, state for checkpoints) always go by the worker's communicator. */
#include "config.h"

#include "mode/updater.h"

#include "comm/comm.h"
#include "core/memory.h"
#include "core/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PARTS              (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define FIRST_BUCKET_BYTES ((size_t)1 << 20) /* as PyTorch: the exchange starts early */

struct ddp {
    struct ddp_mode_setup setup;
    struct ddp_replica replica;
    struct ddp_updater updater;
    int rank, size;
    bool zero, shared; /* shared implies zero */
    ddp_device *device;
    ddp_comm *wire; /* NULL: a device of one worker, alone */
    bool owns_wire;
    bool failed;         /* what is on its way to or from others will not come to an end */
    float *gradients;    /* registered with the wire */
    int64_t *bucket_end; /* elements of the flat array; the last is its count */
    int bucket_count;
    int next_bucket; /* the first that has not been started in this step */
    ddp_comm *sync;  /* for batch norm's sums: buckets are on their way on the wire; or NULL */
};

static void destroy(void *state)
{
    struct ddp *ddp = state;
    if (ddp->device && !ddp->failed)
        (void)ddp_device_synchronize(ddp->device);
    /* Registered and shared memory goes with the communicator: freeing it is collective, and a rank
     * that fails comes here alone. Communicators go first, since a device with a collective that
     * never ends frees no memory. */
    ddp_comm_destroy(ddp->sync);
    if (ddp->owns_wire)
        ddp_comm_destroy(ddp->wire);
    ddp_updater_close(&ddp->updater);
    ddp_replica_close(&ddp->replica);
    ddp_device_close(ddp->device);
    free(ddp->bucket_end);
    free(ddp);
}

/* Cuts the flat array, which is in ready order, into buckets of whole grains: the slices of a
 * bucket then cut no block of the norm in two. Where workers get slices, the first bucket is the
 * grain with the loss, and all get that. */
static enum ddp_status cut_buckets(struct ddp *ddp)
{
    const int64_t count = ddp_graph_flat_count(ddp->setup.graph);
    const int64_t grain = DDP_UPDATE_GRAIN, most = (int64_t)(FIRST_BUCKET_BYTES / sizeof(float));
    int64_t size = (int64_t)(ddp->setup.bucket_bytes / sizeof(float)) / grain * grain, end = 0;
    size = size < grain ? grain : size;
    ddp->bucket_end = ddp_array_alloc((size_t)(count / size + 3), sizeof *ddp->bucket_end);
    if (!ddp->bucket_end)
        return DDP_ERR_MEMORY;
    while (end < count) {
        const bool early = end <= grain;
        end += ddp->zero && end == 0 ? grain : early && size > most ? most : size;
        ddp->bucket_end[ddp->bucket_count++] = end < count ? end : count;
    }
    return DDP_OK;
}

static int64_t bucket_begin(const struct ddp *ddp, int bucket)
{
    return bucket ? ddp->bucket_end[bucket - 1] : 0;
}

static size_t bucket_elements(const struct ddp *ddp, int bucket)
{
    return (size_t)(ddp->bucket_end[bucket] - bucket_begin(ddp, bucket));
}

/* This worker's slices, one a bucket, and where their state lies when it is kept without gaps. */
struct slice {
    int64_t begin, end, packed;
};

static struct slice slice_of(const struct ddp *ddp, int bucket, int64_t packed)
{
    const size_t count = bucket_elements(ddp, bucket);
    const int64_t begin = bucket_begin(ddp, bucket);
    return (struct slice){
        begin + (int64_t)ddp_slice_begin(count, DDP_UPDATE_GRAIN, ddp->rank, ddp->size),
        begin + (int64_t)ddp_slice_begin(count, DDP_UPDATE_GRAIN, ddp->rank + 1, ddp->size),
        packed,
    };
}

/* Walks over the slices that are not empty: false after the last. */
static bool next_slice(const struct ddp *ddp, int *bucket, struct slice *slice)
{
    int64_t packed = *bucket ? slice->packed + (slice->end - slice->begin) : 0;
    while (*bucket < ddp->bucket_count) {
        *slice = slice_of(ddp, (*bucket)++, packed);
        if (slice->begin < slice->end)
            return true;
    }
    return false;
}

static int64_t packed_count(const struct ddp *ddp)
{
    struct slice slice = {0};
    int64_t count = 0;
    for (int bucket = 0; next_slice(ddp, &bucket, &slice);)
        count += slice.end - slice.begin;
    return count;
}

/* The state arrays hold this worker's slices only. */
static bool is_packed(const struct ddp *ddp)
{
    return ddp->zero && !ddp->shared;
}

static enum ddp_status alloc_memory(struct ddp *ddp, size_t bytes, void **memory)
{
    return ddp->shared ? ddp_comm_alloc_shared(ddp->wire, bytes, memory)
                       : ddp_comm_alloc(ddp->wire, bytes, memory);
}

/* Memory from the communicator: gradients always, weights where workers share or collect them. */
static enum ddp_status alloc_flat(struct ddp *ddp, struct ddp_replica_memory *memory)
{
    const size_t count = (size_t)ddp_graph_flat_count(ddp->setup.graph);
    void *gradients, *weights = NULL, *bf16 = NULL;
    if (!ddp->wire)
        return DDP_OK;
    enum ddp_status status = ddp_comm_alloc(ddp->wire, count * sizeof(float), &gradients);
    if (status == DDP_OK && ddp->zero)
        status = alloc_memory(ddp, count * sizeof(float), &weights);
    if (status == DDP_OK && ddp->zero && ddp->setup.compute == DDP_BF16)
        status = alloc_memory(ddp, count * sizeof(uint16_t), &bf16);
    if (status != DDP_OK)
        return status;
    ddp->gradients = gradients;
    memory->weights = weights;
    memory->weights_bf16 = bf16;
    memory->gradients = gradients;
    return DDP_OK;
}

/* The communicator for memory of the device. */
static enum ddp_status open_wire(struct ddp *ddp, ddp_comm **comm)
{
    enum ddp_status status = ddp_comm_create_on(comm, ddp->setup.job, "nccl", ddp->device);
    if (status == DDP_OK)
        ddp_comm_set_fast(*comm, ddp->setup.fast);
    return status;
}

/* Opens the device and what connects it with those of the other workers. */
static enum ddp_status connect(struct ddp *ddp)
{
    const struct ddp_mode_setup *setup = &ddp->setup;
    enum ddp_status status = ddp_replica_open_device(&ddp->device, setup, 0);
    if (status != DDP_OK)
        return status;
    if (ddp_device_host_memory(ddp->device)) {
        ddp->wire = setup->comm;
    } else if (ddp->size > 1) {
        status = open_wire(ddp, &ddp->wire);
        ddp->owns_wire = status == DDP_OK;
    }
    if (status != DDP_OK || !ddp->wire)
        return status;
    ddp->zero = setup->zero && ddp_comm_has_slices(ddp->wire);
    ddp->shared = ddp->zero && setup->shared_weights && ddp_comm_has_shared(ddp->wire);
    return DDP_OK;
}

/* Rank 0's weights become everybody's. */
static enum ddp_status spread_weights(struct ddp *ddp, bool given)
{
    struct ddp_replica *replica = &ddp->replica;
    enum ddp_status status = DDP_OK;
    if (given && ddp->rank == 0) {
        status = ddp_device_copy_in(replica->device, replica->weights, ddp->setup.weights,
                                    replica->flat_bytes);
        if (status == DDP_OK)
            status = ddp_device_synchronize(replica->device);
    }
    if (status == DDP_OK && !ddp->shared && ddp->wire)
        status = ddp_comm_broadcast(ddp->wire, replica->weights, (size_t)replica->flat_count,
                                    DDP_F32, 0);
    if (status == DDP_OK && (!ddp->shared || ddp->rank == 0))
        status = ddp_replica_round_weights(replica);
    if (status == DDP_OK)
        status = ddp_device_synchronize(replica->device);
    return status == DDP_OK && ddp->shared ? ddp_comm_barrier(ddp->setup.comm) : status;
}

static enum ddp_status open_updater(struct ddp *ddp)
{
    const struct ddp_mode_setup *setup = &ddp->setup;
    float *state[DDP_OPTIMIZER_STATES] = {NULL};
    int count = 0;
    enum ddp_status status = ddp_optimizer_states(&setup->optimizer, &count);
    for (int i = 0; status == DDP_OK && ddp->shared && i < count; i++) {
        void *memory;
        status = alloc_memory(ddp, ddp->replica.flat_bytes, &memory);
        if (status == DDP_OK)
            state[i] = memory;
    }
    if (status != DDP_OK)
        return status;
    return ddp_updater_open(&ddp->updater, &ddp->replica, setup,
                            is_packed(ddp) ? packed_count(ddp) : ddp->replica.flat_count,
                            ddp->shared ? state : NULL);
}

/* In double and in the fixed tree: a repeated run has the same bits. */
static enum ddp_status sync_sums(void *arg, double *sums, size_t count)
{
    return ddp_comm_allreduce(arg, sums, count, DDP_F64, DDP_SUM);
}

static enum ddp_status open_sync(struct ddp *ddp)
{
    assert(ddp->setup.local_shards == 1);
    if (!ddp->wire)
        return DDP_OK; /* this worker's sums are all there are */
    enum ddp_status status = ddp->owns_wire ? open_wire(ddp, &ddp->sync)
                                            : ddp_comm_create(&ddp->sync, ddp->setup.job, NULL);
    if (status != DDP_OK)
        return status;
    ddp_exec_set_sync(ddp->replica.exec, sync_sums, ddp->sync, ddp->size);
    if (ddp->replica.tail_exec)
        ddp_exec_set_sync(ddp->replica.tail_exec, sync_sums, ddp->sync, ddp->size);
    return DDP_OK;
}

static enum ddp_status create(void **state, const struct ddp_mode_setup *setup)
{
    struct ddp_replica_memory memory = {0};
    struct ddp *ddp = ddp_array_alloc(1, sizeof *ddp);
    if (!ddp)
        return DDP_ERR_MEMORY;
    ddp->setup = *setup;
    ddp->rank = ddp_comm_rank(setup->comm);
    ddp->size = ddp_comm_size(setup->comm);
    enum ddp_status status = connect(ddp);
    memory.device = ddp->device;
    if (status == DDP_OK)
        status = cut_buckets(ddp);
    if (status == DDP_OK)
        status = alloc_flat(ddp, &memory);
    if (status == DDP_OK)
        status = ddp_replica_open(&ddp->replica, setup, 0, PARTS, &memory);
    ddp->replica.cuts = ddp->bucket_end;
    ddp->replica.cut_count = ddp->bucket_count;
    if (status == DDP_OK)
        status = spread_weights(ddp, memory.weights != NULL);
    if (status == DDP_OK)
        status = open_updater(ddp);
    if (status == DDP_OK && setup->sync_batch_norm)
        status = open_sync(ddp);
    if (status != DDP_OK) {
        ddp->failed = true;
        destroy(ddp);
        return status;
    }
    *state = ddp;
    return DDP_OK;
}

/* Called by the last backward pass: everything below `end` is summed locally. */
static enum ddp_status start_buckets(void *arg, int64_t end)
{
    struct ddp *ddp = arg;
    ddp_comm *comm = ddp->wire;
    while (ddp->next_bucket < ddp->bucket_count && ddp->bucket_end[ddp->next_bucket] <= end) {
        const int bucket = ddp->next_bucket++;
        float *gradients = ddp->gradients + bucket_begin(ddp, bucket);
        const size_t count = bucket_elements(ddp, bucket);
        enum ddp_status status =
            ddp->zero && bucket > 0
                ? ddp_comm_reduce_slices_start(comm, gradients, count, DDP_UPDATE_GRAIN, DDP_F32,
                                               DDP_SUM)
                : ddp_comm_allreduce_start(comm, gradients, count, DDP_F32, DDP_SUM);
        if (status != DDP_OK)
            return status;
    }
    return ddp_comm_progress(comm);
}

/* The norm: each worker measures its slices. */
static enum ddp_status measure(struct ddp *ddp)
{
    struct slice slice = {0};
    size_t count;
    double *sums = ddp_updater_sums(&ddp->updater, &count);
    enum ddp_status status = ddp_updater_begin(&ddp->updater);
    for (int bucket = 0; count > 0 && status == DDP_OK && next_slice(ddp, &bucket, &slice);)
        status = ddp_updater_measure(&ddp->updater, slice.begin, slice.end);
    if (status == DDP_OK)
        status = ddp_updater_wait(&ddp->updater);
    return status == DDP_OK && count > 0
               ? ddp_comm_allreduce(ddp->setup.comm, sums, count, DDP_F64, DDP_SUM)
               : status;
}

/* The slices that other workers have updated. */
static enum ddp_status collect_weights(struct ddp *ddp)
{
    struct ddp_replica *replica = &ddp->replica;
    ddp_comm *comm = ddp->wire;
    enum ddp_status status = DDP_OK;
    for (int bucket = 0; status == DDP_OK && bucket < ddp->bucket_count; bucket++) {
        const int64_t begin = bucket_begin(ddp, bucket);
        const size_t count = bucket_elements(ddp, bucket);
        status = ddp_comm_gather_slices(comm, replica->weights + begin, count, DDP_UPDATE_GRAIN,
                                        DDP_F32);
        if (status == DDP_OK && replica->weights_bf16)
            status = ddp_comm_gather_slices(comm, replica->weights_bf16 + begin, count,
                                            DDP_UPDATE_GRAIN, DDP_BF16);
    }
    return status;
}

/* By now nobody reads the old weights: the last bucket was complete only when all workers had put
 * theirs in, and gradients are final after all that reads weights. */
static enum ddp_status update(struct ddp *ddp)
{
    struct ddp_updater *updater = &ddp->updater;
    struct slice slice = {0};
    enum ddp_status status = DDP_OK;
    const int64_t began = ddp_trace_begin();
    int64_t elements = 0;
    if (!ddp->zero) {
        elements = ddp->replica.flat_count;
        status = ddp_updater_apply(updater, 0, elements, 0);
    }
    for (int bucket = 0; ddp->zero && status == DDP_OK && next_slice(ddp, &bucket, &slice);) {
        elements += slice.end - slice.begin;
        status = ddp_updater_apply(updater, slice.begin, slice.end,
                                   is_packed(ddp) ? slice.packed : slice.begin);
    }
    if (status == DDP_OK && ddp->zero && !ddp->owns_wire) /* others read it at once */
        status = ddp_device_synchronize(ddp->replica.device);
    ddp_trace_end("update", began, "elements", elements);
    if (status != DDP_OK || !ddp->zero)
        return status;
    if (!ddp->shared)
        return collect_weights(ddp);
    return ddp_comm_barrier(ddp->setup.comm);
}

static enum ddp_status run_step(struct ddp *ddp, ddp_loader *loader, double rate, int64_t number,
                                float *loss)
{
    ddp->next_bucket = 0;
    ddp->replica.step = number;
    ddp_job_report(ddp->setup.job, "compute", number);
    enum ddp_status status =
        ddp_replica_run_shards(&ddp->replica, loader, ddp->wire ? start_buckets : NULL, ddp);
    if (status != DDP_OK)
        return status; /* the board keeps the phase that failed */
    ddp_job_report(ddp->setup.job, "reduce", number);
    if (ddp->wire)
        status = ddp_comm_finish(ddp->wire);
    if (status == DDP_OK)
        status = measure(ddp);
    if (status != DDP_OK)
        return status;
    ddp_job_report(ddp->setup.job, "update", number);
    ddp_updater_decide(&ddp->updater, rate, number);
    *loss = ddp->updater.loss;
    return update(ddp);
}

static enum ddp_status step(void *state, ddp_loader *loader, double rate, int64_t number,
                            float *loss)
{
    struct ddp *ddp = state;
    enum ddp_status status = run_step(ddp, loader, rate, number, loss);
    ddp->failed = status != DDP_OK;
    return status;
}

/* A worker's share of what all workers hold once. */
static size_t share_of(const struct ddp *ddp, size_t bytes)
{
    return bytes / (size_t)ddp->size + (bytes % (size_t)ddp->size != 0);
}

static void memory(const void *state, struct ddp_mode_memory *total)
{
    const struct ddp *ddp = state;
    const size_t states = ddp_optimizer_state_bytes(ddp->updater.optimizer);
    struct ddp_mode_memory own = {0};
    ddp_replica_memory(&ddp->replica, &ddp->setup, PARTS, &own);
    ddp_updater_memory(&ddp->updater, &own);
    total->weights += ddp->shared ? share_of(ddp, own.weights) : own.weights;
    total->gradients += own.gradients;
    total->locked += own.locked;
    total->optimizer += own.optimizer - states + (ddp->shared ? share_of(ddp, states) : states);
    total->activations += own.activations;
}

static const struct ddp_replica *replica(const void *state)
{
    return &((const struct ddp *)state)->replica;
}

static const struct ddp_updater *updater(const void *state)
{
    return &((const struct ddp *)state)->updater;
}

/* --- the optimizer's state, in and out --- */

static float *state_array(const struct ddp *ddp, int i)
{
    const char *name;
    return ddp_optimizer_state(ddp->updater.optimizer, i, &name);
}

/* Copies this worker's slices between a flat host array and a packed state array. */
static enum ddp_status copy_slices(struct ddp *ddp, float *flat, float *packed, bool out)
{
    ddp_device *device = ddp->replica.device;
    struct slice slice = {0};
    enum ddp_status status = DDP_OK;
    for (int bucket = 0; status == DDP_OK && next_slice(ddp, &bucket, &slice);) {
        const size_t bytes = (size_t)(slice.end - slice.begin) * sizeof(float);
        status = out ? ddp_device_copy_out(device, flat + slice.begin, packed + slice.packed, bytes)
                     : ddp_device_copy_in(device, packed + slice.packed, flat + slice.begin, bytes);
    }
    return status == DDP_OK ? ddp_device_synchronize(device) : status;
}

static enum ddp_status save_packed(struct ddp *ddp, int i, float *flat)
{
    float *whole = flat ? flat : ddp_array_alloc((size_t)ddp->replica.flat_count, sizeof *whole);
    if (!whole)
        return DDP_ERR_MEMORY;
    enum ddp_status status = copy_slices(ddp, whole, state_array(ddp, i), true);
    for (int bucket = 0; status == DDP_OK && bucket < ddp->bucket_count; bucket++)
        status = ddp_comm_gather_slices(ddp->setup.comm, whole + bucket_begin(ddp, bucket),
                                        bucket_elements(ddp, bucket), DDP_UPDATE_GRAIN, DDP_F32);
    if (!flat)
        free(whole);
    return status;
}

static enum ddp_status save_state(void *state, int i, float *flat)
{
    struct ddp *ddp = state;
    if (is_packed(ddp))
        return save_packed(ddp, i, flat);
    if (!flat)
        return DDP_OK;
    enum ddp_status status = ddp_device_copy_out(ddp->replica.device, flat, state_array(ddp, i),
                                                 ddp->replica.flat_bytes);
    return status == DDP_OK ? ddp_device_synchronize(ddp->replica.device) : status;
}

static enum ddp_status load_packed(struct ddp *ddp, int i, const float *flat)
{
    float *whole = ddp_array_alloc((size_t)ddp->replica.flat_count, sizeof *whole);
    if (!whole)
        return DDP_ERR_MEMORY;
    if (flat)
        memcpy(whole, flat, ddp->replica.flat_bytes);
    enum ddp_status status =
        ddp_comm_broadcast(ddp->setup.comm, whole, (size_t)ddp->replica.flat_count, DDP_F32, 0);
    if (status == DDP_OK)
        status = copy_slices(ddp, whole, state_array(ddp, i), false);
    free(whole);
    return status;
}

static enum ddp_status load_state(void *state, int i, const float *flat)
{
    struct ddp *ddp = state;
    float *array = state_array(ddp, i);
    enum ddp_status status = DDP_OK;
    if (is_packed(ddp))
        return load_packed(ddp, i, flat);
    if (flat)
        status = ddp_device_copy_in(ddp->replica.device, array, flat, ddp->replica.flat_bytes);
    if (status == DDP_OK)
        status = ddp_device_synchronize(ddp->replica.device);
    if (status != DDP_OK || !ddp->wire)
        return status;
    if (ddp->shared)
        return ddp_comm_barrier(ddp->wire);
    return ddp_comm_broadcast(ddp->wire, array, (size_t)ddp->replica.flat_count, DDP_F32, 0);
}

const struct ddp_mode_ops ddp_mode_ddp = {
    .name = "ddp",
    .create = create,
    .destroy = destroy,
    .step = step,
    .memory = memory,
    .replica = replica,
    .updater = updater,
    .save_state = save_state,
    .load_state = load_state,
};

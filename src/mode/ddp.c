/* SPDX-License-Identifier: MIT
 *
 * DistributedDataParallel: every worker runs its contiguous block of shards without communication;
 * during the last backward pass the local sums go out in buckets, in the order in which they become
 * ready, and are all-reduced while backward goes on. One exchange an optimizer step. */
#include "config.h"

#include "mode/updater.h"

#include "core/memory.h"

#include <stdlib.h>

#define PARTS              (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define FIRST_BUCKET_BYTES ((size_t)1 << 20) /* as PyTorch: the exchange starts early */

struct ddp {
    struct ddp_mode_setup setup;
    struct ddp_replica replica;
    struct ddp_updater updater;
    float *gradients;    /* registered with the communicator */
    int64_t *bucket_end; /* elements of the flat array; the last is its count */
    int bucket_count;
    int next_bucket; /* the first that has not been started in this step */
};

static void destroy(void *state)
{
    struct ddp *ddp = state;
    ddp_updater_close(&ddp->updater);
    ddp_replica_close(&ddp->replica);
    free(ddp->bucket_end);
    /* The registered gradients go with the communicator: freeing them is collective, and a rank
     * that fails comes here alone. */
    free(ddp);
}

static int by_offset(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Cuts the flat array, which is in ready order, into buckets at borders of parameters. */
static enum ddp_status cut_buckets(struct ddp *ddp)
{
    const ddp_graph *graph = ddp->setup.graph;
    const int count = ddp_graph_parameter_count(graph);
    int64_t *ends = ddp_array_alloc((size_t)count + 1, sizeof *ends);
    if (!ends)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        ends[i] =
            parameter->offset + (int64_t)ddp_align_up((size_t)parameter->count, DDP_FLAT_ALIGN);
    }
    qsort(ends, (size_t)count, sizeof *ends, by_offset);
    int buckets = 0;
    int64_t begin = 0;
    for (int i = 0; i < count; i++) {
        size_t limit = buckets == 0 && ddp->setup.bucket_bytes > FIRST_BUCKET_BYTES
                           ? FIRST_BUCKET_BYTES
                           : ddp->setup.bucket_bytes;
        bool fits = i + 1 < count && (size_t)(ends[i + 1] - begin) * sizeof(float) <= limit;
        if (!fits) {
            begin = ends[i];
            ends[buckets++] = begin; /* buckets <= i: only what has been read is overwritten */
        }
    }
    ddp->bucket_end = ends;
    ddp->bucket_count = buckets;
    return DDP_OK;
}

static enum ddp_status create(void **state, const struct ddp_mode_setup *setup)
{
    struct ddp *ddp = ddp_array_alloc(1, sizeof *ddp);
    if (!ddp)
        return DDP_ERR_MEMORY;
    ddp->setup = *setup;
    int64_t flat_count = ddp_graph_flat_count(setup->graph);
    enum ddp_status status = cut_buckets(ddp);
    if (status == DDP_OK)
        status = ddp_comm_alloc(setup->comm, (size_t)flat_count * sizeof(float),
                                (void **)&ddp->gradients);
    if (status == DDP_OK)
        status = ddp_replica_open(&ddp->replica, setup, ddp_job_local_rank(setup->job), PARTS,
                                  &(struct ddp_replica_memory){.gradients = ddp->gradients});
    if (status == DDP_OK)
        status =
            ddp_comm_broadcast(setup->comm, ddp->replica.weights, (size_t)flat_count, DDP_F32, 0);
    if (status == DDP_OK)
        status = ddp_updater_open(&ddp->updater, &ddp->replica, setup, flat_count, NULL);
    if (status != DDP_OK) {
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
    while (ddp->next_bucket < ddp->bucket_count && ddp->bucket_end[ddp->next_bucket] <= end) {
        int bucket = ddp->next_bucket++;
        int64_t begin = bucket ? ddp->bucket_end[bucket - 1] : 0;
        enum ddp_status status =
            ddp_comm_allreduce_start(ddp->setup.comm, ddp->gradients + begin,
                                     (size_t)(ddp->bucket_end[bucket] - begin), DDP_F32, DDP_SUM);
        if (status != DDP_OK)
            return status;
    }
    return ddp_comm_progress(ddp->setup.comm);
}

static enum ddp_status step(void *state, ddp_loader *loader, double rate, int64_t number,
                            float *loss)
{
    struct ddp *ddp = state;
    ddp->next_bucket = 0;
    ddp->replica.step = number;
    ddp_job_report(ddp->setup.job, "compute", number);
    enum ddp_status status = ddp_replica_run_shards(&ddp->replica, loader, start_buckets, ddp);
    if (status != DDP_OK)
        return status; /* the board keeps the phase that failed */
    ddp_job_report(ddp->setup.job, "reduce", number);
    status = ddp_comm_finish(ddp->setup.comm);
    if (status != DDP_OK)
        return status;
    ddp_job_report(ddp->setup.job, "update", number);
    return ddp_updater_run(&ddp->updater, rate, number, loss);
}

static void memory(const void *state, struct ddp_mode_memory *total)
{
    const struct ddp *ddp = state;
    ddp_replica_memory(&ddp->replica, &ddp->setup, PARTS, total);
    ddp_updater_memory(&ddp->updater, total);
}

static const struct ddp_replica *replica(const void *state)
{
    return &((const struct ddp *)state)->replica;
}

static const struct ddp_updater *updater(const void *state)
{
    return &((const struct ddp *)state)->updater;
}

static enum ddp_status share(void *state, float *array)
{
    struct ddp *ddp = state;
    return ddp_comm_broadcast(ddp->setup.comm, array, (size_t)ddp->replica.flat_count, DDP_F32, 0);
}

const struct ddp_mode_ops ddp_mode_ddp = {
    .name = "ddp",
    .create = create,
    .destroy = destroy,
    .step = step,
    .memory = memory,
    .replica = replica,
    .updater = updater,
    .share = share,
};

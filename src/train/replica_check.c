/* SPDX-License-Identifier: MIT
 *
 * See replica_check.h. */
#include "config.h"

#include "train/replica_check.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"
#include "train/nodes.h"
#include "train/run.h"

#include <inttypes.h>
#include <stdlib.h>

/* A hash for each parameter, then those of all ranks. */
static enum ddp_status gather_hashes(struct ddp_run *run, const float *weights, uint64_t *all)
{
    const int count = ddp_graph_parameter_count(run->graph);
    uint64_t *own = all + (size_t)count * (size_t)run->plan.rank;
    for (int i = 0; i < count; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(run->graph, i);
        own[i] = ddp_hash(weights + parameter->offset, (size_t)parameter->count * sizeof(float));
    }
    return ddp_comm_all_gather(run->comm, own, all, (size_t)count, DDP_I64);
}

/* Ranks whose hash of parameter `i` is that of `rank`. */
static int votes(const uint64_t *all, int ranks, int count, int rank, int i)
{
    int same = 0;
    for (int r = 0; r < ranks; r++)
        same += all[(size_t)r * (size_t)count + (size_t)i] ==
                all[(size_t)rank * (size_t)count + (size_t)i];
    return same;
}

/* Names the ranks that differ in parameter `i`: those against which more than half agree. */
static void tell(const struct ddp_run *run, const uint64_t *all, int i, int64_t step)
{
    const int ranks = run->plan.world_size, count = ddp_graph_parameter_count(run->graph);
    const char *name = ddp_graph_parameter_at(run->graph, i)->name;
    char list[1024] = "", where[DDP_TRAIN_WHERE];
    size_t used = 0;
    int agreed = 0, odd = 0;
    for (int r = 0; r < ranks; r++)
        if (votes(all, ranks, count, r, i) > agreed)
            agreed = votes(all, ranks, count, r, i);
    for (int r = 0; r < ranks; r++) {
        if (2 * agreed > ranks && votes(all, ranks, count, r, i) == agreed)
            continue;
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d%s", odd ? ", " : "", r,
                                     ddp_run_where(run, r, where));
        odd++;
    }
    if (2 * agreed > ranks)
        ddp_log(DDP_LOG_ERROR,
                "the parameters differ between workers: after step %" PRId64
                " rank%s %s %s other values in %s than the other %d: a fault of memory, or of the "
                "machine",
                step, odd == 1 ? "" : "s", list, odd == 1 ? "has" : "have", name, agreed);
    else
        ddp_log(DDP_LOG_ERROR,
                "the parameters differ between workers: after step %" PRId64
                " ranks %s differ in %s, and no majority agrees: a fault of memory, or "
                "of the machine",
                step, list, name);
}

enum ddp_status ddp_run_check_replicas(struct ddp_run *run, int64_t step)
{
    const int64_t every = run->options->check_replicas;
    const int ranks = run->plan.world_size, count = ddp_graph_parameter_count(run->graph);
    ddp_device *device = ddp_mode_device(run->mode);
    const float *weights = ddp_mode_weights(run->mode);
    enum ddp_status status = DDP_OK;
    if (every == 0 || ranks == 1 || step / every == run->compared / every ||
        !ddp_mode_local_synchronises(&run->plan.local, step))
        return DDP_OK;
    run->compared = step;
    uint64_t *all = ddp_array_alloc((size_t)count * (size_t)ranks, sizeof *all);
    if (!all)
        return DDP_ERR_MEMORY;
    ddp_train_metrics_begin_aside(run->metrics);
    if (!ddp_device_host_memory(device)) {
        status = ddp_run_fetch_weights(run);
        weights = run->weights;
    }
    if (status == DDP_OK)
        status = gather_hashes(run, weights, all);
    for (int i = 0; status == DDP_OK && i < count; i++) {
        if (votes(all, ranks, count, 0, i) == ranks)
            continue;
        ddp_train_metrics_pause(run->metrics);
        if (run->plan.rank == 0)
            tell(run, all, i, step);
        status = ddp_comm_barrier(run->comm); /* no rank ends the job before it is logged */
        if (status == DDP_OK) /* rank 0 has said why: its end is the one to report */
            status = run->plan.rank == 0 ? DDP_ERR_MISMATCH : DDP_ERR_ABORTED;
    }
    ddp_train_metrics_end_aside(run->metrics, "check replicas");
    free(all);
    return status;
}

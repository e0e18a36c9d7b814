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

/* What is compared: what is learned, then what is frozen. */
static int count_of(const struct ddp_run *run)
{
    return ddp_graph_place_count(run->planned.graph);
}

static const struct ddp_parameter *parameter_of(const struct ddp_run *run, int i)
{
    const int learned = ddp_graph_parameter_count(run->planned.graph);
    return i < learned ? ddp_graph_parameter_at(run->planned.graph, i)
                       : ddp_graph_frozen_at(run->planned.graph, i - learned);
}

/* Of one that is frozen, as the device has it; 0: another stage does. */
static enum ddp_status hash_frozen(const struct ddp_run *run, int index, uint64_t *hash)
{
    const struct ddp_frozen *frozen = ddp_mode_frozen(run->mode);
    const struct ddp_parameter *parameter = ddp_graph_frozen_at(run->planned.graph, index);
    const size_t bytes = (size_t)parameter->count * ddp_dtype_bytes(parameter->dtype);
    void *copy = NULL;
    const void *values = frozen->values[index];
    enum ddp_status status = DDP_OK;
    *hash = 0;
    if (!values)
        return DDP_OK;
    if (!run->planned.plan.device.host_memory) {
        copy = ddp_array_alloc(bytes, 1);
        status = copy ? ddp_device_copy_out(frozen->device, copy, values, bytes) : DDP_ERR_MEMORY;
        if (status == DDP_OK)
            status = ddp_device_synchronize(frozen->device);
        values = copy;
    }
    if (status == DDP_OK)
        *hash = ddp_hash(values, bytes);
    free(copy);
    return status;
}

/* A hash for each parameter, then those of all ranks; 0: another stage has the parameter. */
static enum ddp_status gather_hashes(struct ddp_run *run, uint64_t *all)
{
    const int count = count_of(run), learned = ddp_graph_parameter_count(run->planned.graph);
    uint64_t *hashes = all + (size_t)count * (size_t)run->planned.plan.rank;
    float *values =
        ddp_array_alloc((size_t)ddp_graph_flat_count(run->planned.graph), sizeof *values);
    enum ddp_status status = values ? DDP_OK : DDP_ERR_MEMORY;
    for (int i = learned; status == DDP_OK && i < count; i++)
        status = hash_frozen(run, i - learned, &hashes[i]);
    for (int i = 0; status == DDP_OK && i < learned; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(run->planned.graph, i);
        bool own = false;
        status = ddp_mode_own_weights(run->mode, i, values, &own);
        hashes[i] = own ? ddp_hash(values, (size_t)parameter->count * sizeof *values) : 0;
    }
    free(values);
    return status == DDP_OK ? ddp_comm_all_gather(run->comm, hashes, all, (size_t)count, DDP_I64)
                            : status;
}

/* Ranks whose hash of parameter `i` is that of `rank`; of the same stage, in pipelines. */
static int votes(const struct ddp_run *run, const uint64_t *all, int rank, int i)
{
    const int stages = ddp_train_plan_stage_workers(&run->planned.plan);
    const size_t count = (size_t)count_of(run);
    int same = 0;
    for (int r = rank % stages; r < run->planned.plan.world_size; r += stages)
        same += all[(size_t)r * count + (size_t)i] == all[(size_t)rank * count + (size_t)i];
    return same;
}

/* The stage whose replicas differ in parameter `i`; -1: none does. */
static int differing_stage(const struct ddp_run *run, const uint64_t *all, int i)
{
    const int stages = ddp_train_plan_stage_workers(&run->planned.plan);
    for (int stage = 0; stage < stages; stage++)
        if (votes(run, all, stage, i) != run->planned.plan.world_size / stages)
            return stage;
    return -1;
}

/* Names the ranks that differ in parameter `i`: those against which more than half agree. */
static void tell(const struct ddp_run *run, const uint64_t *all, int stage, int i, int64_t step)
{
    const int stages = ddp_train_plan_stage_workers(&run->planned.plan);
    const int ranks = run->planned.plan.world_size / stages;
    const char *name = parameter_of(run, i)->name;
    char list[1024] = "", where[DDP_TRAIN_WHERE];
    size_t used = 0;
    int agreed = 0, odd = 0;
    for (int r = stage; r < run->planned.plan.world_size; r += stages)
        if (votes(run, all, r, i) > agreed)
            agreed = votes(run, all, r, i);
    for (int r = stage; r < run->planned.plan.world_size; r += stages) {
        if (2 * agreed > ranks && votes(run, all, r, i) == agreed)
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
    const int64_t every = run->planned.options->check_replicas;
    const int ranks = run->planned.plan.world_size, count = count_of(run);
    if (every == 0 || ranks == 1 || step / every == run->compared / every ||
        !ddp_mode_local_synchronises(&run->planned.plan.local, step))
        return DDP_OK;
    run->compared = step;
    uint64_t *all = ddp_array_alloc((size_t)count * (size_t)ranks, sizeof *all);
    if (!all)
        return DDP_ERR_MEMORY;
    ddp_train_metrics_begin_aside(run->metrics);
    enum ddp_status status = gather_hashes(run, all);
    for (int i = 0; status == DDP_OK && i < count; i++) {
        const int stage = differing_stage(run, all, i);
        if (stage < 0)
            continue;
        ddp_train_metrics_pause(run->metrics);
        if (run->planned.plan.rank == 0)
            tell(run, all, stage, i, step);
        status = ddp_comm_barrier(run->comm); /* no rank ends the job before it is logged */
        if (status == DDP_OK) /* rank 0 has said why: its end is the one to report */
            status = run->planned.plan.rank == 0 ? DDP_ERR_MISMATCH : DDP_ERR_ABORTED;
    }
    ddp_train_metrics_end_aside(run->metrics, "check replicas");
    free(all);
    return status;
}

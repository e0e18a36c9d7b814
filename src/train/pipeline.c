/* SPDX-License-Identifier: MIT
 *
 * See pipeline.h. */
#include "config.h"

#include "train/pipeline.h"

#include "core/log.h"
#include "train/run.h"

#include <inttypes.h>

static enum ddp_status measure_cuts(struct ddp_run *run)
{
    struct ddp_train_plan *plan = &run->planned.plan;
    ddp_device *device = NULL;
    ddp_job_report(run->job, "measure", 0);
    enum ddp_status status =
        ddp_device_open(&device, plan->device.name, plan->devices[0], plan->threads);
    if (status == DDP_OK)
        status = ddp_stages_balance(run->planned.graph, device, plan->stages, plan->cuts);
    ddp_device_close(device);
    if (status == DDP_OK)
        ddp_job_report(run->job, "start", 0);
    return status;
}

/* Gradients of a weight that two pieces of a stage read come from passes of different shards: they
 * can be added in the order of accumulation when each shard has an array of its own. */
static enum ddp_status check_shared(const struct ddp_run *run, const struct ddp_stages *stages)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    if (stages->shared < 0 || plan->lanes >= plan->global_shards)
        return DDP_OK;
    const char *name = ddp_graph_parameter_at(run->planned.graph, stages->shared)->name;
    if (plan->global_shards > DDP_TRAIN_LANES)
        return ddp_fail(DDP_ERR_INVALID,
                        "--mode pipeline: two parts of the model share %s, and then each shard "
                        "needs a lane: use at most %d shards, not %" PRId64,
                        name, DDP_TRAIN_LANES, plan->global_shards);
    return ddp_fail(DDP_ERR_INVALID,
                    "--mode pipeline: two parts of the model share %s, and then each of the "
                    "%" PRId64 " shards needs a lane, and %s %" PRId64 ": %s --lanes %" PRId64,
                    name, plan->global_shards, run->is_resumed ? "the checkpoint has" : "there are",
                    plan->lanes,
                    run->is_resumed ? "resume in another mode, or train from the beginning with"
                                    : "use",
                    plan->global_shards);
}

enum ddp_status ddp_run_balance_cuts(struct ddp_run *run)
{
    struct ddp_train_plan *plan = &run->planned.plan;
    const bool device = plan->device.host_memory || plan->device.count > 0;
    struct ddp_stages stages;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    enum ddp_status status = ddp_stages_make(&stages, run->planned.graph, plan->stages, plan->cuts);
    if (status == DDP_OK)
        status = check_shared(run, &stages);
    if (status != DDP_OK || run->planned.options->cut || !device)
        return status;
    if (plan->rank == 0)
        status = measure_cuts(run);
    if (status == DDP_OK)
        status = ddp_comm_broadcast(run->comm, plan->cuts, (size_t)plan->stages, DDP_I32, 0);
    if (status == DDP_OK)
        status = ddp_stages_make(&stages, run->planned.graph, plan->stages, plan->cuts);
    return status == DDP_OK ? check_shared(run, &stages) : status;
}

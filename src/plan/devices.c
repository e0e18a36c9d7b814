/* SPDX-License-Identifier: MIT
 *
 * See devices.h. */
#include "config.h"

#include "plan/devices.h"

#include "core/log.h"

#include <string.h>

#define CPU_REPLICAS 2 /* of --mode dp, by default */

static bool is_gpu(const struct ddp_train_plan *plan)
{
    return !plan->device.host_memory;
}

/* A plan can be made for GPUs where there are none. */
static bool is_only_planned(const struct ddp_train_plan *plan)
{
    return is_gpu(plan) && plan->device.count == 0;
}

static enum ddp_status find_device(struct ddp_train_plan *plan,
                                   const struct ddp_train_options *options)
{
    const bool quiet = options->plan && strcmp(options->device, "cuda") == 0;
    enum ddp_status status = ddp_device_find(&plan->device, quiet ? "auto" : options->device);
    if (status == DDP_OK && quiet && plan->device.host_memory)
        plan->device = (struct ddp_device_kind){.name = "cuda"};
    return status;
}

enum ddp_status ddp_train_plan_kind(struct ddp_train_plan *plan,
                                    const struct ddp_train_options *options)
{
    enum ddp_status status = find_device(plan, options);
    if (status != DDP_OK)
        return status;
    if (plan->device.fault && plan->rank == 0 && options->device_count == 0)
        ddp_log(DDP_LOG_WARNING, "training on the CPU: %s", plan->device.fault);
    if (!is_gpu(plan) && options->device_count > 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "--devices names GPUs, and %s",
                        plan->device.fault ? plan->device.fault
                        : strcmp(options->device, "cpu") == 0
                            ? "--device is cpu"
                            : "none was found; --device cuda reports what is missing");
    for (int i = 0; i < options->device_count && !is_only_planned(plan); i++)
        if (options->devices[i] >= plan->device.count)
            return ddp_fail(DDP_ERR_UNSUPPORTED,
                            "--devices: there is no GPU %d: %d %s visible, counted from 0",
                            (int)options->devices[i], plan->device.count,
                            plan->device.count == 1 ? "is" : "are");
    plan->replicas = ddp_train_given(options, "replicas") ? (int)options->replicas
                     : options->device_count > 0          ? options->device_count
                     : is_only_planned(plan)              ? 1
                     : is_gpu(plan)                       ? plan->device.count
                                                          : CPU_REPLICAS;
    if (plan->replicas > DDP_TRAIN_DEVICES)
        plan->replicas = DDP_TRAIN_DEVICES;
    return DDP_OK;
}

/* Threads of one process with a device each: DataParallel's replicas, or a pipeline's stages. */
static enum ddp_status plan_threads(struct ddp_train_plan *plan,
                                    const struct ddp_train_options *options, const char *what)
{
    const int given = options->device_count, count = ddp_train_plan_local_devices(plan);
    if (given > 0 && given != count)
        return ddp_fail(DDP_ERR_INVALID, "--devices names %d device%s, and --%s is %d", given,
                        given == 1 ? "" : "s", what, count);
    if (given == 0 && is_gpu(plan) && !is_only_planned(plan) && count > plan->device.count)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "--%s %d: only %d GPU%s visible; several %s on one need "
                        "--devices, such as --devices 0,0",
                        what, count, plan->device.count, plan->device.count == 1 ? " is" : "s are",
                        what);
    bool shared = false;
    for (int r = 0; r < count; r++) {
        plan->devices[r] = given > 0 ? (int)options->devices[r] : r;
        for (int before = 0; before < r; before++)
            shared = shared || plan->devices[before] == plan->devices[r];
    }
    if (shared && is_gpu(plan))
        ddp_log(DDP_LOG_WARNING,
                "--devices: several of %d %s share a GPU: they take turns on it, and each "
                "needs memory of its own there",
                count, what);
    return DDP_OK;
}

static enum ddp_status plan_ddp(struct ddp_train_plan *plan,
                                const struct ddp_train_options *options, const ddp_job *job)
{
    const int given = options->device_count, count = plan->device.count;
    const int workers = plan->node_workers; /* that have these devices */
    if (given > 0 && given != workers)
        return ddp_fail(DDP_ERR_INVALID, "--devices names %d device%s for %d worker%s%s", given,
                        given == 1 ? "" : "s", workers, workers == 1 ? "" : "s",
                        plan->nodes > 1 ? " on this node" : "");
    if (given > 0)
        plan->devices[0] = (int)options->devices[ddp_job_node_rank(job)];
    else if (is_gpu(plan) && count > 1 && workers > count)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%d workers, and only %d GPUs are visible: start fewer with ddprun "
                        "--nproc %d, or let them share the GPUs with ddprun --oversubscribe",
                        workers, count, count);
    else /* a worker that sees one device was given it, by ddprun or by a wrapper script */
        plan->devices[0] = count == 1 ? 0 : ddp_job_local_rank(job);
    return DDP_OK;
}

enum ddp_status ddp_train_plan_devices(struct ddp_train_plan *plan,
                                       const struct ddp_train_options *options, const ddp_job *job)
{
    if (options->fast && !is_gpu(plan) && plan->rank == 0)
        ddp_log(DDP_LOG_WARNING,
                "--fast has no effect on the CPU: the exchange that keeps the bits is the fastest "
                "there");
    else if (options->fast && plan->mode != DDP_MODE_DDP)
        return ddp_fail(DDP_ERR_INVALID,
                        "--fast belongs to --mode ddp, which adds gradients over NCCL, and the "
                        "mode is %s, which does not",
                        ddp_mode_names[plan->mode]);
    if (ddp_train_given(options, "threads") && is_gpu(plan) && plan->rank == 0)
        ddp_log(DDP_LOG_WARNING,
                "--threads has no effect on GPUs: --data-threads read ahead for them");
    switch (plan->mode) {
    case DDP_MODE_DP:
        return plan_threads(plan, options, "replicas");
    case DDP_MODE_DDP:
        return plan_ddp(plan, options, job);
    case DDP_MODE_PIPELINE:
        return plan->world_size > 1 ? plan_ddp(plan, options, job)
                                    : plan_threads(plan, options, "stages");
    case DDP_MODE_ACCUM:
        break;
    }
    if (options->device_count > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "--devices names %d devices, and --mode accum computes on one: use "
                        "--mode dp, or ddprun",
                        options->device_count);
    plan->devices[0] = options->device_count > 0 ? (int)options->devices[0] : 0;
    return DDP_OK;
}

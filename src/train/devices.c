/* SPDX-License-Identifier: MIT
 *
 * See devices.h. */
#include "config.h"

#include "train/devices.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

/* What a worker means by its device's number, on which machine. */
struct device_id {
    int64_t node, index;
    uint64_t visible;
};
#define ID_WORDS (sizeof(struct device_id) / sizeof(int64_t))

/* The first rank that has the same device as `rank`. */
static int first_on(const struct device_id *ids, int rank)
{
    for (int r = 0; r < rank; r++)
        if (memcmp(&ids[r], &ids[rank], sizeof *ids) == 0)
            return r;
    return rank;
}

static int count_devices(const struct device_id *ids, int ranks)
{
    int count = 0;
    for (int r = 0; r < ranks; r++)
        count += first_on(ids, r) == r;
    return count;
}

/* NCCL takes ranks on one device for different hosts then, which talk through sockets: over the
 * loopback interface, unless there are other machines. */
static enum ddp_status share_devices(const struct ddp_run *run, int devices)
{
    const int ranks = run->planned.plan.world_size;
    char host[64];
    if (run->planned.plan.rank == 0)
        ddp_log(DDP_LOG_WARNING,
                "--devices: %d workers share %d GPU%s: they take turns, and NCCL works through "
                "sockets",
                ranks, devices, devices == 1 ? "" : "s");
    snprintf(host, sizeof host, "ddprun-%d", run->planned.plan.rank);
    int failed = setenv("NCCL_HOSTID", host, 1);
    if (!failed && run->planned.plan.nodes == 1)
        failed = setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    if (!failed)
        failed = setenv("NCCL_NET", "Socket", 0);
    if (failed)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for the environment");
    return DDP_OK;
}

enum ddp_status ddp_run_check_devices(struct ddp_run *run)
{
    struct ddp_train_plan *plan = &run->planned.plan;
    const int ranks = plan->world_size;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (ranks == 1 || plan->device.host_memory)
        return DDP_OK;
    struct device_id *ids = ddp_array_alloc((size_t)ranks, sizeof *ids);
    if (!ids)
        return DDP_ERR_MEMORY;
    const struct device_id own = {ddp_job_node(run->job), plan->devices[0],
                                  visible ? ddp_hash(visible, strlen(visible)) : 0};
    enum ddp_status status = ddp_comm_all_gather(run->comm, &own, ids, ID_WORDS, DDP_I64);
    const int devices = status == DDP_OK ? count_devices(ids, ranks) : ranks;
    free(ids);
    plan->gpu_workers = (ranks + devices - 1) / devices;
    if (devices == ranks || getenv("NCCL_HOSTID")) /* ddprun --oversubscribe has logged it */
        return status;
    if (run->planned.options->device_count > 0)
        return share_devices(run, devices);
    return ddp_fail(DDP_ERR_UNSUPPORTED,
                    "%d workers, and only %d GPU%s visible: start fewer with ddprun --nproc %d, or "
                    "let them share with ddprun --oversubscribe",
                    ranks, devices, devices == 1 ? " is" : "s are", devices);
}

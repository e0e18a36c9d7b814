/* SPDX-License-Identifier: MIT
 *
 * The plugin libddp-cuda.so: NVIDIA GPUs as devices, NCCL as their communicator. */
#include "config.h"

#include "cuda/nccl.h"
#include "core/log.h"
#include "core/plugin.h"
#include "core/trace.h"
#include "cuda/device.h"

static void attach(const struct ddp_plugin_host *host)
{
    ddp_log_set_sink(host->log);
    ddp_trace_set_sink(host->trace_recording, host->trace);
}

extern DDP_API const struct ddp_plugin ddp_plugin;
const struct ddp_plugin ddp_plugin = {
    .abi = DDP_PLUGIN_ABI,
    .name = "cuda",
    .device = &ddp_device_cuda,
    .comm = &ddp_comm_nccl,
    .attach = attach,
};

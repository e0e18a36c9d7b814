/* SPDX-License-Identifier: MIT
 *
 * See whole.h. */
#include "config.h"

#include "train/whole.h"

#include "kernels/bf16.h"
#include "train/run.h"

bool ddp_whole_is_there(const struct ddp_run *run)
{
    return ddp_mode_weights(run->mode) || run->planned.plan.device.host_memory ||
           ddp_graph_frozen_count(run->planned.graph) == 0;
}

enum ddp_status ddp_whole_open(struct ddp_whole *whole, const struct ddp_run *run, bool wanted)
{
    const float *own = ddp_mode_weights(run->mode);
    *whole = (struct ddp_whole){.weights = own, .frozen = ddp_mode_frozen(run->mode)};
    if (own || !wanted) {
        whole->weights_bf16 = own ? ddp_mode_weights_bf16(run->mode) : NULL;
        return DDP_OK;
    }
    whole->device = ddp_mode_device(run->mode);
    whole->bytes = (size_t)ddp_graph_flat_count(run->planned.graph) * sizeof(float);
    enum ddp_status status = ddp_device_alloc(whole->device, whole->bytes, (void **)&whole->copy);
    if (status == DDP_OK && run->planned.model_config.compute == DDP_BF16)
        status = ddp_device_alloc(whole->device, whole->bytes / 2, (void **)&whole->copy_bf16);
    whole->weights = whole->copy;
    whole->weights_bf16 = whole->copy_bf16;
    return status;
}

void ddp_whole_close(struct ddp_whole *whole)
{
    if (!whole->device)
        return;
    ddp_device_free(whole->device, whole->copy_bf16, whole->bytes / 2);
    ddp_device_free(whole->device, whole->copy, whole->bytes);
    *whole = (struct ddp_whole){.weights = NULL};
}

/* The copy is in the device's memory, which is the host's or not. */
static enum ddp_status fetch_copy(struct ddp_whole *whole, struct ddp_run *run)
{
    const int64_t count = ddp_graph_flat_count(run->planned.graph);
    if (ddp_device_host_memory(whole->device))
        return ddp_mode_get_weights(run->mode, 0, count, whole->copy);
    enum ddp_status status = ddp_run_fetch_weights(run, true);
    if (status == DDP_OK)
        status = ddp_device_copy_in(whole->device, whole->copy, run->weights, whole->bytes);
    return status == DDP_OK ? ddp_device_synchronize(whole->device) : status;
}

enum ddp_status ddp_whole_fetch(struct ddp_whole *whole, struct ddp_run *run)
{
    if (whole->weights && !whole->copy)
        return ddp_mode_complete_weights(run->mode);
    enum ddp_status status =
        whole->copy ? fetch_copy(whole, run) : ddp_run_fetch_weights(run, false);
    if (status != DDP_OK || !whole->copy_bf16)
        return status;
    struct ddp_to_bf16 args = {
        .count = ddp_graph_flat_count(run->planned.graph), .x = whole->copy, .y = whole->copy_bf16};
    return ddp_device_kernels(whole->device)->to_bf16(&args, ddp_device_stream(whole->device));
}

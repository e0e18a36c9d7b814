/* SPDX-License-Identifier: MIT
 *
 * Messages between stages; see pipeline.h. */
#include "config.h"

#include "mode/pipeline.h"

#include "core/clock.h"
#include "core/memory.h"

/* The next message of the channel: time that it takes to arrive is time that the stage is idle. */
static enum ddp_status acquire_slot(struct ddp_port *port)
{
    const int64_t begin = ddp_clock_ns();
    enum ddp_status status = ddp_channel_acquire(port->channel, &port->slot);
    if (port->waited_ns)
        *port->waited_ns += ddp_clock_ns() - begin;
    return status;
}

enum ddp_status ddp_port_acquire(struct ddp_port *port, void **memory)
{
    enum ddp_status status = DDP_OK;
    *memory = NULL;
    if (!port->channel)
        return DDP_OK;
    if (!port->sends || !port->staging)
        status = acquire_slot(port);
    if (status == DDP_OK && !port->sends && port->staging)
        status = ddp_device_copy_in(port->device, port->staging, port->slot, port->bytes);
    if (status == DDP_OK)
        *memory = port->staging ? port->staging : port->slot;
    return status;
}

enum ddp_status ddp_port_release(struct ddp_port *port)
{
    enum ddp_status status = DDP_OK;
    if (!port->channel)
        return DDP_OK;
    if (port->staging && port->sends) {
        status = acquire_slot(port);
        if (status == DDP_OK)
            status = ddp_device_copy_out(port->device, port->slot, port->staging, port->bytes);
        if (status == DDP_OK)
            status = ddp_device_synchronize(port->device);
    } else if (port->staging) {
        status = ddp_device_copied(port->device);
    }
    return status == DDP_OK ? ddp_channel_release(port->channel) : status;
}

/* --- opening --- */

/* This process's stage of that number; NULL: another process has it. */
static struct ddp_pipeline_stage *stage_here(const struct ddp_pipeline *pipeline, int number)
{
    for (int i = 0; i < pipeline->here_count; i++)
        if (pipeline->here[i].number == number)
            return &pipeline->here[i];
    return NULL;
}

/* Channels between threads are of the host's memory. */
static enum ddp_status open_end(struct ddp_port *port, const struct ddp_pipeline *pipeline,
                                int stage, ddp_channel *channel, size_t bytes, bool sends)
{
    ddp_device *device = ddp_stage_replica(stage_here(pipeline, stage))->device;
    *port = (struct ddp_port){.channel = channel, .device = device, .bytes = bytes, .sends = sends};
    return pipeline->comm || ddp_device_host_memory(device)
               ? DDP_OK
               : ddp_device_alloc(device, bytes, &port->staging);
}

void ddp_port_close(struct ddp_port *port)
{
    if (port->staging)
        ddp_device_free(port->device, port->staging, port->bytes);
    *port = (struct ddp_port){0};
}

enum ddp_status ddp_pipeline_connect(struct ddp_pipeline *pipeline, int from, int to, size_t bytes,
                                     int slots, struct ddp_port *sender, struct ddp_port *receiver)
{
    struct ddp_thread_channel pair = {{NULL, NULL}};
    enum ddp_status status;
    if (bytes == 0)
        return DDP_OK;
    if (pipeline->comm) {
        ddp_channel *channel;
        status = ddp_channel_open(&channel, pipeline->wire, from, to, bytes, slots);
        if (status != DDP_OK || !channel)
            return status;
        return stage_here(pipeline, from) ? open_end(sender, pipeline, from, channel, bytes, true)
                                          : open_end(receiver, pipeline, to, channel, bytes, false);
    }
    status = ddp_channel_open_threads(pair.ends, bytes, slots, &pipeline->stop);
    if (status != DDP_OK)
        return status;
    status = ddp_array_append(&pipeline->channels, &pipeline->channel_count, &pair, sizeof pair);
    if (status != DDP_OK) {
        ddp_channel_close_threads(pair.ends);
        return status;
    }
    status = open_end(sender, pipeline, from, pair.ends[0], bytes, true);
    return status == DDP_OK ? open_end(receiver, pipeline, to, pair.ends[1], bytes, false) : status;
}

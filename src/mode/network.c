/* SPDX-License-Identifier: MIT
 *
 * See network.h. What is the same for all modes, and the network of those that have all weights on
 * one device: an exec there. */
#include "config.h"

#include "mode/internal.h"

#include "core/memory.h"
#include "mode/share.h"

#include <stdlib.h>

struct whole {
    struct ddp_network network;
    void *input[2]; /* staging where the device cannot read the host's memory */
    size_t input_bytes[2];
    struct ddp_share_reader *reader; /* NULL: all weights are there */
};

static enum ddp_status whole_open(ddp_network *network, const ddp_graph *graph, unsigned parts)
{
    struct whole *whole = (struct whole *)network;
    const ddp_mode *mode = network->mode;
    enum ddp_status status =
        ddp_exec_create(&network->exec, graph, network->device, parts, ddp_mode_weights(mode));
    if (status != DDP_OK)
        return status;
    ddp_exec_set_weights_bf16(network->exec, ddp_mode_weights_bf16(mode));
    ddp_exec_set_frozen(network->exec, mode->replicas->frozen.values,
                        mode->replicas->frozen.rounded);
    if (mode->ops->open_reader)
        status = mode->ops->open_reader(network->mode, graph, parts, &whole->reader);
    if (status == DDP_OK && whole->reader)
        ddp_share_reader_watch(whole->reader, network->exec);
    for (int i = 0; status == DDP_OK && i < 2 && !ddp_device_host_memory(network->device); i++) {
        whole->input_bytes[i] =
            i == 0 || (parts & DDP_EXEC_LOSS) ? ddp_exec_input_bytes(network->exec, i) : 0;
        if (whole->input_bytes[i])
            status = ddp_device_alloc(network->device, whole->input_bytes[i], &whole->input[i]);
    }
    return status;
}

static void whole_close(ddp_network *network)
{
    struct whole *whole = (struct whole *)network;
    for (int i = 0; i < 2; i++)
        ddp_device_free(network->device, whole->input[i], whole->input_bytes[i]);
    ddp_exec_destroy(network->exec);
    ddp_share_reader_close(whole->reader);
}

static enum ddp_status whole_run(ddp_network *network, const void *x, const void *labels)
{
    struct whole *whole = (struct whole *)network;
    enum ddp_status status = ddp_exec_load_input(network->exec, 0, x, whole->input[0]);
    if (status == DDP_OK && labels)
        status = ddp_exec_load_input(network->exec, 1, labels, whole->input[1]);
    return status == DDP_OK ? ddp_exec_forward(network->exec) : status;
}

static enum ddp_status whole_idle(ddp_network *network)
{
    struct ddp_share_reader *reader = ((struct whole *)network)->reader;
    return reader ? ddp_share_reader_idle(reader) : DDP_OK;
}

static const struct ddp_network_ops whole_ops = {
    .bytes = sizeof(struct whole),
    .open = whole_open,
    .close = whole_close,
    .run = whole_run,
    .idle = whole_idle,
};

enum ddp_status ddp_network_open(ddp_network **network, ddp_mode *mode, const ddp_graph *graph,
                                 unsigned parts)
{
    const struct ddp_network_ops *ops = mode->ops->network ? mode->ops->network : &whole_ops;
    ddp_network *n = ddp_array_alloc(1, ops->bytes);
    if (!n)
        return DDP_ERR_MEMORY;
    n->ops = ops;
    n->mode = mode;
    n->device = ddp_mode_device(mode);
    enum ddp_status status = ops->open(n, graph, parts);
    if (status != DDP_OK) {
        ddp_network_close(n);
        return status;
    }
    *network = n;
    return DDP_OK;
}

void ddp_network_close(ddp_network *network)
{
    if (!network)
        return;
    network->ops->close(network);
    free(network);
}

enum ddp_status ddp_network_run(ddp_network *network, const void *x, const void *labels)
{
    return network->ops->run(network, x, labels);
}

enum ddp_status ddp_network_idle(ddp_network *network)
{
    return network->ops->idle ? network->ops->idle(network) : DDP_OK;
}

ddp_exec *ddp_network_exec(const ddp_network *network)
{
    return network->exec;
}

ddp_device *ddp_network_device(const ddp_network *network)
{
    return network->device;
}

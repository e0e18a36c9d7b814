/* SPDX-License-Identifier: MIT
 *
 * Forward passes through the stages of a pipeline, for evaluation: each process runs its pieces of
 * a batch in the order of the graph. */
#include "config.h"

#include "mode/pipeline.h"

#include <stdlib.h>

#define SLOTS 2 /* batches that an earlier stage may be ahead */

/* A piece with memory for one batch. */
struct link {
    int number;
    int stage; /* in pipeline->here */
    ddp_graph *graph;
    ddp_exec *exec;
    struct ddp_port in, out;
    void *inputs[2]; /* staging where the device cannot read the host's memory */
    size_t input_bytes[2];
};

struct network {
    struct ddp_network network;
    struct link links[DDP_STAGES_MAX + 1]; /* pieces of this process, in the order of the graph */
    int link_count;
};

static struct ddp_pipeline *pipeline_of(const ddp_network *network)
{
    return (struct ddp_pipeline *)network->mode;
}

static const struct ddp_replica *replica_of(const ddp_network *network, const struct link *link)
{
    return ddp_stage_replica(&pipeline_of(network)->here[link->stage]);
}

static enum ddp_status open_link(ddp_network *network, struct link *link, unsigned parts)
{
    const struct ddp_replica *replica = replica_of(network, link);
    const bool last = ddp_piece_is_last(pipeline_of(network), link->number);
    const unsigned own = last ? parts : DDP_EXEC_NETWORK;
    enum ddp_status status =
        ddp_exec_create(&link->exec, link->graph, replica->device, own, replica->weights);
    if (status != DDP_OK)
        return status;
    ddp_exec_set_weights_bf16(link->exec, replica->weights_bf16);
    ddp_exec_set_frozen(link->exec, replica->frozen.values, replica->frozen.rounded);
    for (int i = 0; status == DDP_OK && i < 2 && !ddp_device_host_memory(replica->device); i++) {
        link->input_bytes[i] =
            i == 0 || (parts & DDP_EXEC_LOSS) ? ddp_exec_input_bytes(link->exec, i) : 0;
        if (link->input_bytes[i])
            status = ddp_device_alloc(replica->device, link->input_bytes[i], &link->inputs[i]);
    }
    if (last) {
        network->exec = link->exec;
        network->device = replica->device;
    }
    return status;
}

/* The pieces of one stage. Their parameters lie where training's do, which have the same layout. */
static enum ddp_status add_stage(ddp_network *network, const ddp_graph *graph, int stage)
{
    struct network *n = (struct network *)network;
    const struct ddp_pipeline *pipeline = pipeline_of(network);
    struct ddp_stage_piece pieces[2] = {{0}};
    int count;
    enum ddp_status status = ddp_stage_make_graphs(pieces, &count, &pipeline->stages, graph, NULL,
                                                   pipeline->here[stage].number);
    for (int i = 0; status == DDP_OK && i < count; i++) {
        int at = n->link_count++;
        for (; at > 0 && n->links[at - 1].number > pieces[i].number; at--)
            n->links[at] = n->links[at - 1];
        n->links[at] =
            (struct link){.number = pieces[i].number, .stage = stage, .graph = pieces[i].graph};
    }
    return status;
}

static struct link *link_of(struct network *n, int number, struct link *nobody)
{
    for (int i = 0; i < n->link_count; i++)
        if (n->links[i].number == number)
            return &n->links[i];
    return nobody;
}

static enum ddp_status connect_links(struct network *n, const ddp_graph *graph)
{
    struct ddp_pipeline *pipeline = pipeline_of(&n->network);
    const struct ddp_stages *stages = &pipeline->stages;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < stages->piece_count - 1; i++) {
        struct link none = {0};
        status =
            ddp_pipeline_connect(pipeline, stages->pieces[i].stage, stages->pieces[i + 1].stage,
                                 ddp_graph_cut_values(graph, stages->pieces[i].range.end), SLOTS,
                                 &link_of(n, i, &none)->out, &link_of(n, i + 1, &none)->in);
    }
    return status;
}

static enum ddp_status network_open(ddp_network *network, const ddp_graph *graph, unsigned parts)
{
    struct network *n = (struct network *)network;
    const struct ddp_pipeline *pipeline = pipeline_of(network);
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < pipeline->here_count; i++)
        status = add_stage(network, graph, i);
    for (int i = 0; status == DDP_OK && i < n->link_count; i++)
        status = open_link(network, &n->links[i], parts);
    return status == DDP_OK ? connect_links(n, graph) : status;
}

static void network_close(ddp_network *network)
{
    struct network *n = (struct network *)network;
    for (int i = 0; i < n->link_count; i++) {
        struct link *link = &n->links[i];
        ddp_device *device = replica_of(network, link)->device;
        for (int j = 0; j < 2; j++)
            ddp_device_free(device, link->inputs[j], link->input_bytes[j]);
        ddp_port_close(&link->in);
        ddp_port_close(&link->out);
        ddp_exec_destroy(link->exec);
        ddp_graph_destroy(link->graph);
    }
}

static enum ddp_status run_link(struct link *link, const void *const host[2])
{
    struct ddp_exec_messages messages = {NULL, NULL, NULL, NULL};
    enum ddp_status status = DDP_OK;
    void *values = NULL;
    for (int i = 0; status == DDP_OK && i < 2; i++)
        if (host[i] && ddp_exec_input_bytes(link->exec, i) > 0)
            status = ddp_exec_load_input(link->exec, i, host[i], link->inputs[i]);
    if (status == DDP_OK)
        status = ddp_port_acquire(&link->in, &values);
    if (status != DDP_OK)
        return status;
    messages.values_in = values;
    status = ddp_port_acquire(&link->out, &messages.values_out);
    ddp_exec_set_messages(link->exec, &messages);
    if (status == DDP_OK)
        status = ddp_exec_forward(link->exec);
    if (status == DDP_OK)
        status = ddp_port_release(&link->in);
    return status == DDP_OK ? ddp_port_release(&link->out) : status;
}

static enum ddp_status network_run(ddp_network *network, const void *x, const void *labels)
{
    struct network *n = (struct network *)network;
    const void *const host[2] = {x, labels};
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < n->link_count; i++)
        status = run_link(&n->links[i], host);
    /* Batches are given back to the loader: what is not waited for here must have read them. */
    for (int i = 0; status == DDP_OK && i < n->link_count; i++)
        status = ddp_device_copied(replica_of(network, &n->links[i])->device);
    return status;
}

const struct ddp_network_ops ddp_pipeline_network = {
    .bytes = sizeof(struct network),
    .open = network_open,
    .close = network_close,
    .run = network_run,
};

/* SPDX-License-Identifier: MIT
 *
 * The graph's dropout, which does nothing where nothing is trained. Layers are numbered in the
 * order in which they are built. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/dropout.h"

struct attributes {
    float probability;
    uint32_t layer;
};

static enum ddp_status run(ddp_exec *exec, const struct node *node, const void *x, void *y,
                           bool accumulate)
{
    const struct attributes *attributes = node->attributes;
    const struct ddp_exec_position *position = ddp_exec_position(exec);
    struct ddp_dropout args = {
        .count = ddp_exec_elements(exec, node->output),
        .dtype = node->output->dtype,
        .probability = ddp_exec_trains(exec) ? attributes->probability : 0,
        .seed = (uint32_t)position->seed,
        .layer = attributes->layer,
        .shard = position->shard,
        .step = position->step,
        .place = ddp_exec_place(exec),
        .x = x,
        .y = y,
        .accumulate = accumulate,
    };
    return ddp_exec_kernels(exec)->dropout(&args, ddp_exec_stream(exec));
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const void *x = ddp_exec_value(exec, node->inputs[0]);
    void *y = ddp_exec_value(exec, node->output);
    if (!ddp_exec_trains(exec) && x == y)
        return DDP_OK;
    return run(exec, node, x, y, false);
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    return run(exec, node, ddp_exec_gradient(exec, node->output),
               ddp_exec_gradient(exec, node->inputs[0]), ddp_exec_accumulates(exec, node, 0));
}

static const struct ddp_op dropout = {
    .name = "dropout",
    .in_place = true,
    .packs = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_dropout(ddp_graph *graph, ddp_tensor *x, double probability)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (!(probability >= 0 && probability < 1) || x->dtype != graph->activations)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "dropout: the probability must be from 0 to below 1, not %g",
                                probability);
    if (probability == 0)
        return x;
    const struct attributes attributes = {(float)probability, (uint32_t)graph->dropout_count++};
    struct node node = {.op = &dropout, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, x->dim_count, x->dims);
}

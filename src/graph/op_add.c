/* SPDX-License-Identifier: MIT
 *
 * The graph's sum of two tensors of one shape, a residual connection. Its gradient goes to both
 * unchanged; the memory plan mostly lets them share its memory, and then nothing is left to do. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/add.h"

#include <string.h>

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    struct ddp_add args = {
        .count = ddp_exec_elements(exec, node->output),
        .dtype = node->output->dtype,
        .a = ddp_exec_value(exec, node->inputs[0]),
        .b = ddp_exec_value(exec, node->inputs[1]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->add(&args, ddp_exec_stream(exec));
}

static enum ddp_status forward_fused(ddp_exec *exec, const struct node *node)
{
    return ddp_graph_forward_add_norm(exec, node, node + 1);
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < 2; i++) {
        struct ddp_add args = {
            .count = ddp_exec_elements(exec, node->output),
            .dtype = node->output->dtype,
            .a = ddp_exec_gradient(exec, node->output),
            .y = ddp_exec_gradient(exec, node->inputs[i]),
            .accumulate = ddp_exec_accumulates(exec, node, i),
        };
        if (args.y && args.y != args.a)
            status = ddp_exec_kernels(exec)->add(&args, ddp_exec_stream(exec));
    }
    return status;
}

static const struct ddp_op add = {
    .name = "add",
    .joins = true,
    .in_place = true,
    .packs = true,
    .forward = forward,
    .forward_fused = forward_fused,
    .backward = backward,
};

ddp_tensor *ddp_graph_add(ddp_graph *graph, ddp_tensor *a, ddp_tensor *b)
{
    if (graph->status != DDP_OK || !a || !b)
        return NULL;
    if (a->dim_count != b->dim_count || a->dtype != graph->activations || b->dtype != a->dtype ||
        memcmp(a->dims, b->dims, (size_t)a->dim_count * sizeof a->dims[0]) != 0)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "add: %s and %s differ in shape, or are not results of operations",
                                a->name, b->name);
    struct node node = {.op = &add, .inputs = {a, b}, .input_count = 2};
    return ddp_graph_add_node(graph, &node, NULL, 0, a->dim_count, a->dims);
}

/* SPDX-License-Identifier: MIT
 *
 * The graph's SwiGLU: inputs gate and up, two tensors of one shape. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/swiglu.h"

#include <string.h>

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_swiglu_forward args = {
        .count = node->output->count,
        .dtype = node->output->dtype,
        .gate = ddp_exec_value(exec, node->inputs[0]),
        .up = ddp_exec_value(exec, node->inputs[1]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->swiglu_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_swiglu_backward args = {
        .count = node->output->count,
        .dtype = node->output->dtype,
        .gate = ddp_exec_value(exec, node->inputs[0]),
        .up = ddp_exec_value(exec, node->inputs[1]),
        .dy = ddp_exec_gradient(exec, node->output),
        .dgate = ddp_exec_gradient(exec, node->inputs[0]),
        .dup = ddp_exec_gradient(exec, node->inputs[1]),
        .accumulate_dgate = ddp_exec_accumulates(exec, node, 0),
        .accumulate_dup = ddp_exec_accumulates(exec, node, 1),
    };
    return ddp_exec_kernels(exec)->swiglu_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op swiglu = {
    .name = "swiglu",
    .costs_little = true,
    .in_place = true,
    .turns_inputs = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_swiglu(ddp_graph *graph, ddp_tensor *gate, ddp_tensor *up)
{
    if (graph->status != DDP_OK || !gate || !up)
        return NULL;
    if (gate->dim_count != up->dim_count || gate->dtype != graph->activations ||
        up->dtype != gate->dtype ||
        memcmp(gate->dims, up->dims, (size_t)gate->dim_count * sizeof gate->dims[0]) != 0)
        return ddp_graph_reject(
            graph, DDP_ERR_INVALID,
            "swiglu: %s and %s differ in shape, or are not results of operations", gate->name,
            up->name);
    struct node node = {.op = &swiglu, .inputs = {gate, up}, .input_count = 2, .keeps_inputs = 3};
    return ddp_graph_add_node(graph, &node, NULL, 0, gate->dim_count, gate->dims);
}

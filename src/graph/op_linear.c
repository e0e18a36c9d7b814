/* SPDX-License-Identifier: MIT
 *
 * The graph's linear layer: inputs x (B,C), weight (O,C), optional bias (O). */
#include "config.h"

#include "graph/internal.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0], *weight = node->inputs[1];
    struct ddp_linear_forward args = {
        .rows = x->dims[0],
        .in = weight->dims[1],
        .out = weight->dims[0],
        .activation = node->activation,
        .x = ddp_exec_value(exec, x),
        .weight = ddp_exec_value(exec, weight),
        .bias = ddp_exec_value(exec, node->inputs[2]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->linear_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0], *weight = node->inputs[1];
    struct ddp_linear_backward args = {
        .rows = x->dims[0],
        .in = weight->dims[1],
        .out = weight->dims[0],
        .activation = node->activation,
        .x = ddp_exec_value(exec, x),
        .y = ddp_exec_value(exec, node->output),
        .weight = ddp_exec_value(exec, weight),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, x),
        .dweight = ddp_exec_gradient(exec, weight),
        .dbias = ddp_exec_gradient(exec, node->inputs[2]),
    };
    return ddp_exec_kernels(exec)->linear_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op linear = {
    .name = "linear",
    .backward_reads_input = true,
    .backward_reads_output = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_linear(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight, ddp_tensor *bias,
                             enum ddp_activation activation)
{
    if (graph->status != DDP_OK || !x || !weight)
        return NULL;
    if (x->dim_count != 2 || weight->dim_count != 2 || x->dims[1] != weight->dims[1] ||
        x->dtype != DDP_F32 || (bias && (bias->dim_count != 1 || bias->dims[0] != weight->dims[0])))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "linear: the shapes of %s, %s and its bias do not fit", x->name,
                                weight->name);
    struct node node = {
        .op = &linear, .inputs = {x, weight, bias}, .input_count = 3, .activation = activation};
    return ddp_graph_add_node(graph, &node, 2, (int64_t[]){x->dims[0], weight->dims[0]});
}

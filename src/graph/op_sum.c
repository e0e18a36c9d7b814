/* SPDX-License-Identifier: MIT
 *
 * The graph's sum of all elements, the loss of the article's model. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/sum.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    struct ddp_sum_forward args = {
        .count = node->inputs[0]->count,
        .dtype = node->inputs[0]->dtype,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->sum_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    struct ddp_sum_backward args = {
        .count = node->inputs[0]->count,
        .dtype = node->inputs[0]->dtype,
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, node->inputs[0]),
    };
    return ddp_exec_kernels(exec)->sum_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op sum = {
    .name = "sum",
    .is_float32 = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_sum(ddp_graph *graph, ddp_tensor *x)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dtype != graph->activations || x->kind != TENSOR_ACTIVATION)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "sum: %s is not the result of an operation",
                                x->name);
    struct node node = {.op = &sum, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, NULL, 0, 1, (int64_t[]){1});
}

/* SPDX-License-Identifier: MIT
 *
 * The graph's cast of a float32 input to what its activations are. Nothing goes back through it. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/bf16.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_to_bf16 args = {
        .count = node->output->count,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->to_bf16(&args, ddp_exec_stream(exec));
}

static const struct ddp_op cast = {
    .name = "to_bf16",
    .is_cast = true,
    .forward = forward,
};

ddp_tensor *ddp_graph_cast(ddp_graph *graph, ddp_tensor *x)
{
    const struct node node = {.op = &cast, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, NULL, 0, x->dim_count, x->dims);
}

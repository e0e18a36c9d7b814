/* SPDX-License-Identifier: MIT
 *
 * The graph's inputs, and the cast of float32 samples, input 0, to the dtype of its activations.
 * The cast has no backward pass. */
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

ddp_tensor *ddp_graph_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype, int dim_count,
                            const int64_t *dims)
{
    ddp_tensor *tensor = ddp_graph_add_input(graph, name, dtype, dim_count, dims);
    if (!tensor || dtype != DDP_F32 || graph->activations == DDP_F32 || tensor->index > 0)
        return tensor;
    const struct node node = {.op = &cast, .inputs = {tensor}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, NULL, 0, dim_count, dims);
}

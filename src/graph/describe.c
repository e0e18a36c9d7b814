/* SPDX-License-Identifier: MIT
 *
 * See describe.h. */
#include "config.h"

#include "graph/describe.h"

#include "graph/internal.h"

int ddp_graph_operation_count(const ddp_graph *graph)
{
    return graph->node_count;
}

void ddp_graph_describe(const ddp_graph *graph, int index, struct ddp_operation *operation)
{
    const struct node *node = &graph->nodes[index];
    *operation = (struct ddp_operation){
        .name = node->op->name,
        .output = node->output->name,
        .dim_count = node->output->dim_count,
        .dims = node->output->dims,
        .flops = node->op->flops ? node->op->flops(node) : 0,
    };
    for (int i = 0; i < node->input_count; i++) {
        const ddp_tensor *parameter = ddp_node_parameter(node, i);
        if (parameter && parameter->first_reader == index)
            operation->parameter_count += parameter->count;
    }
}

enum ddp_dtype ddp_graph_activations(const ddp_graph *graph)
{
    return graph->activations;
}

enum ddp_dtype ddp_graph_compute(const ddp_graph *graph)
{
    return graph->compute;
}

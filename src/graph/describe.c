/* SPDX-License-Identifier: MIT
 *
 * See describe.h; what a graph's data are; and how large the inputs and the output of a graph are,
 * and its flops. */
#include "config.h"

#include "graph/describe.h"

#include "core/blocks.h"
#include "core/log.h"
#include "graph/internal.h"
#include "graph/stage.h"
#include "kernels/linear.h"

#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_graph_set_data(ddp_graph *graph, const char *text)
{
    free(graph->data);
    graph->data = text ? strdup(text) : NULL;
    return text && !graph->data ? ddp_fail(DDP_ERR_MEMORY, "out of memory") : DDP_OK;
}

const char *ddp_graph_data(const ddp_graph *graph)
{
    return graph->data;
}

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
        const ddp_tensor *input = node->inputs[i] ? ddp_tensor_base(node->inputs[i]) : NULL;
        if (input && ddp_tensor_is_parameter(input) && input->first_reader == index)
            operation->parameter_count += input->count;
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

/* Backward costs as much as forward for the gradient of the input, if it is needed, and
 * once more for that of the weight. */
double ddp_graph_operation_flops(const ddp_graph *graph, int n)
{
    const struct node *node = &graph->nodes[n];
    int products = 1;
    for (int i = 0; i < 2 && i < node->input_count; i++)
        products += node->inputs[i] && node->inputs[i]->needs_gradient;
    return node->op->flops ? products * node->op->flops(node) : 0;
}

double ddp_graph_flops(const ddp_graph *graph)
{
    double sum = 0;
    for (int n = 0; n < graph->node_count; n++)
        sum += ddp_graph_operation_flops(graph, n);
    return sum;
}

struct ddp_graph_reads ddp_graph_parameter_reads(const ddp_graph *graph, int index)
{
    struct ddp_graph_reads reads = {false, false};
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            const ddp_tensor *tensor = node->inputs[i] ? ddp_tensor_base(node->inputs[i]) : NULL;
            if (!tensor || tensor->kind != TENSOR_PARAMETER || tensor->index != index)
                continue;
            reads.bf16 |= node->reads_bf16 >> i & 1;
            reads.f32 |= !(node->reads_bf16 >> i & 1);
        }
    }
    return reads;
}

int64_t ddp_graph_statistics_count(const ddp_graph *graph)
{
    return graph->statistics_count;
}

/* --- what an exec of it takes ----------------------------------------------------------------- */

const struct ddp_objective *ddp_graph_objective(const ddp_graph *graph)
{
    return graph->objective.kind ? &graph->objective : NULL;
}

enum ddp_status ddp_exec_check_device(const ddp_graph *graph, const char *device)
{
    if (graph->own_operation && strcmp(device, ddp_device_cpu.name) != 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s is the program's own operation, which runs on the CPU: use --device "
                        "cpu",
                        graph->own_operation);
    if (graph->encodes && strcmp(device, ddp_device_cpu.name) != 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "encoders of sentences are computed on the CPU alone: use --device cpu");
    for (int i = 0; i < graph->frozen_count; i++) {
        const struct ddp_block *block = ddp_block_of(graph->frozen[i].dtype);
        if (block && !ddp_linear_gpus_read(graph->frozen[i].dtype) &&
            strcmp(device, ddp_device_cpu.name) != 0)
            return ddp_fail(DDP_ERR_UNSUPPORTED,
                            "frozen matrices in blocks of %s are read on the CPU alone: use "
                            "--frozen-dtype nf4, or --device cpu",
                            block->name);
    }
    return DDP_OK;
}

static const ddp_tensor *find_input(const ddp_graph *graph, int input)
{
    for (int i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i]->kind == TENSOR_INPUT && graph->tensors[i]->index == input)
            return graph->tensors[i];
    return NULL;
}

size_t ddp_exec_graph_input_bytes(const ddp_graph *graph, int input)
{
    const ddp_tensor *tensor = find_input(graph, input);
    return tensor ? ddp_tensor_bytes(tensor) : 0;
}

size_t ddp_exec_graph_output_bytes(const ddp_graph *graph)
{
    return graph->output ? ddp_tensor_bytes(graph->output) : 0;
}

/* SPDX-License-Identifier: MIT
 *
 * What passes read of parameters and write of their gradients, in their order; see internal.h. */
#include "config.h"

#include "graph/internal.h"

#include "core/blocks.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_graph_announce(const ddp_graph *graph, int pass, ddp_exec_before *before,
                                   void *arg)
{
    const struct node *node = &graph->nodes[pass < 0 ? ~pass : pass];
    enum ddp_status status = DDP_OK;
    for (int i = 0; before && pass >= 0 && status == DDP_OK && i < node->input_count; i++) {
        const ddp_tensor *input = ddp_node_parameter(node, i);
        if (input && !graph->parameters[input->index].statistic)
            status = before(arg, input->index);
    }
    return status;
}

/* --- groups of parameters: the blocks, then forward and backward of each node outside --- */

/* The inputs that an operation of a group reads. */
static unsigned reads_of(const struct node *node, bool backward)
{
    return node->block < 0 && backward ? node->keeps_inputs : ~0u;
}

static bool reads_parameters(const struct node *node, bool backward)
{
    for (int i = 0; i < node->input_count; i++)
        if ((reads_of(node, backward) >> i & 1) && node->inputs[i] &&
            ddp_tensor_is_parameter(ddp_tensor_base(node->inputs[i])))
            return true;
    return false;
}

enum ddp_status ddp_graph_announce_reading(const ddp_graph *graph, int pass, bool backward,
                                           ddp_exec_reading *reading, void *arg)
{
    const int n = pass < 0 ? ~pass : pass;
    const struct node *node = &graph->nodes[n];
    if (!reading || (node->block < 0 && !reads_parameters(node, backward)))
        return DDP_OK;
    return reading(arg, node->block >= 0 ? node->block : graph->block_count + 2 * n + backward);
}

/* A frozen parameter that is not of float32 has no copy. */
static void mark(const ddp_graph *graph, const ddp_tensor *tensor, bool bf16,
                 struct ddp_graph_reads *learned, struct ddp_graph_reads *frozen)
{
    struct ddp_graph_reads *reads;
    if (!ddp_tensor_is_parameter(tensor))
        return;
    reads = tensor->kind == TENSOR_FROZEN ? &frozen[tensor->index] : &learned[tensor->index];
    bf16 = bf16 && (reads == &learned[tensor->index] ||
                    ddp_tensor_parameter(graph, tensor)->dtype == DDP_F32);
    reads->bf16 |= bf16;
    reads->f32 |= !bf16;
}

void ddp_graph_mark_group(const ddp_graph *graph, int group, struct ddp_graph_reads *learned,
                          struct ddp_graph_reads *frozen)
{
    const int apart = group - graph->block_count;
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        if (apart < 0 ? node->block != group : node->block >= 0 || n != apart / 2)
            continue;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] && (reads_of(node, apart % 2 == 1) >> i & 1))
                mark(graph, ddp_tensor_base(node->inputs[i]), node->reads_bf16 >> i & 1, learned,
                     frozen);
    }
}

/* Adds up what is marked.
 *   name [out]  of the first, unless there is one already */
static size_t marked_bytes(const struct ddp_parameter *table, int count,
                           const struct ddp_graph_reads *reads, const char **name)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        if (!reads[i].f32 && !reads[i].bf16)
            continue;
        bytes += ddp_values_bytes(table[i].frozen ? table[i].dtype : DDP_F32, table[i].count);
        *name = *name ? *name : table[i].name;
    }
    return bytes;
}

enum ddp_status ddp_graph_largest_group(const ddp_graph *graph, size_t *bytes, const char **name)
{
    const size_t learned = (size_t)graph->parameter_count, frozen = (size_t)graph->frozen_count;
    struct ddp_graph_reads *reads = ddp_array_alloc(learned + frozen + 1, sizeof *reads);
    *bytes = 0;
    if (!reads)
        return DDP_ERR_MEMORY;
    for (int group = 0; group < graph->block_count + 2 * graph->node_count; group++) {
        const char *first = NULL;
        memset(reads, 0, (learned + frozen) * sizeof *reads);
        ddp_graph_mark_group(graph, group, reads, reads + learned);
        const size_t own =
            marked_bytes(graph->parameters, graph->parameter_count, reads, &first) +
            marked_bytes(graph->frozen, graph->frozen_count, reads + learned, &first);
        *name = own > *bytes ? first : *name;
        *bytes = own > *bytes ? own : *bytes;
    }
    free(reads);
    return DDP_OK;
}

enum ddp_status ddp_exec_walk_reading(const ddp_graph *graph, unsigned parts,
                                      ddp_exec_reading *reading, void *arg)
{
    struct ddp_graph_plan plan;
    enum ddp_status status = ddp_graph_plan_make(graph, parts, &plan);
    if (status != DDP_OK)
        return status;
    const int end = parts & DDP_EXEC_LOSS ? graph->node_count : graph->network_count;
    const int passes = parts & DDP_EXEC_BACKWARD ? plan.backward_count : 0;
    for (int n = 0; status == DDP_OK && n < end; n++)
        status = ddp_graph_announce_reading(graph, n, false, reading, arg);
    for (int i = 0; status == DDP_OK && i < passes; i++) {
        const int pass = plan.backward[i];
        if (!ddp_graph_passes_over(&graph->nodes[pass < 0 ? ~pass : pass], pass))
            status = ddp_graph_announce_reading(graph, pass, true, reading, arg);
    }
    ddp_graph_plan_free(&plan);
    return status;
}

/* --- gradients --- */

int64_t ddp_graph_ready_end(const ddp_graph *graph, int number)
{
    const struct node *node = &graph->nodes[number];
    int64_t end = -1;
    for (int i = 0; i < node->input_count; i++) {
        const ddp_tensor *input = ddp_node_parameter(node, i);
        if (!input || input->first_reader != number || input->stays_open)
            continue;
        const struct ddp_parameter *parameter = &graph->parameters[input->index];
        const int64_t last = ddp_parameter_end(parameter);
        if (!parameter->statistic && last > end)
            end = last;
    }
    return end;
}

enum ddp_status ddp_exec_walk(const ddp_graph *graph, unsigned parts, ddp_exec_before *before,
                              ddp_exec_ready *ready, void *arg)
{
    struct ddp_graph_plan plan;
    enum ddp_status status = ddp_graph_plan_make(graph, parts, &plan);
    if (status != DDP_OK)
        return status;
    for (int i = 0; status == DDP_OK && i < plan.backward_count; i++) {
        const int pass = plan.backward[i];
        if (pass < 0)
            continue;
        if (!ddp_graph_passes_over(&graph->nodes[pass], pass))
            status = ddp_graph_announce(graph, pass, before, arg);
        const int64_t end = ddp_graph_ready_end(graph, pass);
        if (status == DDP_OK && end >= 0)
            status = ready(arg, end);
    }
    ddp_graph_plan_free(&plan);
    return status;
}

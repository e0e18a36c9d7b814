/* SPDX-License-Identifier: MIT
 *
 * What backward does to the gradients of parameters, in its order; see internal.h. */
#include "config.h"

#include "graph/internal.h"

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

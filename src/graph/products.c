/* SPDX-License-Identifier: MIT
 *
 * A graph's products of matrices alone; see exec.h. */
#include "config.h"

#include "graph/internal.h"

static bool multiplies(const ddp_exec *exec, int n)
{
    const ddp_graph *graph = ddp_exec_graph(exec);
    const unsigned part = n < graph->network_count ? DDP_EXEC_NETWORK : DDP_EXEC_LOSS;
    return graph->nodes[n].op->multiplies && (ddp_exec_parts(exec) & part);
}

static enum ddp_status run_products(ddp_exec *exec)
{
    const struct ddp_graph_plan *plan = ddp_exec_plan(exec);
    enum ddp_status status = DDP_OK;
    for (int n = 0; status == DDP_OK && n < ddp_exec_graph(exec)->node_count; n++)
        if (multiplies(exec, n))
            status = ddp_exec_pass_forward(exec, n);
    for (int i = 0; status == DDP_OK && i < plan->backward_count; i++)
        if (plan->backward[i] >= 0 && multiplies(exec, plan->backward[i]))
            status = ddp_exec_pass_backward(exec, plan->backward[i]);
    return status == DDP_OK ? ddp_device_synchronize(ddp_exec_device(exec)) : status;
}

static void exchange_inputs(ddp_exec *exec, const void *from, const void *to)
{
    for (int i = 0; i < ddp_exec_graph(exec)->input_count; i++)
        if (ddp_exec_input(exec, i) == from)
            ddp_exec_bind_input(exec, i, to);
}

enum ddp_status ddp_exec_run_products(ddp_exec *exec, float *gradients)
{
    ddp_device *device = ddp_exec_device(exec);
    float *const before = ddp_exec_gradients(exec);
    size_t bytes = 1;
    void *zeros;
    for (int i = 0; i < ddp_exec_graph(exec)->input_count; i++)
        if (!ddp_exec_input(exec, i) && ddp_exec_input_bytes(exec, i) > bytes)
            bytes = ddp_exec_input_bytes(exec, i);
    enum ddp_status status = ddp_device_alloc(device, bytes, &zeros);
    if (status != DDP_OK)
        return status;
    exchange_inputs(exec, NULL, zeros);
    ddp_exec_set_gradients(exec, gradients);
    status = run_products(exec);
    ddp_exec_set_gradients(exec, before);
    exchange_inputs(exec, zeros, NULL);
    ddp_device_free(device, zeros, bytes);
    return status;
}

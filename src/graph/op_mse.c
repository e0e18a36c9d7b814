/* SPDX-License-Identifier: MIT
 *
 * The graph's loss of numbers: inputs output (...), targets (...). In training forward already
 * writes the gradient of the output, mostly over it: nothing is left for backward. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/mse.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *output = node->inputs[0];
    struct ddp_mse args = {
        .count = output->count,
        .dtype = output->dtype,
        .x = ddp_exec_value(exec, output),
        .targets = ddp_exec_value(exec, node->inputs[1]),
        .loss = ddp_exec_value(exec, node->output),
        .dx = ddp_exec_gradient(exec, output),
        .dloss = ddp_exec_loss_gradient(exec),
    };
    return ddp_exec_kernels(exec)->mse(&args, ddp_exec_stream(exec));
}

static const struct ddp_op mse = {
    .name = "mse",
    .gradient_in_forward = true,
    .is_float32 = true,
    .forward = forward,
};

ddp_tensor *ddp_graph_mse(ddp_graph *graph, ddp_tensor *output, ddp_tensor *targets)
{
    if (graph->status != DDP_OK || !output || !targets)
        return NULL;
    const ddp_tensor *given = ddp_tensor_base(targets);
    if (given->kind != TENSOR_INPUT || given->index != 1 || targets->dtype != DDP_F32)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "mse: %s is not the targets: input 1, of "
                                "float32",
                                targets->name);
    if (output->dtype != graph->activations || ddp_tensor_base(output)->kind != TENSOR_ACTIVATION)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "mse: %s is not the result of an operation",
                                output->name);
    if (targets->count != output->count || targets->dims[0] != output->dims[0])
        return ddp_graph_reject(
            graph, DDP_ERR_INVALID, "mse: %s has %lld numbers in %lld rows, and %s %lld in %lld",
            output->name, (long long)output->count, (long long)output->dims[0], targets->name,
            (long long)targets->count, (long long)targets->dims[0]);
    struct node node = {.op = &mse, .inputs = {output, targets}, .input_count = 2};
    return ddp_graph_add_node(graph, &node, NULL, 0, 1, (int64_t[]){1});
}

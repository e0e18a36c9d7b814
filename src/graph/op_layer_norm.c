/* SPDX-License-Identifier: MIT
 *
 * The graph's layer norm: inputs x (...,C), gamma (C), beta (C); and its RMS norm, without beta. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/layer_norm.h"

struct attributes {
    float eps;
    bool rms;
};

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[0];
    struct ddp_layer_norm_forward args = {
        .rows = ddp_exec_rows(exec, x),
        .features = x->dims[x->dim_count - 1],
        .dtype = x->dtype,
        .eps = attributes->eps,
        .rms = attributes->rms,
        .x = ddp_exec_value(exec, x),
        .gamma = ddp_exec_value(exec, node->inputs[1]),
        .beta = ddp_exec_value(exec, node->inputs[2]),
        .y = ddp_exec_value(exec, node->output),
        .statistics = ddp_exec_saved(exec, node),
    };
    return ddp_exec_kernels(exec)->layer_norm_forward(&args, ddp_exec_stream(exec));
}

enum ddp_status ddp_graph_forward_add_norm(ddp_exec *exec, const struct node *sum,
                                           const struct node *norm)
{
    const struct attributes *attributes = norm->attributes;
    const ddp_tensor *x = sum->output;
    struct ddp_add_layer_norm_forward args = {
        .rows = ddp_exec_rows(exec, x),
        .features = x->dims[x->dim_count - 1],
        .dtype = x->dtype,
        .eps = attributes->eps,
        .rms = attributes->rms,
        .a = ddp_exec_value(exec, sum->inputs[0]),
        .b = ddp_exec_value(exec, sum->inputs[1]),
        .sum = ddp_exec_value(exec, x),
        .gamma = ddp_exec_value(exec, norm->inputs[1]),
        .beta = ddp_exec_value(exec, norm->inputs[2]),
        .y = ddp_exec_value(exec, norm->output),
        .statistics = ddp_exec_saved(exec, norm),
    };
    return ddp_exec_kernels(exec)->add_layer_norm_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[0];
    struct ddp_layer_norm_backward args = {
        .rows = ddp_exec_rows(exec, x),
        .features = x->dims[x->dim_count - 1],
        .dtype = x->dtype,
        .rms = attributes->rms,
        .x = ddp_exec_value(exec, x),
        .gamma = ddp_exec_value(exec, node->inputs[1]),
        .statistics = ddp_exec_saved(exec, node),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, x),
        .dgamma = ddp_exec_gradient(exec, node->inputs[1]),
        .dbeta = ddp_exec_gradient(exec, node->inputs[2]),
        .accumulate_dx = ddp_exec_accumulates(exec, node, 0),
        .accumulate = ddp_exec_accumulates(exec, node, 1),
        .scratch = ddp_exec_backward_scratch(exec, node),
    };
    return ddp_exec_kernels(exec)->layer_norm_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op layer_norm = {
    .name = "layer_norm",
    .costs_little = true,
    .sum_and_norm = "add, layer_norm",
    .packs = true,
    .forward = forward,
    .backward = backward,
};

static const struct ddp_op rms_norm = {
    .name = "rms_norm",
    .costs_little = true,
    .sum_and_norm = "add, rms_norm",
    .forward = forward,
    .backward = backward,
};

static ddp_tensor *add_norm(ddp_graph *graph, const struct ddp_op *op, const char *name,
                            ddp_tensor *x, float eps)
{
    char full[256];
    if (!ddp_graph_layer_begins(graph, name, x))
        return NULL;
    const int64_t features = x->dims[x->dim_count - 1], rows = ddp_tensor_rows(x);
    const struct attributes attributes = {.eps = eps, .rms = op == &rms_norm};
    struct node node = {
        .op = op,
        .inputs = {x},
        .input_count = attributes.rms ? 2 : 3,
        .keeps_inputs = 1 | 2,
        .saved_bytes = 2 * (size_t)rows * sizeof(float),
        .backward_scratch = ddp_layer_norm_scratch_bytes(rows, features),
    };
    for (int i = 1; i < node.input_count; i++) {
        const enum ddp_init_kind kind = i == 1 ? DDP_INIT_ONES : DDP_INIT_ZEROS;
        snprintf(full, sizeof full, "%s.%s", name, i == 1 ? "weight" : "bias");
        node.inputs[i] =
            ddp_graph_parameter(graph, full, 1, &features, (struct ddp_init){.kind = kind});
        if (!node.inputs[i])
            return NULL;
    }
    if (x->dtype != graph->activations)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: %s is not the result of an operation",
                                op->name, x->name);
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, x->dim_count, x->dims);
}

ddp_tensor *ddp_graph_layer_norm_layer(ddp_graph *graph, const char *name, ddp_tensor *x, float eps)
{
    return add_norm(graph, &layer_norm, name, x, eps);
}

ddp_tensor *ddp_graph_rms_norm_layer(ddp_graph *graph, const char *name, ddp_tensor *x, float eps)
{
    return add_norm(graph, &rms_norm, name, x, eps);
}

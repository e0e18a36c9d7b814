/* SPDX-License-Identifier: MIT
 *
 * The graph's product of a tensor and a constant. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/add.h"

#include <math.h>

struct attributes {
    float factor;
};

static enum ddp_status run(ddp_exec *exec, const struct node *node, const void *x, void *y,
                           bool accumulate)
{
    const struct attributes *attributes = node->attributes;
    struct ddp_add args = {
        .count = ddp_exec_elements(exec, node->output),
        .dtype = node->output->dtype,
        .a = x,
        .scale = attributes->factor,
        .y = y,
        .accumulate = accumulate,
    };
    return ddp_exec_kernels(exec)->add(&args, ddp_exec_stream(exec));
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    return run(exec, node, ddp_exec_value(exec, node->inputs[0]),
               ddp_exec_value(exec, node->output), false);
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    return run(exec, node, ddp_exec_gradient(exec, node->output),
               ddp_exec_gradient(exec, node->inputs[0]), ddp_exec_accumulates(exec, node, 0));
}

static const struct ddp_op scale = {
    .name = "scale",
    .in_place = true,
    .packs = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_scale(ddp_graph *graph, ddp_tensor *x, double factor)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (!isfinite((float)factor) || (float)factor == 0 || x->dtype != graph->activations)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "scale: %s and a factor of %g: the factor must be finite and not 0",
                                x->name, factor);
    if (factor == 1)
        return x;
    const struct attributes attributes = {(float)factor};
    struct node node = {.op = &scale, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, x->dim_count, x->dims);
}

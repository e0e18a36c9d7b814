/* SPDX-License-Identifier: MIT
 *
 * The graph's max and average pooling of images (B,H,W,C). */
#include "config.h"

#include "graph/internal.h"
#include "kernels/pool2d.h"

static enum ddp_status max_forward(ddp_exec *exec, const struct node *node)
{
    struct ddp_max_pool2d_forward args = {
        .shape = *(const struct ddp_pool2d_shape *)node->attributes,
        .dtype = node->output->dtype,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
        .chosen = ddp_exec_saved(exec, node),
    };
    return ddp_exec_kernels(exec)->max_pool2d_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status max_backward(ddp_exec *exec, const struct node *node)
{
    struct ddp_max_pool2d_backward args = {
        .shape = *(const struct ddp_pool2d_shape *)node->attributes,
        .dtype = node->output->dtype,
        .dy = ddp_exec_gradient(exec, node->output),
        .chosen = ddp_exec_saved(exec, node),
        .dx = ddp_exec_gradient(exec, node->inputs[0]),
        .accumulate_dx = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_exec_kernels(exec)->max_pool2d_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op max_pool2d = {
    .name = "max_pool2d",
    .forward = max_forward,
    .backward = max_backward,
};

static enum ddp_status average_forward(ddp_exec *exec, const struct node *node)
{
    struct ddp_avg_pool2d_forward args = {
        .shape = *(const struct ddp_pool2d_shape *)node->attributes,
        .dtype = node->output->dtype,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->avg_pool2d_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status average_backward(ddp_exec *exec, const struct node *node)
{
    struct ddp_avg_pool2d_backward args = {
        .shape = *(const struct ddp_pool2d_shape *)node->attributes,
        .dtype = node->output->dtype,
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, node->inputs[0]),
        .accumulate_dx = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_exec_kernels(exec)->avg_pool2d_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op avg_pool2d = {
    .name = "avg_pool2d",
    .forward = average_forward,
    .backward = average_backward,
};

static ddp_tensor *add_pool(ddp_graph *graph, const struct ddp_op *op, ddp_tensor *x,
                            int64_t kernel_height, int64_t kernel_width, int64_t stride,
                            int64_t padding)
{
    if (x->dim_count != 4 || x->dtype != graph->activations)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: %s is not a (B,H,W,C) image", op->name,
                                x->name);
    const int64_t height = ddp_window_count(x->dims[1], kernel_height, stride, padding, 1);
    const int64_t width = ddp_window_count(x->dims[2], kernel_width, stride, padding, 1);
    if (height < 1 || width < 1)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "%s: a window of %lld x %lld does not fit an image of %lld x %lld",
                                op->name, (long long)kernel_height, (long long)kernel_width,
                                (long long)x->dims[1], (long long)x->dims[2]);
    const struct ddp_pool2d_shape shape = {.batch = x->dims[0],
                                           .height = x->dims[1],
                                           .width = x->dims[2],
                                           .channels = x->dims[3],
                                           .kernel_height = kernel_height,
                                           .kernel_width = kernel_width,
                                           .stride = stride,
                                           .padding = padding};
    struct node node = {.op = op, .inputs = {x}, .input_count = 1};
    if (op == &max_pool2d)
        node.saved_bytes = (size_t)(x->dims[0] * height * width * x->dims[3]);
    return ddp_graph_add_node(graph, &node, &shape, sizeof shape, 4,
                              (int64_t[]){x->dims[0], height, width, x->dims[3]});
}

ddp_tensor *ddp_graph_max_pool2d(ddp_graph *graph, ddp_tensor *x, int64_t kernel, int64_t stride,
                                 int64_t padding)
{
    return graph->status == DDP_OK && x
               ? add_pool(graph, &max_pool2d, x, kernel, kernel, stride, padding)
               : NULL;
}

ddp_tensor *ddp_graph_global_avg_pool2d(ddp_graph *graph, ddp_tensor *x)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    ddp_tensor *y = add_pool(graph, &avg_pool2d, x, x->dims[1], x->dims[2], 1, 0);
    return y ? ddp_graph_reshape(graph, y, 2, (int64_t[]){x->dims[0], -1}) : NULL;
}

/* SPDX-License-Identifier: MIT
 *
 * The graph's change between images (B,C,H,W), as datasets and PyTorch have them, and (B,H,W,C), as
 * the image operations here take them. With one channel or one pixel both are the same memory. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/transpose.h"

struct attributes {
    int64_t rows, columns; /* of each image before */
};

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    struct ddp_transpose args = {
        .batch = node->output->dims[0],
        .dtype = node->output->dtype,
        .rows = attributes->rows,
        .columns = attributes->columns,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->transpose(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    struct ddp_transpose args = {
        .batch = node->output->dims[0],
        .dtype = node->output->dtype,
        .rows = attributes->columns,
        .columns = attributes->rows,
        .x = ddp_exec_gradient(exec, node->output),
        .y = ddp_exec_gradient(exec, node->inputs[0]),
        .accumulate = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_exec_kernels(exec)->transpose(&args, ddp_exec_stream(exec));
}

static const struct ddp_op transpose = {
    .name = "transpose",
    .forward = forward,
    .backward = backward,
};

static ddp_tensor *change(ddp_graph *graph, ddp_tensor *x, int64_t rows, int64_t columns,
                          const int64_t *dims)
{
    const struct attributes attributes = {rows, columns};
    struct node node = {.op = &transpose, .inputs = {x}, .input_count = 1};
    if (rows == 1 || columns == 1)
        return ddp_graph_reshape(graph, x, 4, dims);
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, 4, dims);
}

static bool is_image(ddp_graph *graph, const ddp_tensor *x)
{
    if (graph->status != DDP_OK || !x)
        return false;
    if (x->dim_count == 4 && x->dtype == graph->activations)
        return true;
    ddp_graph_reject(graph, DDP_ERR_INVALID, "%s is not an image of four dimensions", x->name);
    return false;
}

ddp_tensor *ddp_graph_channels_last(ddp_graph *graph, ddp_tensor *x)
{
    if (!is_image(graph, x))
        return NULL;
    return change(graph, x, x->dims[1], x->dims[2] * x->dims[3],
                  (int64_t[]){x->dims[0], x->dims[2], x->dims[3], x->dims[1]});
}

ddp_tensor *ddp_graph_channels_first(ddp_graph *graph, ddp_tensor *x)
{
    if (!is_image(graph, x))
        return NULL;
    return change(graph, x, x->dims[1] * x->dims[2], x->dims[3],
                  (int64_t[]){x->dims[0], x->dims[3], x->dims[1], x->dims[2]});
}

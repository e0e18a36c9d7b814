/* SPDX-License-Identifier: MIT
 *
 * The graph's convolution: inputs x (B,H,W,C), weight (O,C,KH,KW), optional bias (O). */
#include "config.h"

#include "graph/internal.h"
#include "kernels/conv2d/conv2d.h"

struct attributes {
    struct ddp_conv2d_shape shape;
    enum ddp_activation activation;
    enum ddp_dtype compute;
};

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    struct ddp_conv2d_forward args = {
        .shape = attributes->shape,
        .dtype = node->output->dtype,
        .activation = attributes->activation,
        .compute = attributes->compute,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .weight = ddp_exec_value(exec, node->inputs[1]),
        .bias = ddp_exec_value(exec, node->inputs[2]),
        .y = ddp_exec_value(exec, node->output),
        .scratch = ddp_exec_forward_scratch(exec, node),
    };
    return ddp_exec_kernels(exec)->conv2d_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    struct ddp_conv2d_backward args = {
        .shape = attributes->shape,
        .dtype = node->output->dtype,
        .activation = attributes->activation,
        .compute = attributes->compute,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
        .weight = ddp_exec_value(exec, node->inputs[1]),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, node->inputs[0]),
        .dweight = ddp_exec_gradient(exec, node->inputs[1]),
        .dbias = ddp_exec_gradient(exec, node->inputs[2]),
        .accumulate_dx = ddp_exec_accumulates(exec, node, 0),
        .accumulate_dweight = ddp_exec_accumulates(exec, node, 1),
        .scratch = ddp_exec_backward_scratch(exec, node),
    };
    return ddp_exec_kernels(exec)->conv2d_backward(&args, ddp_exec_stream(exec));
}

static double flops(const struct node *node)
{
    const ddp_tensor *weight = node->inputs[1];
    return 2.0 * (double)node->output->count * (double)(weight->count / weight->dims[0]);
}

static const struct ddp_op conv2d = {
    .name = "conv2d",
    .multiplies = true,
    .forward = forward,
    .backward = backward,
    .flops = flops,
};

ddp_tensor *ddp_graph_conv2d_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                   const struct ddp_conv2d_options *options)
{
    char full[256];
    if (!ddp_graph_layer_begins(graph, name, x))
        return NULL;
    if (x->dim_count != 4 || x->dtype != graph->activations)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: %s is not a (B,H,W,C) image", name,
                                x->name);
    const int64_t kernel = options->kernel, stride = options->stride ? options->stride : 1;
    const int64_t height = ddp_window_count(x->dims[1], kernel, stride, options->padding, 1);
    const int64_t width = ddp_window_count(x->dims[2], kernel, stride, options->padding, 1);
    if (height < 1 || width < 1)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "%s: a window of %lld x %lld does not fit an image of %lld x %lld",
                                name, (long long)kernel, (long long)kernel, (long long)x->dims[1],
                                (long long)x->dims[2]);
    const struct ddp_init init = {.kind = DDP_INIT_LINEAR, .fan_in = x->dims[3] * kernel * kernel};
    snprintf(full, sizeof full, "%s.weight", name);
    ddp_tensor *weight = ddp_graph_parameter(
        graph, full, 4, (int64_t[]){options->out, x->dims[3], kernel, kernel}, init);
    ddp_tensor *bias = NULL;
    snprintf(full, sizeof full, "%s.bias", name);
    if (options->with_bias)
        bias = ddp_graph_parameter(graph, full, 1, &options->out, init);
    const struct attributes attributes = {
        .shape = {.batch = x->dims[0],
                  .height = x->dims[1],
                  .width = x->dims[2],
                  .in = x->dims[3],
                  .out = options->out,
                  .kernel_height = kernel,
                  .kernel_width = kernel,
                  .stride = stride,
                  .padding = options->padding,
                  .dilation = 1},
        .activation = options->activation,
        .compute = graph->compute,
    };
    struct node node = {
        .op = &conv2d,
        .inputs = {x, weight, bias},
        .input_count = 3,
        .keeps_inputs = 1 | 2,
        .keeps_output = options->activation != DDP_ACTIVATION_NONE,
        .overwrites_dy = options->activation != DDP_ACTIVATION_NONE,
        .forward_scratch = ddp_conv2d_forward_scratch_bytes(&attributes.shape),
        .backward_scratch = ddp_conv2d_backward_scratch_bytes(&attributes.shape),
    };
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, 4,
                              (int64_t[]){x->dims[0], height, width, options->out});
}

/* SPDX-License-Identifier: MIT
 *
 * The graph's linear layer: inputs x (...,C), weight (O,C), optional bias (O). Its backward leaves
 * the gradient before the activation where that of its output was. Where the graph pads its O
 * outputs, the layer is just as wide: from rows of zeros it makes zeros, and their gradients are
 * zeros. */
#include "config.h"

#include "core/blocks.h"
#include "graph/internal.h"
#include "kernels/linear.h"

#include <assert.h>
#include <stdio.h>

static const struct ddp_op linear;

struct attributes {
    enum ddp_activation activation;
    enum ddp_dtype compute;
};

static struct ddp_linear_blocks blocks_of(const ddp_exec *exec, const ddp_tensor *weight)
{
    const struct ddp_block *block = ddp_block_of(weight->dtype);
    return (struct ddp_linear_blocks){block, block ? ddp_exec_value(exec, weight) : NULL,
                                      weight->dtype};
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[0], *weight = node->inputs[1];
    assert(attributes->compute != DDP_BF16 || weight->kind == TENSOR_FROZEN ||
           ddp_exec_value_bf16(exec, weight));
    const struct ddp_exec_cache *cache = ddp_exec_cache(exec);
    struct ddp_linear_forward args = {
        .rows = ddp_exec_rows(exec, x),
        .in = weight->dims[1],
        .out = node->output->pitch,
        .activation = attributes->activation,
        .compute = attributes->compute,
        .dtype = node->output->dtype,
        .rowwise = cache && cache->past > 0,
        .x = ddp_exec_value(exec, x),
        .weight = ddp_exec_value_f32(exec, weight),
        .weight_bf16 = ddp_exec_value_bf16(exec, weight),
        .weight_blocks = blocks_of(exec, weight),
        .bias = ddp_exec_value(exec, node->inputs[2]),
        .bias_bf16 = node->inputs[2] ? ddp_exec_value_bf16(exec, node->inputs[2]) : NULL,
        .y = ddp_exec_value(exec, node->output),
        .pre = ddp_exec_saved(exec, node),
        .scratch = ddp_exec_forward_scratch(exec, node),
    };
    return ddp_exec_kernels(exec)->linear_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    const struct ddp_linear_backward args = {
        .rows = ddp_exec_rows(exec, x),
        .in = weight->dims[1],
        .out = node->output->pitch,
        .activation = attributes->activation,
        .compute = attributes->compute,
        .dtype = node->output->dtype,
        .x = ddp_exec_value(exec, x),
        .y = ddp_exec_value(exec, node->output),
        .pre = ddp_exec_saved(exec, node),
        .weight = ddp_exec_value_f32(exec, weight),
        .weight_bf16 = ddp_exec_value_bf16(exec, weight),
        .weight_blocks = blocks_of(exec, weight),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, x),
        .dweight = ddp_exec_gradient(exec, weight),
        .dbias = ddp_exec_gradient(exec, bias),
        .accumulate_dx = ddp_exec_accumulates(exec, node, 0),
        .accumulate_dweight = ddp_exec_accumulates(exec, node, 1),
        .accumulate_dbias = bias && ddp_exec_accumulates(exec, node, 2),
        .scratch = ddp_exec_backward_scratch(exec, node),
    };
    return ddp_exec_kernels(exec)->linear_backward(&args, ddp_exec_stream(exec));
}

static double flops(const struct node *node)
{
    return 2.0 * (double)node->inputs[0]->count * (double)node->inputs[1]->dims[0];
}

static const struct ddp_op linear = {
    .name = "linear",
    .multiplies = true,
    .reads_blocks = true,
    .packs = true,
    .forward = forward,
    .backward = backward,
    .flops = flops,
};

/* Weights of bf16, or in blocks, may have to be unpacked for products of float32, and those in
 * blocks for others too; others are rounded for those of bf16, if they are frozen and there is no
 * copy. */
size_t ddp_graph_linear_scratch(const ddp_graph *graph, const ddp_tensor *weight, int64_t rows,
                                int64_t in, int64_t out)
{
    const bool frozen = weight->kind == TENSOR_FROZEN, bf16 = weight->dtype == DDP_BF16;
    const bool blocks = ddp_block_of(weight->dtype) != NULL;
    const bool reads = graph->offers.reads_bf16_weights; /* unpacks what a product packs */
    if ((bf16 || blocks) && graph->compute == DDP_F32)
        return reads ? 0 : ddp_linear_unpack_bytes(in, out);
    return ddp_linear_scratch_bytes(rows, in, out, graph->compute, graph->activations,
                                    bf16 || (blocks && reads) || !frozen);
}

ddp_tensor *ddp_graph_linear(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight, ddp_tensor *bias,
                             enum ddp_activation activation)
{
    if (graph->status != DDP_OK || !x || !weight)
        return NULL;
    if (weight->dim_count != 2 || x->dims[x->dim_count - 1] != weight->dims[1] ||
        x->dtype != graph->activations || !ddp_tensor_is_parameter(weight) ||
        (bias && (bias->dim_count != 1 || bias->dims[0] != weight->dims[0])))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "linear: the shapes of %s, %s and its bias do not fit", x->name,
                                weight->name);
    const struct attributes attributes = {activation, graph->compute};
    const int64_t rows = ddp_tensor_rows(x), out = weight->dims[0];
    const bool can_pad = activation == DDP_ACTIVATION_NONE && !ddp_block_of(weight->dtype);
    const int64_t in = weight->dims[1], padded = can_pad ? ddp_graph_padded(graph, out) : out;
    const size_t scratch = ddp_graph_linear_scratch(graph, weight, rows, in, padded);
    struct node node = {
        .op = &linear,
        .inputs = {x, weight, bias},
        .input_count = 3,
        .keeps_inputs = 2u | (weight->kind == TENSOR_PARAMETER), /* x for the weight's gradient */
        .reads_bf16 = graph->compute != DDP_BF16       ? 0
                      : graph->activations == DDP_BF16 ? 2 | 4
                                                       : 2, /* weight; bias */
        .keeps_output = activation == DDP_ACTIVATION_RELU,
        .can_pad = can_pad,
        .overwrites_dy = activation != DDP_ACTIVATION_NONE,
        .saved_bytes =
            ddp_linear_is_gelu(activation) ? (size_t)(rows * out) * ddp_dtype_bytes(x->dtype) : 0,
        .forward_scratch = scratch,
        .backward_scratch = scratch,
    };
    int64_t dims[DDP_TENSOR_DIMS];
    for (int i = 0; i < x->dim_count; i++)
        dims[i] = x->dims[i];
    dims[x->dim_count - 1] = out;
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, x->dim_count, dims);
}

ddp_tensor *ddp_graph_linear_layer(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out,
                                   bool with_bias, enum ddp_activation activation)
{
    char full[256];
    if (!ddp_graph_layer_begins(graph, name, x))
        return NULL;
    int64_t in = x->dims[x->dim_count - 1];
    const struct ddp_init init = {.kind = DDP_INIT_LINEAR, .fan_in = in};
    snprintf(full, sizeof full, "%s.weight", name);
    ddp_tensor *weight = ddp_graph_parameter(graph, full, 2, (int64_t[]){out, in}, init);
    ddp_tensor *bias = NULL;
    if (with_bias) {
        snprintf(full, sizeof full, "%s.bias", name);
        bias = ddp_graph_parameter(graph, full, 1, (int64_t[]){out}, init);
    }
    return ddp_graph_linear(graph, x, weight, bias, activation);
}

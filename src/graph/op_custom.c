/* SPDX-License-Identifier: MIT
 *
 * The graph's operation of the program's own: callbacks on memory of the host, so on the CPU alone.
 * What backward gives is added here where a gradient has several writers, so that a callback need
 * not know. */
#include "config.h"

#include "graph/internal.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/versioned.h"
#include "kernels/add.h"

#include <string.h>

#define MOST_BYTES ((size_t)1 << 48) /* so that sums of sizes do not overflow */

struct attributes {
    struct ddp_op op; /* of this node alone: it has the name */
    struct ddp_custom_op custom;
    char name[64];
    size_t scratch_bytes; /* of the program's, aligned; backward has gradients behind it */
};

static const struct attributes *attributes_of(const struct node *node)
{
    return node->attributes;
}

static size_t gradient_bytes(const ddp_tensor *input)
{
    return ddp_align_up((size_t)input->count * sizeof(float), DDP_CACHE_LINE);
}

/* A pass without gradients. */
static struct ddp_custom_pass pass_of(ddp_exec *exec, const struct node *node)
{
    struct ddp_custom_pass pass = {
        .output = ddp_exec_value(exec, node->output),
        .output_count = node->output->count,
        .saved = ddp_exec_saved(exec, node),
        .trains = ddp_exec_trains(exec),
    };
    for (int i = 0; i < node->input_count; i++) {
        const ddp_tensor *input = node->inputs[i];
        pass.inputs[i] = (struct ddp_custom_tensor){.dtype = input->dtype,
                                                    .dim_count = input->dim_count,
                                                    .count = input->count,
                                                    .values = ddp_exec_value(exec, input)};
        memcpy(pass.inputs[i].dims, input->dims, sizeof input->dims);
    }
    return pass;
}

static enum ddp_status call(const struct node *node, const char *direction,
                            enum ddp_status (*callback)(void *, const struct ddp_custom_pass *),
                            const struct ddp_custom_pass *pass)
{
    const struct attributes *attributes = attributes_of(node);
    const enum ddp_status status = callback(attributes->custom.arg, pass);
    if (status == DDP_OK || status == DDP_ERR_ABORTED)
        return status;
    if (status > 0 || status == DDP_ERR_PREEMPTED)
        return ddp_fail(DDP_ERR_INVALID,
                        "the program's operation %s returned %d from %s, which is not a failure's "
                        "status",
                        attributes->name, (int)status, direction);
    return ddp_fail(status, "the program's operation %s failed in %s: %s", attributes->name,
                    direction, ddp_status_string(status));
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    struct ddp_custom_pass pass = pass_of(exec, node);
    pass.scratch = ddp_exec_forward_scratch(exec, node);
    return call(node, "forward", attributes_of(node)->custom.forward, &pass);
}

/* Gradients that others write too get memory of their own. */
static void give_gradients(ddp_exec *exec, const struct node *node, struct ddp_custom_pass *pass)
{
    char *apart = (char *)pass->scratch + attributes_of(node)->scratch_bytes;
    for (int i = 0; i < node->input_count; i++) {
        struct ddp_custom_tensor *input = &pass->inputs[i];
        if (!ddp_tensor_base(node->inputs[i])->needs_gradient)
            continue;
        input->gradients = ddp_exec_accumulates(exec, node, i)
                               ? (float *)(void *)apart
                               : ddp_exec_gradient(exec, node->inputs[i]);
        memset(input->gradients, 0, (size_t)input->count * sizeof(float));
        apart += gradient_bytes(node->inputs[i]);
    }
}

static enum ddp_status add_gradients(ddp_exec *exec, const struct node *node,
                                     const struct ddp_custom_pass *pass)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < node->input_count; i++) {
        const struct ddp_add args = {.count = pass->inputs[i].count,
                                     .dtype = DDP_F32,
                                     .a = pass->inputs[i].gradients,
                                     .y = ddp_exec_gradient(exec, node->inputs[i]),
                                     .accumulate = true};
        if (args.a && args.a != args.y)
            status = ddp_exec_kernels(exec)->add(&args, ddp_exec_stream(exec));
    }
    return status;
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    struct ddp_custom_pass pass = pass_of(exec, node);
    pass.output = NULL; /* its memory may have other uses by now */
    pass.output_gradients = ddp_exec_gradient(exec, node->output);
    pass.scratch = ddp_exec_backward_scratch(exec, node);
    give_gradients(exec, node, &pass);
    enum ddp_status status = call(node, "backward", attributes_of(node)->custom.backward, &pass);
    return status == DDP_OK ? add_gradients(exec, node, &pass) : status;
}

static ddp_tensor *check(ddp_graph *graph, const struct ddp_custom_op *custom)
{
    bool learns = false;
    const char *name = custom->name;
    if (!name || !*name || !custom->forward)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "struct ddp_custom_op: it has no name, or no forward");
    if (custom->input_count < 1 || custom->input_count > DDP_CUSTOM_INPUTS)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "%s: it has %d inputs: 1 to %d are possible", name,
                                custom->input_count, DDP_CUSTOM_INPUTS);
    if (custom->saved_bytes > MOST_BYTES || custom->scratch_bytes > MOST_BYTES)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "%s: saved_bytes is %zu and scratch_bytes %zu: up to %zu are "
                                "possible",
                                name, custom->saved_bytes, custom->scratch_bytes, MOST_BYTES);
    if (graph->activations != DDP_F32)
        return ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED,
                                "%s is the program's own operation, which runs on the CPU, in "
                                "float32: use --device cpu",
                                name);
    for (int i = 0; i < custom->input_count; i++) {
        const ddp_tensor *input = custom->inputs[i];
        if (!input)
            return NULL;
        if (input->base && ddp_tensor_is_parameter(input->base))
            return ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED,
                                    "%s: parameter %s is reshaped: give it the shape when it is "
                                    "made",
                                    name, input->name);
        learns |= ddp_tensor_base(input)->needs_gradient;
    }
    if (learns && !custom->backward)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "%s has no backward, and its inputs need gradients", name);
    return custom->inputs[0];
}

ddp_tensor *ddp_graph_custom(ddp_graph *graph, const struct ddp_custom_op *op)
{
    struct attributes attributes = {.op = {.forward = forward, .backward = backward}};
    if (graph->status != DDP_OK)
        return NULL;
    graph->status = ddp_versioned_take(&attributes.custom, sizeof attributes.custom, op,
                                       "struct ddp_custom_op");
    const struct ddp_custom_op *custom = &attributes.custom;
    if (graph->status != DDP_OK || !check(graph, custom))
        return NULL;
    snprintf(attributes.name, sizeof attributes.name, "%s", custom->name);
    attributes.op.name = attributes.name;
    attributes.scratch_bytes = ddp_align_up(custom->scratch_bytes, DDP_CACHE_LINE);
    struct node node = {
        .op = &attributes.op,
        .input_count = custom->input_count,
        .keeps_inputs = (1u << custom->input_count) - 1,
        .saved_bytes = custom->saved_bytes,
        .forward_scratch = custom->scratch_bytes,
        .backward_scratch = attributes.scratch_bytes,
    };
    for (int i = 0; i < custom->input_count; i++) {
        node.inputs[i] = custom->inputs[i];
        if (ddp_tensor_base(node.inputs[i])->needs_gradient)
            node.backward_scratch += gradient_bytes(node.inputs[i]);
    }
    ddp_tensor *output = ddp_graph_add_node(graph, &node, &attributes, sizeof attributes,
                                            custom->dim_count, custom->dims);
    if (!output)
        return NULL;
    struct attributes *kept = graph->nodes[output->producer].attributes;
    kept->op.name = kept->name;
    graph->nodes[output->producer].op = &kept->op;
    graph->own_operation = kept->name;
    return output;
}

/* SPDX-License-Identifier: MIT
 *
 * The graph's operations of encoders of sentences (kernels/sentence.h): the mean of a row's tokens,
 * tanh, and the contrastive loss. They run on the CPU alone. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/sentence.h"

/* --- mean of tokens --------------------------------------------------------------------------- */

static enum ddp_status mean_forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0];
    const struct ddp_token_mean_forward args = {
        .batch = x->dims[0],
        .length = x->dims[1],
        .features = x->dims[2],
        .dtype = x->dtype,
        .lengths = ddp_exec_value(exec, node->inputs[1]),
        .x = ddp_exec_value(exec, x),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_token_mean_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status mean_backward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0];
    const struct ddp_token_mean_backward args = {
        .batch = x->dims[0],
        .length = x->dims[1],
        .features = x->dims[2],
        .dtype = x->dtype,
        .lengths = ddp_exec_value(exec, node->inputs[1]),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, x),
        .accumulate = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_token_mean_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op token_mean = {
    .name = "token_mean",
    .forward = mean_forward,
    .backward = mean_backward,
};

ddp_tensor *ddp_graph_token_mean(ddp_graph *graph, ddp_tensor *x, ddp_tensor *lengths)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dim_count != 3 || x->dtype != DDP_F32 ||
        (lengths && (lengths->dtype != DDP_I32 || lengths->dim_count != 2 ||
                     lengths->dims[0] != x->dims[0] || lengths->dims[1] != x->dims[1])))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "token_mean: %s must be (B,T,C) float32, and lengths (B,T) int32",
                                x->name);
    graph->encodes = true;
    struct node node = {.op = &token_mean, .inputs = {x, lengths}, .input_count = 2};
    node.keeps_inputs = lengths ? 2 : 0;
    return ddp_graph_add_node(graph, &node, NULL, 0, 2, (int64_t[]){x->dims[0], x->dims[2]});
}

/* --- tanh ------------------------------------------------------------------------------------- */

static enum ddp_status tanh_forward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_tanh_forward args = {
        .count = node->output->count,
        .dtype = node->output->dtype,
        .x = ddp_exec_value(exec, node->inputs[0]),
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_tanh_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status tanh_backward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_tanh_backward args = {
        .count = node->output->count,
        .dtype = node->output->dtype,
        .y = ddp_exec_value(exec, node->output),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, node->inputs[0]),
        .accumulate = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_tanh_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op hyperbolic = {
    .name = "tanh",
    .in_place = true,
    .forward = tanh_forward,
    .backward = tanh_backward,
};

ddp_tensor *ddp_graph_tanh(ddp_graph *graph, ddp_tensor *x)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dtype != DDP_F32)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "tanh: %s is not float32", x->name);
    graph->encodes = true;
    struct node node = {.op = &hyperbolic, .inputs = {x}, .input_count = 1, .keeps_output = true};
    return ddp_graph_add_node(graph, &node, NULL, 0, x->dim_count, x->dims);
}

/* --- the contrastive loss --------------------------------------------------------------------- */

struct contrast {
    int64_t texts;
    float scale;
};

static enum ddp_status contrast_forward(ddp_exec *exec, const struct node *node)
{
    const struct contrast *contrast = node->attributes;
    const ddp_tensor *x = node->inputs[0];
    const struct ddp_contrastive args = {
        .samples = x->dims[0] / contrast->texts,
        .texts = contrast->texts,
        .features = x->dims[1],
        .dtype = x->dtype,
        .scale = contrast->scale,
        .x = ddp_exec_value(exec, x),
        .loss = ddp_exec_value(exec, node->output),
        .dx = ddp_exec_gradient(exec, x),
        .dloss = ddp_exec_loss_gradient(exec),
        .scratch = ddp_exec_forward_scratch(exec, node),
    };
    return ddp_contrastive(&args, ddp_exec_stream(exec));
}

static double contrast_flops(const struct node *node)
{
    const struct contrast *contrast = node->attributes;
    const double samples = (double)(node->inputs[0]->dims[0] / contrast->texts);
    return 2 * samples * (double)(contrast->texts - 1) * samples * (double)node->inputs[0]->dims[1];
}

static const struct ddp_op contrastive = {
    .name = "contrastive",
    .gradient_in_forward = true,
    .is_float32 = true,
    .forward = contrast_forward,
    .flops = contrast_flops,
};

ddp_tensor *ddp_graph_contrastive(ddp_graph *graph, ddp_tensor *x, ddp_tensor *labels,
                                  int64_t texts, double scale)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dim_count != 2 || x->dtype != DDP_F32 || texts < 2 || x->dims[0] % texts ||
        ddp_tensor_base(x)->kind != TENSOR_ACTIVATION)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "contrastive: %s must be (B*%lld,C) float32 of an operation, with "
                                "at least 2 texts in each sample",
                                x->name, (long long)texts);
    graph->encodes = true;
    const struct contrast contrast = {texts, (float)scale};
    struct node node = {.op = &contrastive, .inputs = {x, labels}, .input_count = 2};
    node.forward_scratch =
        (size_t)ddp_contrastive_scratch(x->dims[0] / texts, texts, x->dims[1]) * sizeof(float);
    return ddp_graph_add_node(graph, &node, &contrast, sizeof contrast, 1, (int64_t[]){1});
}

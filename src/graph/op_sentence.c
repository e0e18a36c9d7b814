/* SPDX-License-Identifier: MIT
 *
 * The graph's operations of encoders of sentences (kernels/sentence.h): texts without padding, the
 * mean of a text's tokens, tanh, and the contrastive loss. They run on the CPU alone. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/sentence.h"

/* --- packing ---------------------------------------------------------------------------------- */

/* What data/sentences.c puts into the third row of a text. */
#define PLANES  3
#define LENGTHS 2

static enum ddp_status bounds_forward(ddp_exec *exec, const struct node *node)
{
    const int64_t batch = node->inputs[0]->dims[0], length = node->inputs[0]->dims[2];
    const int32_t *texts = ddp_exec_value(exec, node->inputs[0]);
    int32_t *bounds = ddp_exec_value(exec, node->output);
    bounds[0] = 0;
    for (int64_t b = 0; b < batch; b++) {
        const int32_t tokens = texts[(b * PLANES + LENGTHS) * length];
        if (tokens < 0 || tokens > length)
            return ddp_fail(DDP_ERR_INVALID,
                            "texts: row %lld has a length of %d, which is not from 0 to %lld",
                            (long long)b, (int)tokens, (long long)length);
        bounds[b + 1] = bounds[b] + (tokens > 0 ? tokens : 1);
    }
    return DDP_OK;
}

static const struct ddp_op text_bounds = {
    .name = "text_bounds",
    .is_int32 = true,
    .forward = bounds_forward,
};

static bool is_texts(const ddp_tensor *texts)
{
    return texts->dim_count == 3 && texts->dtype == DDP_I32 && texts->dims[1] == PLANES &&
           texts->dims[0] * texts->dims[2] < INT32_MAX;
}

ddp_tensor *ddp_graph_text_bounds(ddp_graph *graph, ddp_tensor *texts)
{
    if (graph->status != DDP_OK || !texts)
        return NULL;
    if (!is_texts(texts))
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "text_bounds: %s must be (B,3,T) int32",
                                texts->name);
    graph->encodes = true;
    const struct node node = {.op = &text_bounds, .inputs = {texts}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, NULL, 0, 1, (int64_t[]){texts->dims[0] + 1});
}

static enum ddp_status pack_forward(ddp_exec *exec, const struct node *node)
{
    const enum ddp_text_plane plane = *(const enum ddp_text_plane *)node->attributes;
    const int64_t batch = node->inputs[0]->dims[0], length = node->inputs[0]->dims[2];
    const int32_t *texts = ddp_exec_value(exec, node->inputs[0]);
    const int32_t *bounds = ddp_exec_value(exec, node->inputs[1]);
    int32_t *to = ddp_exec_value(exec, node->output);
    for (int64_t b = 0; b < batch; b++)
        for (int32_t t = 0; t < bounds[b + 1] - bounds[b]; t++)
            to[bounds[b] + t] =
                plane == DDP_TEXT_POSITIONS ? t : texts[(b * PLANES + (int64_t)plane) * length + t];
    return DDP_OK;
}

static const struct ddp_op pack_texts = {
    .name = "pack_texts",
    .is_int32 = true,
    .forward = pack_forward,
};

ddp_tensor *ddp_graph_pack_texts(ddp_graph *graph, ddp_tensor *texts, ddp_tensor *bounds,
                                 enum ddp_text_plane plane)
{
    if (graph->status != DDP_OK || !texts || !bounds)
        return NULL;
    const struct node node = {.op = &pack_texts, .inputs = {texts, bounds}, .input_count = 2};
    ddp_tensor *packed = ddp_graph_add_node(graph, &node, &plane, sizeof plane, 2,
                                            (int64_t[]){texts->dims[0], texts->dims[2]});
    if (packed)
        packed->bounds = bounds;
    return packed;
}

/* --- mean of tokens --------------------------------------------------------------------------- */

static enum ddp_status mean_forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0];
    const struct ddp_token_mean_forward args = {
        .batch = x->dims[0],
        .features = x->dims[2],
        .first = *(const bool *)node->attributes,
        .dtype = x->dtype,
        .bounds = ddp_exec_value(exec, x->bounds),
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
        .features = x->dims[2],
        .first = *(const bool *)node->attributes,
        .dtype = x->dtype,
        .bounds = ddp_exec_value(exec, x->bounds),
        .dy = ddp_exec_gradient(exec, node->output),
        .dx = ddp_exec_gradient(exec, x),
        .accumulate = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_token_mean_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op token_mean = {
    .name = "token_mean",
    .unpacks = true,
    .forward = mean_forward,
    .backward = mean_backward,
};

ddp_tensor *ddp_graph_token_mean(ddp_graph *graph, ddp_tensor *x, bool first)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dim_count != 3 || x->dtype != DDP_F32 || !x->bounds)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "token_mean: %s must be (B,T,C) float32, packed", x->name);
    const struct node node = {.op = &token_mean, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, &first, sizeof first, 2,
                              (int64_t[]){x->dims[0], x->dims[2]});
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
    if (contrast->texts == 1) {
        *(float *)ddp_exec_value(exec, node->output) = 0;
        return DDP_OK;
    }
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
    if (x->dim_count != 2 || x->dtype != DDP_F32 || texts < 1 || x->dims[0] % texts ||
        ddp_tensor_base(x)->kind != TENSOR_ACTIVATION)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "contrastive: %s must be (B*%lld,C) float32 of an operation",
                                x->name, (long long)texts);
    graph->encodes = true;
    const struct contrast contrast = {texts, (float)scale};
    struct node node = {.op = &contrastive, .inputs = {x, labels}, .input_count = 2};
    node.forward_scratch =
        (size_t)ddp_contrastive_scratch(x->dims[0] / texts, texts, x->dims[1]) * sizeof(float);
    return ddp_graph_add_node(graph, &node, &contrast, sizeof contrast, 1, (int64_t[]){1});
}

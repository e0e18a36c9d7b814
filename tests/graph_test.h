/* SPDX-License-Identifier: MIT
 *
 * What check_graph and check_arena share: a small shape, and a model in which tensors share. */
#ifndef TESTS_GRAPH_TEST_H
#define TESTS_GRAPH_TEST_H

#include "graph/internal.h"
#include "model/model.h"

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

static const struct ddp_model_config small = {.batch = 5, .features = 7, .classes = 4};

/* A model with every way in which tensors share: residual connections, a tied weight, a tensor
 * with three readers, a join of a join, views, dropout, attention. Its samples are tokens. */
static enum ddp_status build_sharing(ddp_graph *graph, const struct ddp_model_config *config)
{
    enum { LENGTH = 4, CHANNELS = 6, VOCABULARY = 5 };
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *tokens =
        ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *labels =
        ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *wte =
        ddp_graph_parameter(graph, "wte", 2, (int64_t[]){VOCABULARY, CHANNELS}, normal);
    ddp_tensor *wpe = ddp_graph_parameter(graph, "wpe", 2, (int64_t[]){LENGTH, CHANNELS}, normal);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, wpe);
    x = ddp_graph_dropout(graph, x, 0.25);
    ddp_tensor *y = ddp_graph_layer_norm_layer(graph, "ln1", x, 1e-5f);
    y = ddp_graph_linear_layer(graph, "qkv", y, 3 * CHANNELS, true, DDP_ACTIVATION_NONE);
    y = ddp_graph_attention(graph, y, 2);
    y = ddp_graph_linear_layer(graph, "proj", y, CHANNELS, true, DDP_ACTIVATION_NONE);
    x = ddp_graph_add(graph, x, y);
    y = ddp_graph_layer_norm_layer(graph, "ln2", x, 1e-5f);
    y = ddp_graph_linear_layer(graph, "fc", y, 2 * CHANNELS, true, DDP_ACTIVATION_GELU_TANH);
    y = ddp_graph_linear_layer(graph, "out", y, CHANNELS, true, DDP_ACTIVATION_NONE);
    ddp_tensor *joined = ddp_graph_add(graph, ddp_graph_add(graph, y, x), x);
    ddp_tensor *side =
        ddp_graph_linear_layer(graph, "side", joined, CHANNELS, true, DDP_ACTIVATION_GELU);
    joined = ddp_graph_add(graph, side, joined);
    joined = ddp_graph_add(graph, joined, joined);
    joined = ddp_graph_reshape(graph, joined, 2, (int64_t[]){-1, CHANNELS});
    ddp_tensor *logits = ddp_graph_linear(graph, joined, wte, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, logits, ddp_graph_softmax_cross_entropy(graph, logits, labels));
}

static const struct ddp_model sharing = {.name = "sharing", .build = build_sharing};

#endif

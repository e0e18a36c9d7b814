/* SPDX-License-Identifier: MIT
 *
 * What check_graph and check_arena share: a small shape, and a model in which tensors share. */
#ifndef TESTS_GRAPH_TEST_H
#define TESTS_GRAPH_TEST_H

#include "graph/internal.h"
#include "model/model.h"

#include <stdio.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

static const struct ddp_model_config small = {.batch = 5, .features = 7, .classes = 4};

/* A model with every way in which tensors share: residual connections, a tied weight, a tensor
 * with three readers, a join of a join, views, dropout, attention. Its samples are tokens. */
static inline enum ddp_status build_shared(ddp_graph *graph, const struct ddp_model_config *config,
                                           bool head)
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
    if (head) {
        ddp_tensor *loss = ddp_graph_head_cross_entropy(graph, joined, wte, labels);
        return ddp_graph_finish(graph, loss, loss);
    }
    ddp_tensor *logits = ddp_graph_linear(graph, joined, wte, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, logits, ddp_graph_softmax_cross_entropy(graph, logits, labels));
}

static inline enum ddp_status build_sharing(ddp_graph *graph, const struct ddp_model_config *config)
{
    return build_shared(graph, config, false);
}

static inline enum ddp_status build_sharing_head(ddp_graph *graph,
                                                 const struct ddp_model_config *config)
{
    return build_shared(graph, config, true);
}

enum { DOCUMENTS_LENGTH = 4 };

/* Where the documents of such a row begin: two, of two tokens each. */
static inline int32_t document_of(size_t place)
{
    return (int32_t)(place % DOCUMENTS_LENGTH / 2 * 2);
}

/* Samples of tokens and of their documents, which layers far apart read. */
static enum ddp_status build_documents(ddp_graph *graph, const struct ddp_model_config *config)
{
    enum { CHANNELS = 8, VOCABULARY = 7 };
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *sample = ddp_graph_input(graph, "sample", DDP_I32, 3,
                                         (int64_t[]){config->batch, 2, DOCUMENTS_LENGTH});
    ddp_tensor *labels =
        ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){config->batch, DOCUMENTS_LENGTH});
    ddp_tensor *wte =
        ddp_graph_parameter(graph, "wte", 2, (int64_t[]){VOCABULARY, CHANNELS}, normal);
    ddp_tensor *tokens = ddp_graph_select(graph, sample, 0);
    ddp_tensor *documents = ddp_graph_select(graph, sample, 1);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, NULL);
    for (int layer = 0; layer < 2; layer++) {
        char name[3][8];
        for (int i = 0; i < 3; i++)
            snprintf(name[i], sizeof name[i], "h.%d.%c", layer, "qkv"[i]);
        ddp_graph_begin_block(graph);
        ddp_tensor *q =
            ddp_graph_linear_layer(graph, name[0], x, CHANNELS, true, DDP_ACTIVATION_NONE);
        ddp_tensor *k =
            ddp_graph_linear_layer(graph, name[1], x, CHANNELS / 2, true, DDP_ACTIVATION_NONE);
        ddp_tensor *v =
            ddp_graph_linear_layer(graph, name[2], x, CHANNELS / 2, true, DDP_ACTIVATION_NONE);
        ddp_tensor *y = ddp_graph_grouped_attention(graph, q, k, v, documents, 4, 2, layer ? 3 : 0);
        x = ddp_graph_add(graph, x, y);
        ddp_graph_end_block(graph);
    }
    x = ddp_graph_linear_layer(graph, "head", x, config->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

static const struct ddp_model packed = {.name = "documents", .build = build_documents};
static const struct ddp_model sharing = {.name = "sharing", .build = build_sharing};

/* The same, whose logits never exist whole. */
__attribute__((unused)) static const struct ddp_model sharing_head = {.name = "sharing",
                                                                      .build = build_sharing_head};

#endif

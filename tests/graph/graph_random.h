/* SPDX-License-Identifier: MIT
 *
 * What check_graph and check_stage share: graphs of random operations. */
#ifndef TESTS_GRAPH_RANDOM_H
#define TESTS_GRAPH_RANDOM_H

#include "graph/internal.h"
#include "model/model.h"

#include <stdio.h>

static uint64_t chance; /* what the next random graph is */

static int below(int limit)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (int)((chance >> 33) % (uint64_t)limit);
}

/* One more operation over two tensors that are there. */
static ddp_tensor *random_operation(ddp_graph *graph, ddp_tensor *a, ddp_tensor *b,
                                    ddp_tensor *table, int number)
{
    const int64_t channels = ddp_graph_dims(a)[2];
    char name[16];
    snprintf(name, sizeof name, "n%d", number);
    switch (below(12)) {
    case 0:
        return ddp_graph_layer_norm_layer(graph, name, a, 1e-5f);
    case 8:
        return ddp_graph_rms_norm_layer(graph, name, a, 1e-5f);
    case 9:
        return ddp_graph_rope(graph, a, 2, table);
    case 10:
        return ddp_graph_swiglu(graph, a, b);
    case 1:
        return ddp_graph_linear_layer(graph, name, a, channels, true, DDP_ACTIVATION_GELU);
    case 2:
        return ddp_graph_dropout(graph, a, 0.25);
    case 11:
        return ddp_graph_scale(graph, a, 1.25);
    case 3:
        a = ddp_graph_linear_layer(graph, name, a, 3 * channels, true, DDP_ACTIVATION_NONE);
        return ddp_graph_attention(graph, a, 2);
    case 4: /* one tensor is keys and values */
        snprintf(name, sizeof name, "kv%d", number);
        b = ddp_graph_linear_layer(graph, name, b, channels / 2, false, DDP_ACTIVATION_NONE);
        return ddp_graph_grouped_attention(graph, a, b, b, NULL, 2, 1, below(4));
    default:
        return ddp_graph_add(graph, a, b);
    }
}

/* Joins of whatever is there, with other operations between them; what nobody reads is joined to
 * the end. */
static enum ddp_status build_random(ddp_graph *graph, const struct ddp_model_config *config)
{
    enum { LENGTH = 4, CHANNELS = 6, VOCABULARY = 5, MOST = 14 };
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *made[MOST];
    bool read[MOST] = {false};
    ddp_tensor *tokens =
        ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *labels =
        ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *wte =
        ddp_graph_parameter(graph, "wte", 2, (int64_t[]){VOCABULARY, CHANNELS}, normal);
    ddp_tensor *wpe = ddp_graph_parameter(graph, "wpe", 2, (int64_t[]){LENGTH, CHANNELS}, normal);
    const int count = 4 + below(MOST - 3);
    made[0] = ddp_graph_embedding(graph, tokens, wte, wpe);
    ddp_tensor *table =
        ddp_graph_rope_table(graph, LENGTH, 2, (const float[]){0.7f}, 1.1f); /* of heads of 3 */
    made[0] = ddp_graph_rope(graph, made[0], 2, table);                      /* it has a reader */
    for (int n = 1; n < count; n++) {
        const int a = below(2) ? n - 1 : below(n), b = below(n);
        if (count % 3 != n % 3)
            n % 2 ? ddp_graph_begin_block(graph) : ddp_graph_end_block(graph);
        made[n] = random_operation(graph, made[a], made[b], table, n);
        read[a] = true;
        read[b] = read[b] || graph->nodes[graph->node_count - 1].inputs[1] == made[b];
    }
    ddp_graph_end_block(graph);
    ddp_tensor *y = made[count - 1];
    for (int n = count - 2; n >= 0; n--)
        if (!read[n])
            y = below(2) ? ddp_graph_add(graph, y, made[n]) : ddp_graph_add(graph, made[n], y);
    y = ddp_graph_layer_norm_layer(graph, "ln", y, 1e-5f);
    y = ddp_graph_linear_layer(graph, "head", y, config->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, y, ddp_graph_softmax_cross_entropy(graph, y, labels));
}

#endif

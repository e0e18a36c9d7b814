/* SPDX-License-Identifier: MIT
 *
 * The graph's embedding: inputs tokens (B,T), wte (V,C), optional wpe (P,C), where tokens are not
 * packed. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/embedding.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *tokens = node->inputs[0], *wte = node->inputs[1], *wpe = node->inputs[2];
    const struct ddp_exec_cache *cache = ddp_exec_cache(exec);
    struct ddp_embedding_forward args = {
        .batch = tokens->bounds ? 1 : tokens->dims[0],
        .length = tokens->bounds ? ddp_exec_rows(exec, node->output) : tokens->dims[1],
        .features = wte->dims[1],
        .vocabulary = wte->dims[0],
        .positions = wpe ? wpe->dims[0] : 0,
        .first = cache ? cache->past : 0,
        .dtype = node->output->dtype,
        .tokens = ddp_exec_value(exec, tokens),
        .wte = ddp_exec_value_f32(exec, wte),
        .wpe = ddp_exec_value_f32(exec, wpe),
        .wte_bf16 = wte->dtype == DDP_BF16 ? ddp_exec_value(exec, wte) : NULL,
        .wpe_bf16 = wpe && wpe->dtype == DDP_BF16 ? ddp_exec_value(exec, wpe) : NULL,
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->embedding_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *tokens = node->inputs[0], *wte = node->inputs[1], *wpe = node->inputs[2];
    struct ddp_embedding_backward args = {
        .batch = tokens->bounds ? 1 : tokens->dims[0],
        .length = tokens->bounds ? ddp_exec_rows(exec, node->output) : tokens->dims[1],
        .features = wte->dims[1],
        .vocabulary = wte->dims[0],
        .positions = wpe ? wpe->dims[0] : 0,
        .dtype = node->output->dtype,
        .tokens = ddp_exec_value(exec, tokens),
        .dy = ddp_exec_gradient(exec, node->output),
        .dwte = ddp_exec_gradient(exec, wte),
        .dwpe = ddp_exec_gradient(exec, wpe),
        .accumulate_dwte = ddp_exec_accumulates(exec, node, 1),
        .accumulate_dwpe = wpe && ddp_exec_accumulates(exec, node, 2),
    };
    return ddp_exec_kernels(exec)->embedding_backward(&args, ddp_exec_stream(exec));
}

static const struct ddp_op embedding = {
    .name = "embedding",
    .packs = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_embedding(ddp_graph *graph, ddp_tensor *tokens, ddp_tensor *wte,
                                ddp_tensor *wpe)
{
    if (graph->status != DDP_OK || !tokens || !wte)
        return NULL;
    if (tokens->dim_count != 2 || tokens->dtype != DDP_I32 || wte->dim_count != 2)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "embedding: %s must be (B,T) int32 and %s (V,C)", tokens->name,
                                wte->name);
    if (wpe && (tokens->bounds || wpe->dim_count != 2 || wpe->dims[1] != wte->dims[1] ||
                wpe->dims[0] < tokens->dims[1]))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "embedding: %s has %lld positions, the sequence %lld", wpe->name,
                                (long long)wpe->dims[0], (long long)tokens->dims[1]);
    struct node node = {
        .op = &embedding, .inputs = {tokens, wte, wpe}, .input_count = 3, .keeps_inputs = 1};
    return ddp_graph_add_node(graph, &node, NULL, 0, 3,
                              (int64_t[]){tokens->dims[0], tokens->dims[1], wte->dims[1]});
}

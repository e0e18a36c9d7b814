/* SPDX-License-Identifier: MIT
 *
 * The graph's causal self-attention: input qkv (B,T,3C). */
#include "config.h"

#include "graph/internal.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cached.h"

struct attributes {
    int64_t heads, head_size;
    int64_t cache_at; /* where its keys and values begin, in elements per position */
};

static enum ddp_status forward_cached(ddp_exec *exec, const struct node *node,
                                      const struct ddp_exec_cache *cache)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *qkv = node->inputs[0];
    const struct ddp_attention_cached args = {
        .batch = qkv->dims[0],
        .length = qkv->dims[1],
        .heads = attributes->heads,
        .head_size = attributes->head_size,
        .past = cache->past,
        .capacity = cache->capacity,
        .cache_stride = cache->stride,
        .qkv = ddp_exec_value(exec, qkv),
        .cache = cache->memory + attributes->cache_at * cache->capacity,
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->attention_cached(&args, ddp_exec_stream(exec));
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *qkv = node->inputs[0];
    const struct ddp_exec_cache *cache = ddp_exec_cache(exec);
    if (cache)
        return forward_cached(exec, node, cache);
    struct ddp_attention_forward args = {
        .batch = qkv->dims[0],
        .length = qkv->dims[1],
        .heads = attributes->heads,
        .head_size = attributes->head_size,
        .dtype = node->output->dtype,
        .qkv = ddp_exec_value(exec, qkv),
        .y = ddp_exec_value(exec, node->output),
        .lse = ddp_exec_saved(exec, node),
    };
    return ddp_exec_kernels(exec)->attention_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *qkv = node->inputs[0];
    struct ddp_attention_backward args = {
        .batch = qkv->dims[0],
        .length = qkv->dims[1],
        .heads = attributes->heads,
        .head_size = attributes->head_size,
        .dtype = node->output->dtype,
        .qkv = ddp_exec_value(exec, qkv),
        .y = ddp_exec_value(exec, node->output),
        .lse = ddp_exec_saved(exec, node),
        .dy = ddp_exec_gradient(exec, node->output),
        .dqkv = ddp_exec_gradient(exec, qkv),
        .accumulate_dqkv = ddp_exec_accumulates(exec, node, 0),
    };
    return ddp_exec_kernels(exec)->attention_backward(&args, ddp_exec_stream(exec));
}

/* Two products of T x T x D for each head; half of each is above the diagonal, but counted, as is
 * the custom. */
static double flops(const struct node *node)
{
    const ddp_tensor *y = node->output;
    return 4.0 * (double)y->count * (double)y->dims[1];
}

static const struct ddp_op attention = {
    .name = "attention",
    .forward = forward,
    .backward = backward,
    .flops = flops,
};

ddp_tensor *ddp_graph_attention(ddp_graph *graph, ddp_tensor *qkv, int64_t heads)
{
    if (graph->status != DDP_OK || !qkv)
        return NULL;
    if (qkv->dim_count != 3 || qkv->dtype != graph->activations || heads < 1 ||
        qkv->dims[2] % (3 * heads))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "attention: %s must be (B,T,3C) with C a multiple of %lld heads",
                                qkv->name, (long long)heads);
    const int64_t channels = qkv->dims[2] / 3;
    const struct attributes attributes = {heads, channels / heads, graph->cache_width};
    graph->cache_width += 2 * channels;
    struct node node = {
        .op = &attention,
        .inputs = {qkv},
        .input_count = 1,
        .keeps_inputs = 1,
        .keeps_output = true,
        .saved_bytes = (size_t)(qkv->dims[0] * heads * qkv->dims[1]) * sizeof(float),
    };
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, 3,
                              (int64_t[]){qkv->dims[0], qkv->dims[1], channels});
}

/* SPDX-License-Identifier: MIT
 *
 * The graph's self-attention: inputs q (B,T,H*D), k and v (B,T,K*D), optional documents (B,T); or
 * one input qkv (B,T,3C). Packed rows see their text whole. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cached.h"

enum { Q, K, V, DOCUMENTS };

struct attributes {
    struct ddp_attention_shape shape; /* without the documents */
    bool packed;                      /* one input */
    int64_t cache_at; /* where its keys and values begin, in elements per position */
};

static struct ddp_attention_shape shape_of(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    struct ddp_attention_shape shape = attributes->shape;
    const int32_t *bounds = ddp_exec_value(exec, node->output->bounds);
    /* A stage that measures its time receives zeros: causal attention of whole rows is like it. */
    if (bounds)
        shape.bounds = bounds[shape.batch] > 0 ? bounds : NULL;
    else if (!attributes->packed)
        shape.documents = ddp_exec_value(exec, node->inputs[DOCUMENTS]);
    return shape;
}

/* The input that holds q, k or v. */
static int holder(const struct node *node, int part)
{
    const struct attributes *attributes = node->attributes;
    return attributes->packed ? 0 : part;
}

/* q, k or v, or its gradient, in the memory of its holder; NULL: there is none. */
static void *part_of(const struct node *node, int part, void *memory)
{
    const struct attributes *attributes = node->attributes;
    const struct ddp_attention_shape *s = &attributes->shape;
    const int64_t at = attributes->packed ? part * s->heads * s->head_size : 0;
    return memory ? (char *)memory + (size_t)at * ddp_dtype_bytes(s->dtype) : NULL;
}

static void *value(ddp_exec *exec, const struct node *node, int part)
{
    return part_of(node, part, ddp_exec_value(exec, node->inputs[holder(node, part)]));
}

static void *gradient(ddp_exec *exec, const struct node *node, int part)
{
    return part_of(node, part, ddp_exec_gradient(exec, node->inputs[holder(node, part)]));
}

static enum ddp_status forward_cached(ddp_exec *exec, const struct node *node,
                                      const struct ddp_exec_cache *cache)
{
    const struct attributes *attributes = node->attributes;
    const struct ddp_attention_cached args = {
        .shape = shape_of(exec, node),
        .past = cache->past,
        .capacity = cache->capacity,
        .cache_stride = cache->stride,
        .q = value(exec, node, Q),
        .k = value(exec, node, K),
        .v = value(exec, node, V),
        .cache = cache->memory + attributes->cache_at * cache->capacity,
        .y = ddp_exec_value(exec, node->output),
    };
    return ddp_exec_kernels(exec)->attention_cached(&args, ddp_exec_stream(exec));
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_exec_cache *cache = ddp_exec_cache(exec);
    if (cache)
        return forward_cached(exec, node, cache);
    const struct ddp_attention_forward args = {
        .shape = shape_of(exec, node),
        .q = value(exec, node, Q),
        .k = value(exec, node, K),
        .v = value(exec, node, V),
        .y = ddp_exec_value(exec, node->output),
        .lse = ddp_exec_saved(exec, node),
    };
    return ddp_exec_kernels(exec)->attention_forward(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct ddp_attention_backward args = {
        .shape = shape_of(exec, node),
        .q = value(exec, node, Q),
        .k = value(exec, node, K),
        .v = value(exec, node, V),
        .y = ddp_exec_value(exec, node->output),
        .lse = ddp_exec_saved(exec, node),
        .dy = ddp_exec_gradient(exec, node->output),
        .dq = gradient(exec, node, Q),
        .dk = gradient(exec, node, K),
        .dv = gradient(exec, node, V),
        .accumulate_dq = ddp_exec_accumulates(exec, node, holder(node, Q)),
        .accumulate_dk = ddp_exec_accumulates(exec, node, holder(node, K)),
        .accumulate_dv = ddp_exec_accumulates(exec, node, holder(node, V)),
        .scratch = ddp_exec_backward_scratch(exec, node),
    };
    return ddp_exec_kernels(exec)->attention_backward(&args, ddp_exec_stream(exec));
}

/* Two products of T x T x D for each head; half of each is above the diagonal, but counted, as is
 * the custom. A window leaves fewer keys. */
static double flops(const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const struct ddp_attention_shape *s = &attributes->shape;
    const int64_t keys = s->window > 0 && s->window < s->length ? s->window : s->length;
    return 4.0 * (double)node->output->count * (double)keys;
}

static const struct ddp_op attention = {
    .name = "attention",
    .packs = true,
    .forward = forward,
    .backward = backward,
    .flops = flops,
};

/* Backward reads all inputs again. The scratch is the CPU's, which has float32. */
static ddp_tensor *add(ddp_graph *graph, struct node *node, struct attributes *attributes)
{
    struct ddp_attention_shape *s = &attributes->shape;
    s->f16 = graph->compute == DDP_F16;
    graph->cache_width += 2 * s->kv_heads * s->head_size;
    node->op = &attention;
    node->keeps_inputs = (1u << node->input_count) - 1;
    node->keeps_output = true;
    node->saved_bytes = (size_t)(s->batch * s->heads * s->length) * sizeof(float);
    if (graph->activations == DDP_F32)
        node->backward_scratch = (size_t)ddp_attention_scratch(s) * sizeof(float);
    return ddp_graph_add_node(graph, node, attributes, sizeof *attributes, 3,
                              (int64_t[]){s->batch, s->length, s->heads * s->head_size});
}

ddp_tensor *ddp_graph_attention(ddp_graph *graph, ddp_tensor *qkv, int64_t heads)
{
    if (graph->status != DDP_OK || !qkv)
        return NULL;
    if (qkv->dim_count != 3 || qkv->dtype != graph->activations || heads < 1 ||
        qkv->dims[2] % (3 * heads))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "attention: %s must be (B,T,3C) with C a multiple of %lld heads",
                                qkv->name, (long long)heads);
    struct attributes attributes = {
        .shape = ddp_attention_packed(qkv->dims[0], qkv->dims[1], heads, qkv->dims[2] / 3 / heads,
                                      qkv->dtype),
        .packed = true,
        .cache_at = graph->cache_width,
    };
    struct node node = {.inputs = {qkv}, .input_count = 1};
    return add(graph, &node, &attributes);
}

/* (B,T,heads * D) of the graph's activations? */
static bool is_rows(const ddp_graph *graph, const ddp_tensor *x, const ddp_tensor *q,
                    int64_t channels)
{
    return x->dim_count == 3 && x->dtype == graph->activations && x->dims[0] == q->dims[0] &&
           x->dims[1] == q->dims[1] && x->dims[2] == channels;
}

static ddp_tensor *add_apart(ddp_graph *graph, ddp_tensor *q, ddp_tensor *k, ddp_tensor *v,
                             ddp_tensor *documents, int64_t heads, int64_t kv_heads, int64_t window)
{
    if (graph->status != DDP_OK || !q || !k || !v)
        return NULL;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads || window < 0)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "attention: %lld heads on %lld of keys and values, window %lld: "
                                "heads must be a multiple, and the window not negative",
                                (long long)heads, (long long)kv_heads, (long long)window);
    if (!is_rows(graph, q, q, q->dims[2]) || q->dims[2] % heads ||
        !is_rows(graph, k, q, q->dims[2] / heads * kv_heads) ||
        !is_rows(graph, v, q, q->dims[2] / heads * kv_heads))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "attention: %s must be (B,T,%lld heads of D), %s and %s (B,T,%lld "
                                "heads of D)",
                                q->name, (long long)heads, k->name, v->name, (long long)kv_heads);
    if (documents && (documents->dtype != DDP_I32 || documents->dim_count != 2 ||
                      documents->dims[0] != q->dims[0] || documents->dims[1] != q->dims[1]))
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "attention: %s must be (B,T) int32",
                                documents->name);
    struct attributes attributes = {
        .shape = {.batch = q->dims[0],
                  .length = q->dims[1],
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .head_size = q->dims[2] / heads,
                  .q_stride = q->dims[2],
                  .k_stride = k->dims[2],
                  .v_stride = v->dims[2],
                  .window = window,
                  .dtype = q->dtype},
        .cache_at = graph->cache_width,
    };
    struct node node = {.inputs = {q, k, v, documents}, .input_count = documents ? 4 : 3};
    return add(graph, &node, &attributes);
}

ddp_tensor *ddp_graph_grouped_attention(ddp_graph *graph, ddp_tensor *q, ddp_tensor *k,
                                        ddp_tensor *v, ddp_tensor *documents, int64_t heads,
                                        int64_t kv_heads, int64_t window)
{
    return add_apart(graph, q, k, v, documents, heads, kv_heads, window);
}

ddp_tensor *ddp_graph_full_attention(ddp_graph *graph, ddp_tensor *q, ddp_tensor *k, ddp_tensor *v,
                                     int64_t heads)
{
    if (graph->status == DDP_OK && q && !q->bounds)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "attention: %s is not packed", q->name);
    return add_apart(graph, q, k, v, NULL, heads, heads, 0);
}

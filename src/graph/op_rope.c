/* SPDX-License-Identifier: MIT
 *
 * The graph's rotary positions: inputs x (B,T,HD) or (B,T,H,D), and the table, a constant (P,R)
 * that all layers share. Rows count from the first position of a sample, or from where the keys and
 * values of a cache end. */
#include "config.h"

#include "core/portable_math.h"
#include "graph/internal.h"
#include "kernels/rotary.h"

#include <math.h>

struct attributes {
    int64_t heads;
};

static struct ddp_rotary rotary_of(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[0], *table = node->inputs[1];
    const struct ddp_exec_cache *cache = ddp_exec_cache(exec);
    return (struct ddp_rotary){
        .batch = x->dims[0],
        .length = x->dims[1],
        .heads = attributes->heads,
        .head_size = x->count / (x->dims[0] * x->dims[1] * attributes->heads),
        .size = table->dims[1],
        .first = cache ? cache->past : 0,
        .positions = table->dims[0],
        .dtype = x->dtype,
        .table = ddp_exec_value(exec, table),
    };
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    struct ddp_rotary args = rotary_of(exec, node);
    args.x = ddp_exec_value(exec, node->inputs[0]);
    args.y = ddp_exec_value(exec, node->output);
    return ddp_exec_kernels(exec)->rotary(&args, ddp_exec_stream(exec));
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    struct ddp_rotary args = rotary_of(exec, node);
    args.inverse = true;
    args.accumulate = ddp_exec_accumulates(exec, node, 0);
    args.x = ddp_exec_gradient(exec, node->output);
    args.y = ddp_exec_gradient(exec, node->inputs[0]);
    return ddp_exec_kernels(exec)->rotary(&args, ddp_exec_stream(exec));
}

static const struct ddp_op rope = {
    .name = "rope",
    .costs_little = true,
    .in_place = true,
    .turns_dy = true,
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_rope_table(ddp_graph *graph, int64_t positions, int64_t size,
                                 const float *frequencies, float factor)
{
    if (graph->status != DDP_OK)
        return NULL;
    if (size < 2 || size % 2 || !frequencies || !isfinite(factor))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "rope_table: %lld features with factor %g: they must be an even "
                                "number of at least 2, with a frequency for each two",
                                (long long)size, (double)factor);
    ddp_tensor *table =
        ddp_graph_constant(graph, "rope_table", 2, (const int64_t[]){positions, size});
    if (!table)
        return NULL;
    /* The angle is rounded to float32, as other programs have it. */
    for (int64_t position = 0; position < positions; position++)
        for (int64_t i = 0; i < size / 2; i++) {
            const float angle = (float)position * frequencies[i];
            float *row = table->values + position * size;
            double sine, cosine;
            ddp_math_sin_cos((double)angle, &sine, &cosine);
            row[i] = (float)cosine * factor;
            row[size / 2 + i] = (float)sine * factor;
        }
    return table;
}

ddp_tensor *ddp_graph_rope(ddp_graph *graph, ddp_tensor *x, int64_t heads, ddp_tensor *table)
{
    if (graph->status != DDP_OK || !x || !table)
        return NULL;
    if (table->kind != TENSOR_CONSTANT || table->base || table->dim_count != 2)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "rope: %s is not a table of positions",
                                table->name);
    const bool split = x->dim_count == 4;
    if ((x->dim_count != 3 && !split) || x->dtype != graph->activations || heads < 1 ||
        (split ? x->dims[2] != heads : x->dims[2] % heads != 0))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "rope: %s must be (B,T,C) with C a multiple of %lld heads, or "
                                "(B,T,H,D) with as many",
                                x->name, (long long)heads);
    const int64_t head_size = split ? x->dims[3] : x->dims[2] / heads;
    if (table->dims[1] > head_size || table->dims[0] < x->dims[1])
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "rope: the table has %lld positions and turns %lld features, %s "
                                "has %lld, and heads of %lld",
                                (long long)table->dims[0], (long long)table->dims[1], x->name,
                                (long long)x->dims[1], (long long)head_size);
    const struct attributes attributes = {heads};
    struct node node = {
        .op = &rope,
        .inputs = {x, table},
        .input_count = 2,
        .overwrites_dy = true,
    };
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, x->dim_count, x->dims);
}

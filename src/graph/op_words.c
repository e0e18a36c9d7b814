/* SPDX-License-Identifier: MIT
 *
 * Rows of a table: input x (B,F), whose last numbers are the bits of int32, words by their rows of
 * an embedding (V,C). Output (B,F - words + words * C): the other numbers, and behind them what
 * stands for the words. Everything but the embedding is copies. */
#include "config.h"

#include "graph/internal.h"

struct part {
    int64_t first, count; /* numbers of a sample */
};

/* Copies a part of each of `rows` rows; pitches are in numbers, which are of `width` bytes. */
static enum ddp_status copy_parts(ddp_exec *exec, int64_t rows, size_t width, int64_t count,
                                  void *to, int64_t to_pitch, const void *from, int64_t from_pitch)
{
    enum ddp_status status = DDP_OK;
    for (int64_t b = 0; status == DDP_OK && count > 0 && b < rows; b++)
        status = ddp_device_copy(ddp_exec_device(exec), (char *)to + (size_t)(b * to_pitch) * width,
                                 (const char *)from + (size_t)(b * from_pitch) * width,
                                 (size_t)count * width);
    return status;
}

static enum ddp_status forward_tokens(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0];
    const struct part *part = node->attributes;
    return copy_parts(exec, x->dims[0], ddp_dtype_bytes(DDP_I32), part->count,
                      ddp_exec_value(exec, node->output), part->count,
                      (const int32_t *)ddp_exec_value(exec, x) + part->first, x->dims[1]);
}

static const struct ddp_op tokens = {
    .name = "words",
    .is_int32 = true,
    .forward = forward_tokens,
};

/* Beside the numbers of x, (B,T,C) as rows of T * C. */
static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0], *words = node->inputs[1], *y = node->output;
    const struct part *part = node->attributes;
    const size_t width = ddp_dtype_bytes(y->dtype);
    char *to = ddp_exec_value(exec, y);
    enum ddp_status status = copy_parts(exec, y->dims[0], width, part->first, to, y->dims[1],
                                        ddp_exec_value(exec, x), x->dims[1]);
    return status == DDP_OK
               ? copy_parts(exec, y->dims[0], width, part->count, to + (size_t)part->first * width,
                            y->dims[1], ddp_exec_value(exec, words), part->count)
               : status;
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *y = node->output;
    const struct part *part = node->attributes;
    const size_t width = ddp_dtype_bytes(y->dtype);
    const char *dy = ddp_exec_gradient(exec, y);
    return copy_parts(exec, y->dims[0], width, part->count,
                      ddp_exec_gradient(exec, node->inputs[1]), part->count,
                      dy + (size_t)part->first * width, y->dims[1]);
}

static const struct ddp_op beside = {
    .name = "beside",
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_words(ddp_graph *graph, ddp_tensor *x, int64_t words, ddp_tensor *table)
{
    if (graph->status != DDP_OK || !x || !table)
        return NULL;
    if (x->dim_count != 2 || x->dtype != graph->activations || words < 1 || words > x->dims[1] ||
        table->dim_count != 2 || x->needs_gradient)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "words: %s must be samples (B,F) with %lld words, and %s (V,C)",
                                x->name, (long long)words, table->name);
    const int64_t rows = x->dims[0];
    const struct part numbers = {x->dims[1] - words, words};
    const struct part values = {numbers.first, words * table->dims[1]};
    /* A cast to bf16 would change the bits. */
    ddp_tensor *bits = x->dtype == DDP_F32 ? x : graph->nodes[x->producer].inputs[0];
    const struct node take = {.op = &tokens, .inputs = {bits}, .input_count = 1};
    ddp_tensor *named =
        ddp_graph_add_node(graph, &take, &numbers, sizeof numbers, 2, (int64_t[]){rows, words});
    ddp_tensor *embedded = ddp_graph_embedding(graph, named, table, NULL);
    const struct node join = {.op = &beside, .inputs = {x, embedded}, .input_count = 2};
    return embedded ? ddp_graph_add_node(graph, &join, &values, sizeof values, 2,
                                         (int64_t[]){rows, values.first + values.count})
                    : NULL;
}

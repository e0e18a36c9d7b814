/* SPDX-License-Identifier: MIT
 *
 * A head and its loss in one: inputs x (...,C), weight (V,C), labels (...). The logits x W^T are
 * made for a chunk of rows at a time, in scratch memory, and never exist whole. An exec that trains
 * does all of it in backward, while a chunk's logits are there: the loss, their gradient over them,
 * from that the chunk's part of x's gradient, and what it adds to the weight's. Chunks depend on
 * the shapes alone, and are added in their order. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/linear.h"
#include "kernels/softmax_cross_entropy.h"

#include <assert.h>

#define CHUNK_BYTES ((int64_t)128 << 20) /* of logits, at most, except with very many classes */
#define CHUNK_ROWS  64                   /* chunks are multiples of so many rows */

struct attributes {
    enum ddp_dtype compute, dtype;
    int64_t classes; /* V with its padding */
    int64_t rows;    /* of a chunk; the last one may have fewer */
};

/* Chunks of nearly the same size. Each reads and writes the weight's gradient: few are better. */
static int64_t chunk_rows(int64_t rows, int64_t classes, enum ddp_dtype dtype)
{
    const int64_t bytes = classes * (int64_t)ddp_dtype_bytes(dtype);
    const int64_t fit = CHUNK_BYTES / bytes / CHUNK_ROWS * CHUNK_ROWS;
    const int64_t most = fit > CHUNK_ROWS ? fit : CHUNK_ROWS;
    const int64_t count = (rows + most - 1) / most, even = (rows + count - 1) / count;
    const int64_t rounded = (even + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS;
    return rounded < rows ? rounded : rows;
}

static size_t logits_bytes(const struct attributes *attributes)
{
    return ddp_align_up(
        (size_t)(attributes->rows * attributes->classes) * ddp_dtype_bytes(attributes->dtype), 64);
}

/* Rows [first, first + rows) on their way. */
struct chunk {
    ddp_exec *exec;
    const struct node *node;
    int64_t first, rows;
    void *logits, *scratch;
    float *loss; /* and what does not count */
    bool adds;   /* to these */
};

static int64_t width(const struct node *node)
{
    return node->inputs[1]->dims[1];
}

/* Where the chunk begins in an array of rows of C. */
static void *rows_at(const struct chunk *chunk, void *array)
{
    const struct attributes *attributes = chunk->node->attributes;
    const int64_t elements = chunk->first * width(chunk->node);
    return array ? (char *)array + (size_t)elements * ddp_dtype_bytes(attributes->dtype) : NULL;
}

static enum ddp_status make_logits(const struct chunk *chunk)
{
    const struct attributes *attributes = chunk->node->attributes;
    const ddp_exec *exec = chunk->exec;
    const ddp_tensor *weight = chunk->node->inputs[1];
    assert(attributes->compute != DDP_BF16 || ddp_exec_value_bf16(exec, weight));
    const struct ddp_linear_forward args = {
        .rows = chunk->rows,
        .in = width(chunk->node),
        .out = attributes->classes,
        .compute = attributes->compute,
        .dtype = attributes->dtype,
        .x = rows_at(chunk, ddp_exec_value(exec, chunk->node->inputs[0])),
        .weight = ddp_exec_value_f32(exec, weight),
        .weight_bf16 = ddp_exec_value_bf16(exec, weight),
        .y = chunk->logits,
        .scratch = chunk->scratch,
    };
    return ddp_exec_kernels(exec)->linear_forward(&args, ddp_exec_stream(exec));
}

/* The chunk's loss and predictions, and with `gradient` that of its logits in their place. */
static enum ddp_status make_loss(const struct chunk *chunk, bool gradient)
{
    const struct attributes *attributes = chunk->node->attributes;
    const ddp_exec *exec = chunk->exec;
    const int32_t *labels = ddp_exec_value(exec, chunk->node->inputs[2]);
    int32_t *predictions = ddp_exec_predictions(exec);
    const struct ddp_softmax_cross_entropy args = {
        .rows = chunk->rows,
        .classes = chunk->node->inputs[1]->dims[0],
        .divisor = ddp_tensor_rows(chunk->node->inputs[0]),
        .stride = attributes->classes,
        .dtype = attributes->dtype,
        .logits = chunk->logits,
        .labels = labels + chunk->first,
        .loss = chunk->loss,
        .uncounted = chunk->loss + 1,
        .accumulate_loss = chunk->adds || chunk->first > 0,
        .first_row = chunk->first,
        .dlogits = gradient ? chunk->logits : NULL,
        .predictions = predictions ? predictions + chunk->first : NULL,
    };
    return ddp_exec_kernels(exec)->softmax_cross_entropy(&args, ddp_exec_stream(exec));
}

static enum ddp_status make_gradients(const struct chunk *chunk)
{
    const struct attributes *attributes = chunk->node->attributes;
    ddp_exec *exec = chunk->exec;
    const ddp_tensor *x = chunk->node->inputs[0], *weight = chunk->node->inputs[1];
    const struct ddp_linear_backward args = {
        .rows = chunk->rows,
        .in = width(chunk->node),
        .out = attributes->classes,
        .compute = attributes->compute,
        .dtype = attributes->dtype,
        .x = rows_at(chunk, ddp_exec_value(exec, x)),
        .weight = ddp_exec_value_f32(exec, weight),
        .weight_bf16 = ddp_exec_value_bf16(exec, weight),
        .dy = chunk->logits,
        .dx = rows_at(chunk, ddp_exec_gradient(exec, x)),
        .dweight = ddp_exec_gradient(exec, weight),
        .accumulate_dx = ddp_exec_accumulates(exec, chunk->node, 0),
        .accumulate_dweight = chunk->first > 0 || ddp_exec_accumulates(exec, chunk->node, 1),
        .scratch = chunk->scratch,
    };
    return ddp_exec_kernels(exec)->linear_backward(&args, ddp_exec_stream(exec));
}

static enum ddp_status run_chunks(struct chunk *chunk, void *memory, bool gradient)
{
    const struct attributes *attributes = chunk->node->attributes;
    const int64_t rows = ddp_tensor_rows(chunk->node->inputs[0]);
    enum ddp_status status = DDP_OK;
    chunk->logits = memory;
    chunk->scratch = (char *)memory + logits_bytes(attributes);
    for (; status == DDP_OK && chunk->first < rows; chunk->first += attributes->rows) {
        const int64_t left = rows - chunk->first;
        chunk->rows = left < attributes->rows ? left : attributes->rows;
        status = make_logits(chunk);
        if (status == DDP_OK)
            status = make_loss(chunk, gradient);
        if (status == DDP_OK && gradient)
            status = make_gradients(chunk);
    }
    return status;
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    struct chunk chunk = {.exec = exec, .node = node, .loss = ddp_exec_value(exec, node->output)};
    if (ddp_exec_trains(exec))
        return DDP_OK;
    return run_chunks(&chunk, ddp_exec_forward_scratch(exec, node), false);
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    struct chunk chunk = {.exec = exec,
                          .node = node,
                          .loss = ddp_exec_gradients(exec),
                          .adds = ddp_exec_adding(exec)};
    return run_chunks(&chunk, ddp_exec_backward_scratch(exec, node), true);
}

static double flops(const struct node *node)
{
    return 2.0 * (double)node->inputs[0]->count * (double)node->inputs[1]->dims[0];
}

static const struct ddp_op head_cross_entropy = {
    .name = "head_cross_entropy",
    .is_float32 = true,
    .labels = 2,
    .loss_in_backward = true,
    .multiplies = true,
    .forward = forward,
    .backward = backward,
    .flops = flops,
};

ddp_tensor *ddp_graph_head_cross_entropy(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight,
                                         ddp_tensor *labels)
{
    if (graph->status != DDP_OK || !x || !weight || !labels)
        return NULL;
    if (weight->dim_count != 2 || !ddp_tensor_is_parameter(weight) ||
        x->dims[x->dim_count - 1] != weight->dims[1] || x->dtype != graph->activations ||
        ddp_tensor_base(x)->kind != TENSOR_ACTIVATION || labels->dtype != DDP_I32 ||
        labels->count != ddp_tensor_rows(x))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "head_cross_entropy: %s must be (...,C), %s a parameter (V,C) and "
                                "%s int32, one for each row",
                                x->name, weight->name, labels->name);
    const int64_t rows = ddp_tensor_rows(x), classes = ddp_graph_padded(graph, weight->dims[0]);
    const struct attributes attributes = {
        .compute = graph->compute,
        .dtype = graph->activations,
        .classes = classes,
        .rows = chunk_rows(rows, classes, graph->activations),
    };
    const size_t scratch =
        logits_bytes(&attributes) +
        ddp_graph_linear_scratch(graph, weight, attributes.rows, weight->dims[1], classes);
    ddp_graph_pad_parameter(graph, weight, weight->dims[0]);
    struct node node = {
        .op = &head_cross_entropy,
        .inputs = {x, weight, labels},
        .input_count = 3,
        .keeps_inputs = 1 | 4,
        .reads_bf16 = graph->compute == DDP_BF16 ? 2 : 0,
        .forward_scratch = scratch,
        .backward_scratch = scratch,
    };
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, 1, (int64_t[]){1});
}

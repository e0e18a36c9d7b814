/* SPDX-License-Identifier: MIT
 *
 * A head and its loss in one: inputs x (...,C), weight (V,C), labels (...). The logits x W^T are
 * made for a chunk of rows at a time, in scratch memory, and never exist whole. An exec that trains
 * does all of it in backward, while a chunk's logits are there: the loss, their gradient over them,
 * from that the chunk's part of x's gradient, and what it adds to the weight's. Chunks depend on
 * the shapes alone, and are added in their order.
 *
 * A loss of preferences is of whole sequences: all chunks come first to log-probabilities, then
 * kernels/preference.h says how much of the loss each of these has, then the chunks are made again
 * for gradients; a single chunk is not made twice. On the CPU the rows whose log-probability counts
 * move together first, and chunks are made of these alone. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/linear.h"
#include "kernels/preference.h"
#include "kernels/softmax_cross_entropy.h"

#include <assert.h>
#include <string.h>

#define CHUNK_BYTES  ((int64_t)128 << 20) /* of logits, at most, except with very many classes */
#define FROZEN_BYTES ((int64_t)64 << 20)  /* where the weight is not learned */
#define CHUNK_ROWS   64                   /* chunks are multiples of so many rows */

struct attributes {
    enum ddp_dtype compute, dtype;
    int64_t classes; /* V with its padding */
    int64_t rows;    /* of a chunk; the last one may have fewer */
    struct ddp_objective objective;
};

/* Chunks of nearly the same size. Each reads and writes the weight's gradient, if there is one: few
 * are better. */
static int64_t chunk_rows(int64_t rows, int64_t classes, enum ddp_dtype dtype, bool frozen)
{
    const int64_t bytes = classes * (int64_t)ddp_dtype_bytes(dtype);
    const int64_t fit = (frozen ? FROZEN_BYTES : CHUNK_BYTES) / bytes / CHUNK_ROWS * CHUNK_ROWS;
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

/* Of preferences, for all rows: in scratch memory, before the logits. */
struct answers {
    int32_t *targets;
    float *losses, *weights;
    float *unused;  /* (2) where the losses' kernel adds up */
    int32_t *taken; /* the rows that chunks are made of */
    float *x, *dx;  /* of these */
};

/* Rows [first, first + rows) on their way. */
struct chunk {
    ddp_exec *exec;
    const struct node *node;
    int64_t first, rows, all; /* rows of all chunks */
    void *x, *dx;             /* of all rows; dx may be NULL */
    void *logits, *scratch;
    float *loss;             /* and what does not count */
    bool adds;               /* to these */
    struct answers *answers; /* NULL: no preferences */
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
        .x = rows_at(chunk, chunk->x),
        .weight = ddp_exec_value_f32(exec, weight),
        .weight_bf16 = ddp_exec_value_bf16(exec, weight),
        .y = chunk->logits,
        .scratch = chunk->scratch,
    };
    return ddp_exec_kernels(exec)->linear_forward(&args, ddp_exec_stream(exec));
}

/* The logits' part of a loss of preferences: log-probabilities, or with `gradient` that. */
static enum ddp_status make_answers(const struct chunk *chunk, bool gradient)
{
    const struct attributes *attributes = chunk->node->attributes;
    struct answers *answers = chunk->answers;
    const struct ddp_softmax_cross_entropy args = {
        .rows = chunk->rows,
        .classes = chunk->node->inputs[1]->dims[0],
        .divisor = chunk->node->inputs[2]->dims[0],
        .stride = attributes->classes,
        .dtype = attributes->dtype,
        .logits = chunk->logits,
        .labels = answers->targets + chunk->first,
        .loss = answers->unused,
        .uncounted = answers->unused + 1,
        .first_row = chunk->first,
        .dlogits = gradient ? chunk->logits : NULL,
        .row_losses = gradient ? NULL : answers->losses + chunk->first,
        .row_weights = gradient ? answers->weights + chunk->first : NULL,
        .dloss = ddp_exec_loss_gradient(chunk->exec),
    };
    return ddp_exec_kernels(chunk->exec)
        ->softmax_cross_entropy(&args, ddp_exec_stream(chunk->exec));
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
        .dloss = ddp_exec_loss_gradient(exec),
        .predictions = predictions ? predictions + chunk->first : NULL,
    };
    return ddp_exec_kernels(exec)->softmax_cross_entropy(&args, ddp_exec_stream(exec));
}

static enum ddp_status make_gradients(const struct chunk *chunk)
{
    const struct attributes *attributes = chunk->node->attributes;
    ddp_exec *exec = chunk->exec;
    const ddp_tensor *weight = chunk->node->inputs[1];
    const struct ddp_linear_backward args = {
        .rows = chunk->rows,
        .in = width(chunk->node),
        .out = attributes->classes,
        .compute = attributes->compute,
        .dtype = attributes->dtype,
        .x = rows_at(chunk, chunk->x),
        .weight = ddp_exec_value_f32(exec, weight),
        .weight_bf16 = ddp_exec_value_bf16(exec, weight),
        .dy = chunk->logits,
        .dx = rows_at(chunk, chunk->dx),
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
    enum ddp_status status = DDP_OK;
    chunk->logits = memory;
    chunk->scratch = (char *)memory + logits_bytes(attributes);
    for (; status == DDP_OK && chunk->first < chunk->all; chunk->first += attributes->rows) {
        const int64_t left = chunk->all - chunk->first;
        chunk->rows = left < attributes->rows ? left : attributes->rows;
        status = make_logits(chunk);
        if (status == DDP_OK)
            status = make_loss(chunk, gradient);
        if (status == DDP_OK && gradient)
            status = make_gradients(chunk);
    }
    return status;
}

/* --- preferences ------------------------------------------------------------------------------ */

static size_t row_bytes(int64_t rows)
{
    return ddp_align_up((size_t)rows * sizeof(float), 64);
}

/* Of a loss of preferences, before the logits: targets, losses, weights, the rows that are taken
 * and their x and dx, a pair that nobody reads, the kernel's own. */
static size_t answers_bytes(int64_t samples, int64_t rows, int64_t channels)
{
    return 4 * row_bytes(rows) + 2 * row_bytes(rows * channels) + row_bytes(2) +
           ddp_align_up(ddp_preference_scratch(samples, rows / samples), 64);
}

/* Moves the rows that have a target together. */
static void take_rows(struct chunk *chunk)
{
    struct answers *answers = chunk->answers;
    const size_t bytes = (size_t)width(chunk->node) * sizeof(float);
    int64_t count = 0;
    assert(((const struct attributes *)chunk->node->attributes)->dtype == DDP_F32);
    for (int64_t row = 0; row < chunk->all; row++) {
        if (answers->targets[row] == DDP_LABEL_NONE)
            continue;
        memcpy((char *)answers->x + (size_t)count * bytes, (char *)chunk->x + (size_t)row * bytes,
               bytes);
        answers->targets[count] = answers->targets[row];
        answers->taken[count++] = (int32_t)row;
    }
    if (count == 0) /* a measurement of speed: all rows */
        return;
    chunk->all = count;
    chunk->x = answers->x;
    chunk->dx = chunk->dx ? answers->dx : NULL;
}

/* Back to where they were: the rows' losses; the others have none. */
static void put_losses(const struct chunk *chunk, int64_t rows)
{
    float *losses = chunk->answers->losses;
    for (int64_t row = rows - 1, i = chunk->all - 1; row >= 0; row--)
        losses[row] = i >= 0 && chunk->answers->taken[i] == row ? losses[i--] : 0;
}

static void take_weights(const struct chunk *chunk)
{
    float *weights = chunk->answers->weights;
    for (int64_t i = 0; i < chunk->all; i++)
        weights[i] = weights[chunk->answers->taken[i]];
}

static void put_gradients(const struct chunk *chunk)
{
    const ddp_tensor *x = chunk->node->inputs[0];
    const size_t bytes = (size_t)width(chunk->node) * sizeof(float);
    char *dx = ddp_exec_gradient(chunk->exec, x);
    memset(dx, 0, (size_t)x->count * sizeof(float));
    for (int64_t i = 0; i < chunk->all; i++)
        memcpy(dx + (size_t)chunk->answers->taken[i] * bytes, (char *)chunk->dx + (size_t)i * bytes,
               bytes);
}

/* All chunks in one of the two turns.
 *   made  a single chunk's logits are there */
static enum ddp_status turn(struct chunk *chunk, bool gradient, bool made)
{
    const struct attributes *attributes = chunk->node->attributes;
    enum ddp_status status = DDP_OK;
    for (chunk->first = 0; status == DDP_OK && chunk->first < chunk->all;
         chunk->first += attributes->rows) {
        const int64_t left = chunk->all - chunk->first;
        chunk->rows = left < attributes->rows ? left : attributes->rows;
        status = made ? DDP_OK : make_logits(chunk);
        if (status == DDP_OK)
            status = make_answers(chunk, gradient);
        if (status == DDP_OK && gradient)
            status = make_gradients(chunk);
    }
    return status;
}

static enum ddp_status run_answers(struct chunk *chunk, char *memory, bool gradient)
{
    const struct attributes *attributes = chunk->node->attributes;
    const struct ddp_kernels *kernels = ddp_exec_kernels(chunk->exec);
    const ddp_tensor *labels = chunk->node->inputs[2];
    const int64_t rows = ddp_tensor_rows(chunk->node->inputs[0]), samples = labels->dims[0];
    const int64_t elements = rows * width(chunk->node);
    struct answers answers = {.targets = (void *)memory,
                              .losses = (void *)(memory + row_bytes(rows)),
                              .weights = (void *)(memory + 2 * row_bytes(rows)),
                              .taken = (void *)(memory + 3 * row_bytes(rows)),
                              .x = (void *)(memory + 4 * row_bytes(rows))};
    answers.dx = answers.x + row_bytes(elements) / sizeof(float);
    answers.unused = answers.dx + row_bytes(elements) / sizeof(float);
    const bool takes = ddp_device_host_memory(ddp_exec_device(chunk->exec)) &&
                       !ddp_exec_accumulates(chunk->exec, chunk->node, 0);
    const struct ddp_preference args = {
        .objective = attributes->objective,
        .samples = samples,
        .length = rows / samples,
        .labels = ddp_exec_value(chunk->exec, labels),
        .targets = answers.targets,
        .losses = answers.losses,
        .scratch = (char *)answers.unused + row_bytes(2),
        .weights = gradient ? answers.weights : NULL,
        .log_probabilities = (float *)ddp_exec_predictions(chunk->exec),
        .sums = chunk->loss,
        .accumulate = chunk->adds,
    };
    chunk->answers = &answers;
    chunk->logits = memory + answers_bytes(samples, rows, width(chunk->node));
    chunk->scratch = (char *)chunk->logits + logits_bytes(attributes);
    enum ddp_status status = kernels->preference_targets(&args, ddp_exec_stream(chunk->exec));
    if (status == DDP_OK && takes)
        take_rows(chunk);
    if (status == DDP_OK)
        status = turn(chunk, false, false);
    const bool some = chunk->all < rows;
    if (status == DDP_OK && some)
        put_losses(chunk, rows);
    if (status == DDP_OK)
        status = kernels->preference(&args, ddp_exec_stream(chunk->exec));
    if (status != DDP_OK || !gradient)
        return status;
    if (some)
        take_weights(chunk);
    status = turn(chunk, true, chunk->all <= attributes->rows);
    if (status == DDP_OK && some && chunk->dx)
        put_gradients(chunk);
    return status;
}

/* --- the operation ---------------------------------------------------------------------------- */

static enum ddp_status run(struct chunk *chunk, void *memory, bool gradient)
{
    const struct attributes *attributes = chunk->node->attributes;
    const ddp_tensor *x = chunk->node->inputs[0];
    chunk->all = ddp_tensor_rows(x);
    chunk->x = ddp_exec_value(chunk->exec, x);
    chunk->dx = gradient ? ddp_exec_gradient(chunk->exec, x) : NULL;
    return attributes->objective.kind ? run_answers(chunk, memory, gradient)
                                      : run_chunks(chunk, memory, gradient);
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    struct chunk chunk = {.exec = exec, .node = node, .loss = ddp_exec_value(exec, node->output)};
    if (ddp_exec_trains(exec))
        return DDP_OK;
    return run(&chunk, ddp_exec_forward_scratch(exec, node), false);
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    struct chunk chunk = {.exec = exec,
                          .node = node,
                          .loss = ddp_exec_gradients(exec),
                          .adds = ddp_exec_adding(exec)};
    return run(&chunk, ddp_exec_backward_scratch(exec, node), true);
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

/*   planes  of labels */
static ddp_tensor *build(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight, ddp_tensor *labels,
                         int64_t planes, const struct ddp_objective *objective)
{
    if (graph->status != DDP_OK || !x || !weight || !labels)
        return NULL;
    if (weight->dim_count != 2 || !ddp_tensor_is_parameter(weight) ||
        x->dims[x->dim_count - 1] != weight->dims[1] || x->dtype != graph->activations ||
        ddp_tensor_base(x)->kind != TENSOR_ACTIVATION || labels->dtype != DDP_I32 ||
        labels->count != planes * ddp_tensor_rows(x))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "head_cross_entropy: %s must be (...,C), %s a parameter (V,C) and "
                                "%s int32, one for each row",
                                x->name, weight->name, labels->name);
    const int64_t rows = ddp_tensor_rows(x), classes = ddp_graph_padded(graph, weight->dims[0]);
    const struct attributes attributes = {
        .objective = *objective,
        .compute = graph->compute,
        .dtype = graph->activations,
        .classes = classes,
        .rows = chunk_rows(rows, classes, graph->activations, weight->kind == TENSOR_FROZEN),
    };
    const size_t scratch =
        (objective->kind ? answers_bytes(labels->dims[0], rows, weight->dims[1]) : 0) +
        logits_bytes(&attributes) +
        ddp_graph_linear_scratch(graph, weight, attributes.rows, weight->dims[1], classes);
    ddp_graph_pad_parameter(graph, weight, weight->dims[0]);
    struct node node = {
        .op = &head_cross_entropy,
        .inputs = {x, weight, labels},
        .input_count = 3,
        .keeps_inputs = 1 | 2 | 4,
        .reads_bf16 = graph->compute == DDP_BF16 ? 2 : 0,
        .forward_scratch = scratch,
        .backward_scratch = scratch,
    };
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, 1, (int64_t[]){1});
}

ddp_tensor *ddp_graph_head_cross_entropy(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight,
                                         ddp_tensor *labels)
{
    return build(graph, x, weight, labels, 1, &(struct ddp_objective){.kind = DDP_OBJECTIVE_NONE});
}

ddp_tensor *ddp_graph_head_preference(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight,
                                      ddp_tensor *labels, const struct ddp_objective *objective)
{
    graph->objective = *objective;
    return build(graph, x, weight, labels, DDP_ROLE_PLANES, objective);
}

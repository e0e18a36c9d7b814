/* SPDX-License-Identifier: MIT
 *
 * Where each activation lies in the arena. Forward of operation i happens at step i, its backward
 * at step 2n-1-i; a tensor occupies memory from the first to the last step that touches it. Largest
 * first, each at the lowest offset where it meets no other tensor that is alive at the same time:
 * the greedy-by-size rule of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
 * Inference" (2020). */
#include "config.h"

#include "graph/internal.h"

#include "core/memory.h"

#include <stdlib.h>

static bool in_parts(const ddp_graph *graph, int node, unsigned parts)
{
    return node <= graph->output->producer ? (parts & DDP_EXEC_NETWORK) : (parts & DDP_EXEC_LOSS);
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Backward of the node that makes a tensor reads the tensor's value. */
static bool needed_by_producer(const struct node *producer)
{
    return producer->op->backward_reads_output && producer->activation != DDP_ACTIVATION_NONE;
}

bool ddp_graph_gradient_in_place(const ddp_graph *graph, const ddp_tensor *tensor)
{
    return tensor->kind == TENSOR_ACTIVATION && tensor->consumer >= 0 &&
           graph->nodes[tensor->consumer].op->gradient_in_forward &&
           !needed_by_producer(&graph->nodes[tensor->producer]);
}

/* Adds the placements of one activation: its value and, in training, its gradient. */
static void add_activation(const ddp_graph *graph, const ddp_tensor *tensor, unsigned parts,
                           struct placement *items, int *item_count)
{
    const int last_step = 2 * graph->node_count - 1;
    const struct node *producer = &graph->nodes[tensor->producer];
    const struct node *consumer = tensor->consumer >= 0 ? &graph->nodes[tensor->consumer] : NULL;
    const bool trains = parts & DDP_EXEC_BACKWARD;
    const size_t bytes = ddp_align_up((size_t)tensor->count * sizeof(float), DDP_CACHE_LINE);
    const int forward = tensor->producer, backward = last_step - tensor->producer;

    if (!in_parts(graph, tensor->producer, parts) &&
        !(consumer && in_parts(graph, tensor->consumer, parts)))
        return;
    struct placement value = {tensor->id, false, forward, max_int(forward, tensor->consumer),
                              bytes,      0};
    if (trains && consumer && consumer->op->backward_reads_input)
        value.last = max_int(value.last, last_step - tensor->consumer);
    if (trains && (needed_by_producer(producer) || ddp_graph_gradient_in_place(graph, tensor)))
        value.last = max_int(value.last, backward);
    if (trains && consumer && !ddp_graph_gradient_in_place(graph, tensor)) {
        const int written =
            consumer->op->gradient_in_forward ? tensor->consumer : last_step - tensor->consumer;
        items[(*item_count)++] = (struct placement){tensor->id, true, written, backward, bytes, 0};
    }
    items[(*item_count)++] = value;
}

static int larger_first(const void *a, const void *b)
{
    const struct placement *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->tensor != y->tensor)
        return x->tensor - y->tensor;
    return (int)x->gradient - (int)y->gradient;
}

/* The lowest offset at which items[index] meets none of the items before it. */
static size_t find_offset(const struct placement *items, int index)
{
    const struct placement *item = &items[index];
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < index; i++) {
            const struct placement *other = &items[i];
            bool same_time = other->first <= item->last && item->first <= other->last;
            bool same_place =
                other->offset < offset + item->bytes && offset < other->offset + other->bytes;
            if (same_time && same_place) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

enum ddp_status ddp_graph_plan(const ddp_graph *graph, unsigned parts, struct placement **items,
                               int *item_count, size_t *arena_bytes)
{
    struct placement *list = ddp_array_alloc((size_t)graph->tensor_count * 2, sizeof *list);
    int count = 0;
    size_t bytes = 0;
    if (!list)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i]->kind == TENSOR_ACTIVATION)
            add_activation(graph, graph->tensors[i], parts, list, &count);
    qsort(list, (size_t)count, sizeof *list, larger_first);
    for (int i = 0; i < count; i++) {
        list[i].offset = find_offset(list, i);
        if (list[i].offset + list[i].bytes > bytes)
            bytes = list[i].offset + list[i].bytes;
    }
    *items = list;
    *item_count = count;
    *arena_bytes = bytes;
    return DDP_OK;
}

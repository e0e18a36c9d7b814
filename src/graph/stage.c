/* SPDX-License-Identifier: MIT
 *
 * Makes stages of a graph; see stage.h. A stage is a graph whose first operations receive what it
 * needs of earlier stages, and whose last ones send what later stages need: memory plan and exec
 * treat these as any operation. */
#include "config.h"

#include "graph/stage.h"

#include "core/log.h"
#include "core/memory.h"
#include "graph/internal.h"

#include <stdlib.h>
#include <string.h>

/* Is the tensor, not a view of it, made before operation n and read there or behind it? */
static bool crosses(const ddp_tensor *tensor, int n)
{
    return tensor->kind == TENSOR_ACTIVATION && !tensor->base && tensor->producer < n &&
           tensor->last_reader >= n;
}

static size_t in_message(const ddp_tensor *tensor)
{
    return ddp_align_up(ddp_tensor_bytes(tensor), DDP_CACHE_LINE);
}

/* Of the messages that pass the cut before operation n. */
static struct ddp_message_place message_bytes(const ddp_graph *graph, int n, int *count)
{
    struct ddp_message_place bytes = {0};
    *count = 0;
    for (int i = 0; i < graph->tensor_count; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (!crosses(tensor, n))
            continue;
        bytes.value += in_message(tensor);
        bytes.gradient += tensor->needs_gradient ? in_message(tensor) : 0;
        ++*count;
    }
    return bytes;
}

size_t ddp_graph_cut_values(const ddp_graph *graph, int n)
{
    int count;
    return message_bytes(graph, n, &count).value;
}

size_t ddp_graph_cut_gradients(const ddp_graph *graph, int n)
{
    int count;
    return message_bytes(graph, n, &count).gradient;
}

/* The parameters of a worker's stages, by number in the whole graph. */
struct table {
    int *number;       /* in the stages' table; -1: none reads it */
    int *first, *last; /* of its readers' stages */
    int count;
};

struct builder {
    const ddp_graph *whole;
    const struct table *table;
    int part; /* number of the stage */
    ddp_graph *stage;
    ddp_tensor **copies; /* by id in the whole graph; NULL: not there yet */
    int place_count;
};

static bool add_tensor(ddp_graph *stage, ddp_tensor *tensor)
{
    if (!tensor)
        return false;
    tensor->graph = stage;
    tensor->id = stage->tensor_count;
    tensor->first_reader = tensor->last_reader = -1;
    tensor->reader_count = 0;
    stage->tensors[stage->tensor_count++] = tensor;
    return true;
}

/* The stage's copy of a tensor; NULL: no memory. */
static ddp_tensor *copy_of(struct builder *b, const ddp_tensor *tensor)
{
    ddp_tensor **copy = &b->copies[tensor->id];
    ddp_tensor *base = tensor->base ? copy_of(b, tensor->base) : NULL;
    ddp_tensor *bounds = tensor->bounds ? copy_of(b, tensor->bounds) : NULL;
    if (*copy || (tensor->base && !base) || (tensor->bounds && !bounds))
        return *copy;
    ddp_tensor *made = ddp_array_alloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = *tensor;
    made->base = base;
    made->bounds = bounds;
    made->producer = base ? base->producer : -1;
    if (tensor->kind == TENSOR_PARAMETER) {
        made->index = b->table->number[tensor->index];
        made->adds = b->table->last[tensor->index] > b->part;
        made->stays_open = b->table->first[tensor->index] < b->part;
    }
    add_tensor(b->stage, made);
    return *copy = made;
}

/* Its inputs and its output are the stage's. */
static void add_node(ddp_graph *stage, const struct node *node)
{
    const int number = stage->node_count++;
    stage->nodes[number] = *node;
    node->output->producer = number;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i])
            ddp_graph_note_reader(node->inputs[i]->base ? node->inputs[i]->base : node->inputs[i],
                                  number);
}

static bool add_copy(struct builder *b, const struct node *from)
{
    struct node node = *from;
    for (int i = 0; i < from->input_count; i++) {
        node.inputs[i] = from->inputs[i] ? copy_of(b, from->inputs[i]) : NULL;
        if (from->inputs[i] && !node.inputs[i])
            return false;
    }
    node.output = copy_of(b, from->output);
    if (!node.output)
        return false;
    add_node(b->stage, &node);
    return true;
}

/* An operation must make something; what a sender makes nobody reads. */
static ddp_tensor *add_nothing(struct builder *b, const ddp_tensor *sent)
{
    ddp_tensor *tensor = ddp_array_alloc(1, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (ddp_tensor){.name = sent->name,
                           .kind = TENSOR_ACTIVATION,
                           .dtype = DDP_I32,
                           .dim_count = 1,
                           .dims = {1},
                           .count = 1,
                           .pitch = 1,
                           .index = -1,
                           .needs_gradient = sent->needs_gradient};
    add_tensor(b->stage, tensor);
    return tensor;
}

/* Receivers or senders of all that passes the cut before operation n of the whole graph. */
static bool add_messages(struct builder *b, int n, bool receive)
{
    struct ddp_message_place place = {0};
    for (int i = 0; i < b->whole->tensor_count; i++) {
        const ddp_tensor *tensor = b->whole->tensors[i];
        if (!crosses(tensor, n))
            continue;
        ddp_tensor *copy = copy_of(b, tensor);
        struct node node = {.op = receive ? &ddp_graph_receive : &ddp_graph_send,
                            .inputs = {copy},
                            .input_count = receive ? 0 : 1,
                            .output = receive || !copy ? copy : add_nothing(b, tensor),
                            .attributes = &b->stage->places[b->place_count],
                            .block = -1};
        if (!node.output)
            return false;
        b->stage->places[b->place_count++] = place;
        place.value += in_message(tensor);
        place.gradient += tensor->needs_gradient ? in_message(tensor) : 0;
        add_node(b->stage, &node);
    }
    return true;
}

/* All of them: their places are those of the whole graph. */
static bool add_frozen(const ddp_graph *whole, ddp_graph *stage)
{
    const size_t count = (size_t)whole->frozen_count;
    stage->frozen = ddp_array_alloc(count + 1, sizeof *stage->frozen);
    if (!stage->frozen)
        return false;
    if (count > 0)
        memcpy(stage->frozen, whole->frozen, count * sizeof *stage->frozen);
    stage->frozen_count = whole->frozen_count;
    stage->frozen_bytes = whole->frozen_bytes;
    stage->frozen_f32_bytes = whole->frozen_f32_bytes;
    return true;
}

/* The parameters without offsets, and where they come from. */
static bool add_parameters(struct builder *b)
{
    ddp_graph *stage = b->stage;
    stage->parameters = ddp_array_alloc((size_t)b->table->count + 1, sizeof *stage->parameters);
    stage->sources = ddp_array_alloc((size_t)b->table->count + 1, sizeof *stage->sources);
    if (!stage->parameters || !stage->sources)
        return false;
    for (int i = 0; i < b->whole->parameter_count; i++) {
        const int number = b->table->number[i];
        if (number < 0)
            continue;
        stage->parameters[number] = b->whole->parameters[i];
        stage->parameters[number].offset = -1;
        stage->sources[number] = i;
    }
    stage->parameter_count = b->table->count;
    return true;
}

static ddp_graph *create_stage(const ddp_graph *whole)
{
    ddp_graph *stage;
    if (ddp_graph_create(&stage) != DDP_OK)
        return NULL;
    stage->is_stage = true;
    stage->input_count = whole->input_count;
    memcpy(stage->expected, whole->expected, sizeof stage->expected);
    stage->dropout_count = whole->dropout_count;
    stage->block_count = whole->block_count;
    stage->recompute = whole->recompute;
    stage->own_operation = whole->own_operation;
    stage->encodes = whole->encodes;
    stage->cache_width = whole->cache_width;
    stage->target_count = whole->target_count;
    stage->objective = whole->objective;
    stage->compute = whole->compute;
    stage->activations = whole->activations;
    stage->offers = whole->offers;
    return stage;
}

static bool fill_stage(struct builder *b, const struct ddp_graph_range *range)
{
    const ddp_graph *whole = b->whole;
    ddp_graph *stage = b->stage;
    const bool ends = range->end == whole->node_count;
    int received, sent;
    message_bytes(whole, range->first, &received);
    message_bytes(whole, range->end, &sent);
    const size_t nodes = (size_t)(range->end - range->first + received + sent);
    stage->nodes = ddp_array_alloc(nodes, sizeof *stage->nodes);
    stage->tensors = ddp_array_alloc((size_t)(whole->tensor_count + sent), sizeof *stage->tensors);
    stage->places = ddp_array_alloc((size_t)(received + sent) + 1, sizeof *stage->places);
    if (!stage->nodes || !stage->tensors || !stage->places || !add_parameters(b) ||
        !add_frozen(whole, stage) || !add_messages(b, range->first, true))
        return false;
    for (int n = range->first; n < range->end; n++)
        if (!add_copy(b, &whole->nodes[n]))
            return false;
    if (!add_messages(b, range->end, false))
        return false;
    if (ends) {
        stage->output = copy_of(b, whole->output);
        stage->loss = copy_of(b, whole->loss);
    }
    stage->network_count = ends ? stage->output->producer + 1 : stage->node_count;
    ddp_graph_set_description(stage, ddp_graph_description(whole));
    return stage->output || !ends;
}

static ddp_graph *make_stage(const ddp_graph *whole, const struct table *table, int part,
                             const struct ddp_graph_range *range)
{
    struct builder b = {.whole = whole,
                        .table = table,
                        .part = part,
                        .stage = create_stage(whole),
                        .copies = ddp_array_alloc((size_t)whole->tensor_count, sizeof *b.copies)};
    if (!b.stage || !b.copies || !fill_stage(&b, range) || b.stage->status != DDP_OK) {
        ddp_graph_destroy(b.stage);
        b.stage = NULL;
    }
    free(b.copies);
    return b.stage;
}

/* Parameters keep their order. */
static void fill_table(struct table *table, const ddp_graph *graph,
                       const struct ddp_graph_range *ranges, int count)
{
    for (int i = 0; i < graph->parameter_count; i++)
        table->number[i] = table->first[i] = table->last[i] = -1;
    for (int r = 0; r < count; r++)
        for (int n = ranges[r].first; n < ranges[r].end; n++)
            for (int i = 0; i < graph->nodes[n].input_count; i++) {
                const ddp_tensor *parameter = ddp_node_parameter(&graph->nodes[n], i);
                if (!parameter)
                    continue;
                if (table->first[parameter->index] < 0)
                    table->first[parameter->index] = r;
                table->last[parameter->index] = r;
            }
    for (int i = 0; i < graph->parameter_count; i++)
        if (table->first[i] >= 0)
            table->number[i] = table->count++;
}

static void copy_layout(ddp_graph *stage, const ddp_graph *from)
{
    memcpy(stage->parameters, from->parameters,
           (size_t)from->parameter_count * sizeof *stage->parameters);
    stage->element_count = from->element_count;
    stage->statistics_count = from->statistics_count;
    stage->flat_count = from->flat_count;
}

/* The first stage's backward is the last. */
static void lay_out(ddp_graph **parts, int count)
{
    ddp_graph_place_statistics(parts[count - 1]);
    ddp_graph_place_learned(parts[count - 1]);
    for (int r = count - 2; r >= 0; r--) {
        copy_layout(parts[r], parts[r + 1]);
        ddp_graph_place_learned(parts[r]);
    }
    for (int r = 1; r < count; r++)
        copy_layout(parts[r], parts[0]);
}

static enum ddp_status check(const ddp_graph *graph, const struct ddp_graph_range *ranges,
                             int count)
{
    bool good = count > 0 && ddp_graph_is_finished(graph);
    for (int r = 0; r < count && good; r++) {
        const int first = ranges[r].first, end = ranges[r].end;
        good = first >= (r ? ranges[r - 1].end : 0) && first < end &&
               first < graph->network_count &&
               (end < graph->network_count || end == graph->node_count);
    }
    return good ? DDP_OK
                : ddp_fail(DDP_ERR_INVALID, "model: it cannot be cut into stages like this: each "
                                            "has one operation or more, and the last one has "
                                            "the output and the loss");
}

enum ddp_status ddp_graph_make_stages(const ddp_graph *graph, const struct ddp_graph_range *ranges,
                                      int count, ddp_graph **parts)
{
    enum ddp_status status = check(graph, ranges, count);
    if (status != DDP_OK)
        return status;
    const size_t parameters = (size_t)graph->parameter_count + 1;
    struct table table = {.number = ddp_array_alloc(parameters, sizeof *table.number),
                          .first = ddp_array_alloc(parameters, sizeof *table.first),
                          .last = ddp_array_alloc(parameters, sizeof *table.last)};
    int made = 0;
    if (table.number && table.first && table.last) {
        fill_table(&table, graph, ranges, count);
        while (made < count &&
               (parts[made] = make_stage(graph, &table, made, &ranges[made])) != NULL)
            made++;
    }
    if (made == count)
        lay_out(parts, count);
    else
        while (made > 0)
            ddp_graph_destroy(parts[--made]);
    status = made == count ? DDP_OK : DDP_ERR_MEMORY;
    free(table.number);
    free(table.first);
    free(table.last);
    return status;
}

int ddp_graph_stage_source(const ddp_graph *stage, int i)
{
    return stage->sources[i];
}

int ddp_graph_network_count(const ddp_graph *graph)
{
    return graph->network_count;
}

static bool is_in_layer(const char *parameter, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(parameter, name, length) == 0 &&
           (parameter[length] == '\0' || parameter[length] == '.');
}

int ddp_graph_find_operation(const ddp_graph *graph, const char *name)
{
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            const ddp_tensor *input = graph->nodes[n].inputs[i];
            if (input && ddp_tensor_is_parameter(input) && is_in_layer(input->name, name))
                return n;
        }
    return -1;
}

bool ddp_graph_reads(const ddp_graph *graph, int n, int parameter)
{
    for (int i = 0; i < graph->nodes[n].input_count; i++) {
        const ddp_tensor *read = ddp_node_parameter(&graph->nodes[n], i);
        if (read && read->index == parameter)
            return true;
    }
    return false;
}

const char *ddp_graph_operation_name(const ddp_graph *graph, int n)
{
    return graph->nodes[n].op->name;
}

const char *ddp_graph_result_name(const ddp_graph *graph, int n)
{
    return graph->nodes[n].output->name;
}

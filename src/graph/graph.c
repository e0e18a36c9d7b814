/* SPDX-License-Identifier: MIT
 *
 * Building graphs; see graph.h. */
#include "config.h"

#include "graph/internal.h"

#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Tensor cores want rows of whole 16 bytes, and large products whole tiles. */
#define ROW_CLASSES  8
#define TILE_CLASSES 128
#define MANY_CLASSES 1024 /* more than these are made whole tiles: an eighth more at most */

enum ddp_status ddp_graph_create(ddp_graph **graph)
{
    struct ddp_graph *g = ddp_array_alloc(1, sizeof *g);
    if (!g)
        return DDP_ERR_MEMORY;
    g->block = -1;
    *graph = g;
    return DDP_OK;
}

void ddp_graph_destroy(ddp_graph *graph)
{
    if (!graph)
        return;
    for (int i = 0; i < graph->tensor_count; i++) {
        if (!graph->is_stage) {
            free(graph->tensors[i]->name);
            free(graph->tensors[i]->values);
        }
        free(graph->tensors[i]);
    }
    for (int n = 0; n < graph->node_count && !graph->is_stage; n++)
        free(graph->nodes[n].attributes);
    free(graph->sources);
    free(graph->places);
    free(graph->description);
    free(graph->data);
    free(graph->tensors);
    free(graph->nodes);
    free(graph->parameters);
    free(graph->frozen);
    free(graph);
}

void ddp_graph_set_compute(ddp_graph *graph, enum ddp_dtype compute)
{
    graph->compute = compute;
}

void ddp_graph_set_activations(ddp_graph *graph, enum ddp_dtype activations)
{
    graph->activations = activations;
}

void ddp_graph_set_offers(ddp_graph *graph, const struct ddp_graph_offers *offers)
{
    graph->offers = *offers;
}

void ddp_graph_set_recompute(ddp_graph *graph, bool recompute)
{
    graph->recompute = recompute;
}

int ddp_graph_block_count(const ddp_graph *graph)
{
    return graph->block_count;
}

void ddp_graph_begin_block(ddp_graph *graph)
{
    graph->block = graph->block_count++;
}

void ddp_graph_end_block(ddp_graph *graph)
{
    graph->block = -1;
}

bool ddp_graph_fuses(const ddp_graph *graph, int n)
{
    if (!graph->offers.fuses_norms || n < 0 || n + 1 >= graph->node_count ||
        n + 1 == graph->network_count)
        return false;
    const struct node *node = &graph->nodes[n], *next = node + 1;
    return node->op->forward_fused && next->op->sum_and_norm && next->inputs[0] == node->output;
}

void ddp_graph_set_description(ddp_graph *graph, const char *text)
{
    free(graph->description);
    graph->description = strdup(text);
    if (!graph->description)
        ddp_graph_reject(graph, DDP_ERR_MEMORY, "out of memory");
}

const char *ddp_graph_description(const ddp_graph *graph)
{
    return graph->description ? graph->description : "";
}

ddp_tensor *ddp_graph_reject(ddp_graph *graph, enum ddp_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    graph->status = ddp_fail(status, "model: %s", text);
    return NULL;
}

/* Makes room for one more element of an array. */
static bool grow(ddp_graph *graph, void *array, int count, int *capacity, size_t size)
{
    void **memory = array;
    if (count < *capacity)
        return true;
    int wanted = *capacity ? *capacity * 2 : 16;
    void *larger = realloc(*memory, (size_t)wanted * size);
    if (!larger) {
        ddp_graph_reject(graph, DDP_ERR_MEMORY, "out of memory");
        return false;
    }
    *memory = larger;
    *capacity = wanted;
    return true;
}

static bool count_elements(int dim_count, const int64_t *dims, int64_t *count)
{
    *count = 1;
    for (int i = 0; i < dim_count; i++)
        if (dims[i] < 1 || __builtin_mul_overflow(*count, dims[i], count) ||
            *count > INT64_MAX / 16)
            return false;
    return true;
}

static ddp_tensor *add_tensor(ddp_graph *graph, const char *name, enum tensor_kind kind,
                              enum ddp_dtype dtype, int dim_count, const int64_t *dims)
{
    int64_t count;
    if (graph->status != DDP_OK)
        return NULL;
    if (!name)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "an input or parameter has no name");
    if (dim_count < 1 || dim_count > DDP_TENSOR_DIMS || !count_elements(dim_count, dims, &count))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "tensor %s has an impossible shape: %d dimensions of 1 to %d, each "
                                "at least 1",
                                name, dim_count, DDP_TENSOR_DIMS);
    if (!grow(graph, &graph->tensors, graph->tensor_count, &graph->tensor_capacity,
              sizeof(ddp_tensor *)))
        return NULL;
    ddp_tensor *tensor = ddp_array_alloc(1, sizeof *tensor);
    char *copy = strdup(name);
    if (!tensor || !copy) {
        free(tensor);
        free(copy);
        return ddp_graph_reject(graph, DDP_ERR_MEMORY, "out of memory");
    }
    *tensor = (ddp_tensor){.graph = graph,
                           .name = copy,
                           .kind = kind,
                           .dtype = dtype,
                           .id = graph->tensor_count,
                           .dim_count = dim_count,
                           .count = count,
                           .producer = -1,
                           .index = -1,
                           .first_reader = -1,
                           .last_reader = -1};
    memcpy(tensor->dims, dims, (size_t)dim_count * sizeof *dims);
    tensor->pitch = dims[dim_count - 1];
    graph->tensors[graph->tensor_count++] = tensor;
    return tensor;
}

void ddp_graph_expect_input(ddp_graph *graph, int input, const char *what, enum ddp_dtype dtype,
                            int64_t rows, int64_t values)
{
    graph->expected[input] = (struct expected_input){what, dtype, rows, values};
}

static bool is_expected(ddp_graph *graph, const ddp_tensor *tensor)
{
    static const char *const dtypes[] = {
        [DDP_F32] = "DDP_F32", [DDP_F64] = "DDP_F64",   [DDP_I32] = "DDP_I32",
        [DDP_I64] = "DDP_I64", [DDP_BF16] = "DDP_BF16",
    };
    if (tensor->index > 1 || !graph->expected[tensor->index].what)
        return true;
    const struct expected_input *e = &graph->expected[tensor->index];
    const int64_t rows = tensor->dims[0], values = tensor->count / rows;
    if (tensor->dtype == e->dtype && rows == e->rows && values == e->values)
        return true;
    ddp_graph_reject(graph, DDP_ERR_INVALID,
                     "input %d must be the %s: %s, %" PRId64 " rows of %" PRId64 " number%s, as "
                     "the shape has it; %s is %s, %" PRId64 " rows of %" PRId64,
                     tensor->index, e->what, dtypes[e->dtype], e->rows, e->values,
                     e->values == 1 ? "" : "s", tensor->name, dtypes[tensor->dtype], rows, values);
    return false;
}

ddp_tensor *ddp_graph_add_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype,
                                int dim_count, const int64_t *dims)
{
    ddp_tensor *tensor = add_tensor(graph, name, TENSOR_INPUT, dtype, dim_count, dims);
    if (!tensor)
        return NULL;
    tensor->index = graph->input_count++;
    return is_expected(graph, tensor) ? tensor : NULL;
}

bool ddp_graph_layer_begins(ddp_graph *graph, const char *name, const ddp_tensor *x)
{
    if (graph->status == DDP_OK && x && !name)
        ddp_graph_reject(graph, DDP_ERR_INVALID, "a layer on %s has no name", x->name);
    return graph->status == DDP_OK && x;
}

/*   parameter  its statistic, frozen, dtype and init; the rest is zero */
static ddp_tensor *add_parameter(ddp_graph *graph, const char *name, int dim_count,
                                 const int64_t *dims, struct ddp_parameter parameter)
{
    const bool frozen = parameter.frozen;
    ddp_tensor *tensor = add_tensor(graph, name, frozen ? TENSOR_FROZEN : TENSOR_PARAMETER,
                                    parameter.dtype, dim_count, dims);
    if (!tensor ||
        !grow(graph, &graph->parameters, graph->parameter_count, &graph->parameter_capacity,
              sizeof *graph->parameters) ||
        !grow(graph, &graph->frozen, graph->frozen_count, &graph->frozen_capacity,
              sizeof *graph->frozen))
        return NULL;
    for (int i = 0; i < tensor->id; i++)
        if (ddp_tensor_is_parameter(graph->tensors[i]) &&
            strcmp(graph->tensors[i]->name, name) == 0)
            return ddp_graph_reject(graph, DDP_ERR_INVALID, "two parameters have the name %s",
                                    name);
    parameter.name = tensor->name;
    parameter.dim_count = dim_count;
    parameter.count = tensor->count;
    parameter.offset = -1;
    memcpy(parameter.dims, tensor->dims, sizeof parameter.dims);
    tensor->index = frozen ? graph->frozen_count++ : graph->parameter_count++;
    *ddp_tensor_parameter(graph, tensor) = parameter;
    tensor->needs_gradient = !parameter.statistic && !parameter.held && !frozen;
    return tensor;
}

ddp_tensor *ddp_graph_frozen(ddp_graph *graph, const char *name, int dim_count, const int64_t *dims,
                             struct ddp_init init, enum ddp_dtype dtype)
{
    if (graph->status == DDP_OK && dtype != DDP_F32 && dtype != DDP_BF16 && !ddp_block_of(dtype))
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "frozen parameter %s: it is held in DDP_F32, DDP_BF16 or blocks",
                                name ? name : "(null)");
    return add_parameter(
        graph, name, dim_count, dims,
        (struct ddp_parameter){
            .frozen = true, .dtype = ddp_graph_frozen_dtype(dtype, dim_count, dims), .init = init});
}

ddp_tensor *ddp_graph_parameter(ddp_graph *graph, const char *name, int dim_count,
                                const int64_t *dims, struct ddp_init init)
{
    if (graph->freezes)
        return ddp_graph_frozen(graph, name, dim_count, dims, init, graph->frozen_dtype);
    return add_parameter(graph, name, dim_count, dims,
                         (struct ddp_parameter){.held = graph->holds, .init = init});
}

ddp_tensor *ddp_graph_statistic(ddp_graph *graph, const char *name, int64_t count,
                                enum ddp_init_kind init)
{
    return add_parameter(graph, name, 1, &count,
                         (struct ddp_parameter){.statistic = true, .init = {.kind = init}});
}

ddp_tensor *ddp_graph_constant(ddp_graph *graph, const char *name, int dim_count,
                               const int64_t *dims)
{
    ddp_tensor *tensor = add_tensor(graph, name, TENSOR_CONSTANT, DDP_F32, dim_count, dims);
    if (!tensor)
        return NULL;
    tensor->values = ddp_array_alloc((size_t)tensor->count, sizeof *tensor->values);
    return tensor->values ? tensor : ddp_graph_reject(graph, DDP_ERR_MEMORY, "out of memory");
}

const int64_t *ddp_graph_dims(const ddp_tensor *tensor)
{
    static const int64_t none[DDP_TENSOR_DIMS];
    return tensor ? tensor->dims : none;
}

ddp_tensor *ddp_graph_reshape(ddp_graph *graph, ddp_tensor *x, int dim_count, const int64_t *dims)
{
    int64_t shape[DDP_TENSOR_DIMS], known = 1;
    int open = -1;
    if (graph->status != DDP_OK || !x)
        return NULL;
    for (int i = 0; i < dim_count && dim_count <= DDP_TENSOR_DIMS; i++) {
        shape[i] = dims[i];
        if (dims[i] == -1 && open < 0)
            open = i;
        else if (dims[i] < 1 || __builtin_mul_overflow(known, dims[i], &known))
            known = 0, i = dim_count;
    }
    if (dim_count < 1 || dim_count > DDP_TENSOR_DIMS || known < 1 || x->count % known ||
        (open < 0 && known != x->count))
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "reshape: %s has %lld elements", x->name,
                                (long long)x->count);
    if (open >= 0)
        shape[open] = x->count / known;
    ddp_tensor *base = x->base ? x->base : x;
    ddp_tensor *view = add_tensor(graph, x->name, base->kind, x->dtype, dim_count, shape);
    if (!view)
        return NULL;
    view->base = base;
    view->bounds = base->bounds;
    view->producer = base->producer;
    view->index = base->index;
    view->needs_gradient = base->needs_gradient;
    return view;
}

void ddp_graph_note_reader(ddp_tensor *tensor, int number)
{
    if (tensor->first_reader < 0)
        tensor->first_reader = number;
    tensor->last_reader = number;
    tensor->reader_count++;
}

/* Notes that node `number` reads its inputs, and whether anything before it learns. */
static bool note_readers(ddp_graph *graph, const struct node *node, int number, bool *learns)
{
    for (int i = 0; i < node->input_count; i++) {
        ddp_tensor *input = node->inputs[i];
        if (!input)
            continue;
        if (input->graph != graph) {
            ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: %s belongs to another graph",
                             node->op->name, input->name);
            return false;
        }
        if (ddp_block_of(input->dtype) && !node->op->reads_blocks) {
            ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED,
                             "%s: %s is held in blocks of %s, which only linear layers read",
                             node->op->name, input->name, ddp_block_of(input->dtype)->name);
            return false;
        }
        ddp_tensor *base = input->base ? input->base : input;
        const int last = base->last_reader;
        const bool last_writes =
            last >= 0 && last < number && graph->nodes[last].op->gradient_in_forward;
        if (base->kind == TENSOR_ACTIVATION &&
            ((last >= 0 && i == 0 && node->op->gradient_in_forward) || last_writes)) {
            ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED, "%s: %s has another reader",
                             node->op->name, input->name);
            return false;
        }
        ddp_graph_note_reader(base, number);
        *learns |= base->needs_gradient;
    }
    return true;
}

/* A result is called after the layer whose parameter makes it ("fc1" for "fc1.weight"), else after
 * the operation. */
static void name_output(const struct node *node, char *name, size_t size)
{
    snprintf(name, size, "%s", node->op->name);
    if (node->op->is_cast)
        snprintf(name, size, "%s", node->inputs[0]->name);
    for (int i = 0; i < node->input_count; i++) {
        const ddp_tensor *input = node->inputs[i];
        const char *dot = input ? strrchr(input->name, '.') : NULL;
        if (input && ddp_tensor_is_parameter(input) && dot) {
            snprintf(name, size, "%.*s", (int)(dot - input->name), input->name);
            return;
        }
    }
}

ddp_tensor *ddp_graph_add_node(ddp_graph *graph, const struct node *node, const void *attributes,
                               size_t attributes_bytes, int dim_count, const int64_t *dims)
{
    bool learns = false;
    char name[256];
    struct node bounded = *node;
    ddp_tensor *bounds = ddp_node_take_bounds(&bounded);
    node = &bounded;
    if (bounds && !node->op->packs && !node->op->unpacks)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: it does not take packed rows",
                                node->op->name);
    if (graph->status != DDP_OK ||
        !grow(graph, &graph->nodes, graph->node_count, &graph->node_capacity,
              sizeof *graph->nodes) ||
        !note_readers(graph, node, graph->node_count, &learns))
        return NULL;
    name_output(node, name, sizeof name);
    const enum ddp_dtype dtype = node->op->is_float32 ? DDP_F32
                                 : node->op->is_int32 ? DDP_I32
                                                      : graph->activations;
    ddp_tensor *output = add_tensor(graph, name, TENSOR_ACTIVATION, dtype, dim_count, dims);
    if (!output)
        return NULL;
    void *copy = NULL;
    if (attributes_bytes) {
        copy = malloc(attributes_bytes);
        if (!copy)
            return ddp_graph_reject(graph, DDP_ERR_MEMORY, "out of memory");
        memcpy(copy, attributes, attributes_bytes);
    }
    output->producer = graph->node_count;
    output->needs_gradient = learns;
    output->bounds = node->op->packs ? bounds : NULL;
    graph->nodes[graph->node_count] = *node;
    graph->nodes[graph->node_count].output = output;
    graph->nodes[graph->node_count].attributes = copy;
    graph->nodes[graph->node_count].block = graph->block;
    graph->node_count++;
    return output;
}

static void place_parameter(ddp_graph *graph, struct ddp_parameter *parameter)
{
    parameter->offset = graph->flat_count;
    graph->flat_count = ddp_parameter_end(parameter);
}

void ddp_graph_place_statistics(ddp_graph *graph)
{
    graph->flat_count = DDP_FLAT_ALIGN;
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].statistic)
            place_parameter(graph, &graph->parameters[i]);
    graph->statistics_count = graph->flat_count - DDP_FLAT_ALIGN;
}

/* Backward finishes with a parameter at the first operation that reads it. */
void ddp_graph_place_learned(ddp_graph *graph)
{
    for (int n = graph->node_count - 1; n >= 0; n--) {
        const struct node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            const ddp_tensor *parameter = ddp_node_parameter(node, i);
            if (!parameter || parameter->first_reader != n || parameter->stays_open ||
                graph->parameters[parameter->index].offset >= 0)
                continue;
            place_parameter(graph, &graph->parameters[parameter->index]);
            graph->element_count += parameter->count;
        }
    }
}

static enum ddp_status lay_out_parameters(ddp_graph *graph)
{
    ddp_graph_place_statistics(graph);
    ddp_graph_place_learned(graph);
    ddp_graph_place_frozen(graph);
    for (int i = 0; i < graph->tensor_count; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (tensor->kind != TENSOR_ACTIVATION && !tensor->base && tensor->reader_count == 0)
            return ddp_fail(DDP_ERR_INVALID, "model: no operation reads the %s %s",
                            tensor->kind == TENSOR_INPUT       ? "input"
                            : tensor->kind == TENSOR_PARAMETER ? "parameter"
                                                               : "table",
                            tensor->name);
    }
    return DDP_OK;
}

int64_t ddp_graph_padded(const ddp_graph *graph, int64_t classes)
{
    const int64_t granule = classes > MANY_CLASSES ? TILE_CLASSES : ROW_CLASSES;
    return graph->offers.pads_classes ? (classes + granule - 1) / granule * granule : classes;
}

void ddp_graph_pad_parameter(ddp_graph *graph, const ddp_tensor *parameter, int64_t classes)
{
    ddp_tensor_parameter(graph, parameter)->padding =
        parameter->count / classes * (ddp_graph_padded(graph, classes) - classes);
}

/* A number of classes is of any size, and their logits are an operand of two large products. The
 * rule is the same whatever the dtype: graphs of one model share their weights. */
static void pad_classes(ddp_graph *graph, ddp_tensor *output)
{
    const struct node *maker = &graph->nodes[output->producer];
    const struct node *reader = &graph->nodes[output->first_reader];
    const int64_t classes = output->dims[output->dim_count - 1];
    if (output->base || !maker->can_pad || output->reader_count != 1 || !reader->op->takes_pitch ||
        reader->inputs[0] != output)
        return;
    output->pitch = ddp_graph_padded(graph, classes);
    for (int i = 1; i < maker->input_count; i++) {
        const ddp_tensor *tensor = maker->inputs[i] ? ddp_tensor_base(maker->inputs[i]) : NULL;
        if (tensor && ddp_tensor_is_parameter(tensor))
            ddp_graph_pad_parameter(graph, tensor, classes);
    }
}

enum ddp_status ddp_graph_finish(ddp_graph *graph, ddp_tensor *output, ddp_tensor *loss)
{
    if (graph->status == DDP_OK && (!output || !loss))
        ddp_graph_reject(graph, DDP_ERR_INVALID, "it has no output or no loss");
    const bool is_loss = output == loss && loss && loss->producer >= 0 &&
                         graph->nodes[loss->producer].op->loss_in_backward;
    if (graph->status == DDP_OK &&
        (loss->count != 1 || output->producer < 0 || loss->last_reader >= 0 ||
         (loss->producer <= output->producer && !is_loss)))
        ddp_graph_reject(
            graph, DDP_ERR_INVALID,
            "the loss must be one number, computed after the output and not read by an operation");
    for (int n = 0; graph->status == DDP_OK && n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        if (node->output != loss && node->output->last_reader < 0)
            ddp_graph_reject(graph, DDP_ERR_INVALID,
                             "no operation reads the result of %s (operation %d)", node->op->name,
                             n);
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] && n > output->producer && ddp_tensor_is_parameter(node->inputs[i]))
                ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED,
                                 "%s: a parameter after the output, in the loss", node->op->name);
    }
    if (graph->status != DDP_OK)
        return graph->status;
    if (!is_loss)
        pad_classes(graph, output);
    graph->output = output;
    graph->loss = loss;
    const struct node *last = &graph->nodes[loss->producer];
    const ddp_tensor *labels = last->op->labels > 0 ? last->inputs[last->op->labels] : NULL;
    graph->target_count = !labels ? 0 : graph->objective.kind ? labels->dims[0] : labels->count;
    graph->network_count = output->producer + 1;
    graph->status = lay_out_parameters(graph);
    return graph->status;
}

int64_t ddp_graph_target_count(const ddp_graph *graph)
{
    return graph->target_count;
}

bool ddp_graph_outputs_loss(const ddp_graph *graph)
{
    return graph->loss && graph->loss == graph->output;
}

bool ddp_graph_takes_soft_labels(const ddp_graph *graph)
{
    return graph->nodes[graph->loss->producer].op->takes_soft_labels;
}

bool ddp_graph_is_finished(const ddp_graph *graph)
{
    return graph->network_count > 0;
}

int64_t ddp_graph_output_count(const ddp_graph *graph)
{
    return graph->output->count;
}

int64_t ddp_graph_cache_width(const ddp_graph *graph)
{
    return graph->cache_width;
}

/* SPDX-License-Identifier: MIT
 *
 * Building graphs; see graph.h. */
#include "config.h"

#include "graph/internal.h"

#include "core/log.h"
#include "core/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_graph_create(ddp_graph **graph)
{
    struct ddp_graph *g = ddp_array_alloc(1, sizeof *g);
    if (!g)
        return DDP_ERR_MEMORY;
    *graph = g;
    return DDP_OK;
}

void ddp_graph_destroy(ddp_graph *graph)
{
    if (!graph)
        return;
    for (int i = 0; i < graph->tensor_count; i++) {
        free(graph->tensors[i]->name);
        free(graph->tensors[i]);
    }
    free(graph->tensors);
    free(graph->nodes);
    free(graph->parameters);
    free(graph);
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
    if (dim_count < 1 || dim_count > DDP_TENSOR_DIMS || !count_elements(dim_count, dims, &count))
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "tensor %s has an impossible shape", name);
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
                           .consumer = -1,
                           .index = -1};
    memcpy(tensor->dims, dims, (size_t)dim_count * sizeof *dims);
    graph->tensors[graph->tensor_count++] = tensor;
    return tensor;
}

ddp_tensor *ddp_graph_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype, int dim_count,
                            const int64_t *dims)
{
    ddp_tensor *tensor = add_tensor(graph, name, TENSOR_INPUT, dtype, dim_count, dims);
    if (tensor)
        tensor->index = graph->input_count++;
    return tensor;
}

ddp_tensor *ddp_graph_parameter(ddp_graph *graph, const char *name, int dim_count,
                                const int64_t *dims, enum ddp_init init, int64_t fan_in)
{
    ddp_tensor *tensor = add_tensor(graph, name, TENSOR_PARAMETER, DDP_F32, dim_count, dims);
    if (!tensor || !grow(graph, &graph->parameters, graph->parameter_count,
                         &graph->parameter_capacity, sizeof *graph->parameters))
        return NULL;
    for (int i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i].name, name) == 0)
            return ddp_graph_reject(graph, DDP_ERR_INVALID, "two parameters are called %s", name);
    struct ddp_parameter *parameter = &graph->parameters[graph->parameter_count];
    *parameter = (struct ddp_parameter){.name = tensor->name,
                                        .dim_count = dim_count,
                                        .count = tensor->count,
                                        .offset = -1,
                                        .init = init,
                                        .fan_in = fan_in};
    memcpy(parameter->dims, tensor->dims, sizeof parameter->dims);
    tensor->index = graph->parameter_count++;
    return tensor;
}

ddp_tensor *ddp_graph_add_node(ddp_graph *graph, const struct node *node, int dim_count,
                               const int64_t *dims)
{
    if (graph->status != DDP_OK ||
        !grow(graph, &graph->nodes, graph->node_count, &graph->node_capacity, sizeof *graph->nodes))
        return NULL;
    int number = graph->node_count;
    for (int i = 0; i < node->input_count; i++) {
        ddp_tensor *input = node->inputs[i];
        if (!input)
            continue;
        if (input->graph != graph)
            return ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: %s belongs to another graph",
                                    node->op->name, input->name);
        if (input->consumer >= 0 && input->kind != TENSOR_INPUT)
            return ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED,
                                    "%s: %s is already read by another operation", node->op->name,
                                    input->name);
        input->consumer = number;
    }
    ddp_tensor *output =
        add_tensor(graph, node->op->name, TENSOR_ACTIVATION, DDP_F32, dim_count, dims);
    if (!output)
        return NULL;
    output->producer = number;
    graph->nodes[number] = *node;
    graph->nodes[number].output = output;
    graph->node_count++;
    return output;
}

ddp_tensor *ddp_graph_linear_layer(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out,
                                   bool with_bias, enum ddp_activation activation)
{
    char full[256];
    if (graph->status != DDP_OK || !x)
        return NULL;
    int64_t in = x->dims[x->dim_count - 1];
    snprintf(full, sizeof full, "%s.weight", name);
    ddp_tensor *weight =
        ddp_graph_parameter(graph, full, 2, (int64_t[]){out, in}, DDP_INIT_LINEAR, in);
    ddp_tensor *bias = NULL;
    if (with_bias) {
        snprintf(full, sizeof full, "%s.bias", name);
        bias = ddp_graph_parameter(graph, full, 1, (int64_t[]){out}, DDP_INIT_LINEAR, in);
    }
    return ddp_graph_linear(graph, x, weight, bias, activation);
}

/* Gives parameters their offsets in the order in which backward finishes with them. */
static enum ddp_status lay_out_parameters(ddp_graph *graph)
{
    int64_t offset = DDP_FLAT_ALIGN;
    for (int n = graph->node_count - 1; n >= 0; n--) {
        const struct node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (!node->inputs[i] || node->inputs[i]->kind != TENSOR_PARAMETER)
                continue;
            struct ddp_parameter *parameter = &graph->parameters[node->inputs[i]->index];
            parameter->offset = offset;
            offset += (int64_t)ddp_align_up((size_t)parameter->count, DDP_FLAT_ALIGN);
            graph->element_count += parameter->count;
        }
    }
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].offset < 0)
            return ddp_fail(DDP_ERR_INVALID, "model: no operation reads parameter %s",
                            graph->parameters[i].name);
    graph->flat_count = offset;
    return DDP_OK;
}

enum ddp_status ddp_graph_finish(ddp_graph *graph, ddp_tensor *output, ddp_tensor *loss)
{
    if (graph->status == DDP_OK && (!output || !loss))
        ddp_graph_reject(graph, DDP_ERR_INVALID, "it has no output or no loss");
    if (graph->status == DDP_OK && (loss->count != 1 || output->producer < 0 ||
                                    loss->producer <= output->producer || loss->consumer >= 0))
        ddp_graph_reject(graph, DDP_ERR_INVALID,
                         "the loss must be one number, made after the output and read by nothing");
    for (int n = 0; graph->status == DDP_OK && n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        if (node->output != loss && node->output->consumer < 0)
            ddp_graph_reject(graph, DDP_ERR_INVALID,
                             "nothing reads the result of %s (operation %d)", node->op->name, n);
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] && n > output->producer &&
                node->inputs[i]->kind == TENSOR_PARAMETER)
                ddp_graph_reject(graph, DDP_ERR_UNSUPPORTED,
                                 "%s: a parameter after the output, in the loss", node->op->name);
    }
    if (graph->status != DDP_OK)
        return graph->status;
    graph->output = output;
    graph->loss = loss;
    graph->status = lay_out_parameters(graph);
    return graph->status;
}

int ddp_graph_parameter_count(const ddp_graph *graph)
{
    return graph->parameter_count;
}

const struct ddp_parameter *ddp_graph_parameter_at(const ddp_graph *graph, int index)
{
    return &graph->parameters[index];
}

int64_t ddp_graph_element_count(const ddp_graph *graph)
{
    return graph->element_count;
}

int64_t ddp_graph_flat_count(const ddp_graph *graph)
{
    return graph->flat_count;
}

void ddp_graph_init_parameters(const ddp_graph *graph, struct ddp_rng *rng, float *flat)
{
    memset(flat, 0, (size_t)graph->flat_count * sizeof *flat);
    for (int i = 0; i < graph->parameter_count; i++) {
        const struct ddp_parameter *parameter = &graph->parameters[i];
        float *values = flat + parameter->offset;
        if (parameter->init == DDP_INIT_ONES)
            for (int64_t k = 0; k < parameter->count; k++)
                values[k] = 1.0f;
        else if (parameter->init == DDP_INIT_LINEAR && parameter->dim_count > 1)
            ddp_rng_fill_linear_weight(rng, values, (size_t)parameter->count, parameter->fan_in);
        else if (parameter->init == DDP_INIT_LINEAR)
            ddp_rng_fill_linear_bias(rng, values, (size_t)parameter->count, parameter->fan_in);
    }
}

/* SPDX-License-Identifier: MIT
 *
 * How many parameters a graph has, what they begin as, and where those lie that are frozen; see
 * graph.h. */
#include "config.h"

#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"
#include "graph/internal.h"

#include <stdlib.h>
#include <string.h>

/* --- how many --------------------------------------------------------------------------------- */

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

/* --- frozen ----------------------------------------------------------------------------------- */

/* Vectors are small, and what reads them takes float32; so do rows that are not whole blocks. */
enum ddp_dtype ddp_graph_frozen_dtype(enum ddp_dtype dtype, int dim_count, const int64_t *dims)
{
    const struct ddp_block *block = ddp_block_of(dtype);
    return dim_count != 2 || (block && !block->flat && dims[1] % block->values) ? DDP_F32 : dtype;
}

void ddp_graph_begin_frozen(ddp_graph *graph, enum ddp_dtype dtype)
{
    graph->freezes = true;
    graph->frozen_dtype = dtype;
}

void ddp_graph_end_frozen(ddp_graph *graph)
{
    graph->freezes = false;
}

size_t ddp_frozen_bytes(const struct ddp_parameter *frozen)
{
    return ddp_values_bytes(frozen->dtype, frozen->count + frozen->padding);
}

static void place(ddp_graph *graph, bool f32)
{
    for (int i = 0; i < graph->frozen_count; i++) {
        struct ddp_parameter *frozen = &graph->frozen[i];
        if ((frozen->dtype == DDP_F32) != f32)
            continue;
        frozen->place = graph->frozen_bytes;
        /* copies of half the size are aligned too */
        graph->frozen_bytes += ddp_align_up(ddp_frozen_bytes(frozen), 2 * DDP_CACHE_LINE);
    }
}

void ddp_graph_place_frozen(ddp_graph *graph)
{
    graph->frozen_bytes = 0;
    place(graph, true);
    graph->frozen_f32_bytes = graph->frozen_bytes;
    place(graph, false);
}

int ddp_graph_frozen_count(const ddp_graph *graph)
{
    return graph->frozen_count;
}

const struct ddp_parameter *ddp_graph_frozen_at(const ddp_graph *graph, int index)
{
    return &graph->frozen[index];
}

int64_t ddp_graph_frozen_element_count(const ddp_graph *graph)
{
    int64_t count = 0;
    for (int i = 0; i < graph->frozen_count; i++)
        count += graph->frozen[i].count;
    return count;
}

size_t ddp_graph_frozen_bytes(const ddp_graph *graph)
{
    return graph->frozen_bytes;
}

size_t ddp_graph_frozen_f32_bytes(const ddp_graph *graph)
{
    return graph->frozen_f32_bytes;
}

bool ddp_graph_reads_frozen(const ddp_graph *graph, int index)
{
    for (int i = 0; i < graph->tensor_count; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (tensor->kind == TENSOR_FROZEN && tensor->index == index && tensor->reader_count > 0)
            return true;
    }
    return false;
}

/* --- held ------------------------------------------------------------------------------------- */

void ddp_graph_begin_held(ddp_graph *graph)
{
    graph->holds = true;
}

void ddp_graph_end_held(ddp_graph *graph)
{
    graph->holds = false;
}

int64_t ddp_graph_learned_end(const ddp_graph *graph)
{
    int64_t end = graph->flat_count;
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].held && graph->parameters[i].offset < end)
            end = graph->parameters[i].offset;
    return end;
}

int64_t ddp_graph_held_count(const ddp_graph *graph)
{
    int64_t count = 0;
    for (int i = 0; i < graph->parameter_count; i++)
        count += graph->parameters[i].held ? graph->parameters[i].count : 0;
    return count;
}

/* --- both ------------------------------------------------------------------------------------- */

int ddp_graph_place_count(const ddp_graph *graph)
{
    return graph->parameter_count + graph->frozen_count;
}

struct ddp_parameter_place ddp_graph_place_at(const ddp_graph *graph, int index, float *flat,
                                              void *frozen)
{
    int left = index;
    for (int i = 0; i < graph->tensor_count; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (tensor->base || !ddp_tensor_is_parameter(tensor) || left-- > 0)
            continue;
        const struct ddp_parameter *parameter = ddp_tensor_parameter(graph, tensor);
        void *memory = !parameter->frozen ? (void *)(flat + parameter->offset)
                       : frozen           ? (void *)((char *)frozen + parameter->place)
                                          : NULL;
        return (struct ddp_parameter_place){parameter, memory};
    }
    return (struct ddp_parameter_place){NULL, NULL};
}

static void fill(const struct ddp_parameter *parameter, struct ddp_rng *rng, float *values)
{
    const size_t count = (size_t)parameter->count, fan_in = (size_t)parameter->init.fan_in;
    switch (parameter->init.kind) {
    case DDP_INIT_ZEROS:
        break;
    case DDP_INIT_ONES:
        for (size_t k = 0; k < count; k++)
            values[k] = 1.0f;
        break;
    case DDP_INIT_LINEAR:
        if (parameter->dim_count > 1)
            ddp_rng_fill_linear_weight(rng, values, count, fan_in);
        else
            ddp_rng_fill_linear_bias(rng, values, count, fan_in);
        break;
    case DDP_INIT_NORMAL:
        ddp_rng_fill_normal(rng, values, count, 0.0, parameter->init.std);
        break;
    }
}

/* The generator makes float32. */
static enum ddp_status fill_packed(const struct ddp_parameter *parameter, struct ddp_rng *rng,
                                   void *values)
{
    const struct ddp_block *block = ddp_block_of(parameter->dtype);
    if (block && !block->pack)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "frozen parameter %s: blocks of %s are read from files, not made",
                        parameter->name, block->name);
    float *drawn = ddp_array_alloc((size_t)parameter->count, sizeof *drawn);
    if (!drawn)
        return DDP_ERR_MEMORY;
    fill(parameter, rng, drawn);
    ddp_values_pack(parameter->dtype, drawn, parameter->count, values);
    free(drawn);
    return DDP_OK;
}

enum ddp_status ddp_graph_init_parameters(const ddp_graph *graph, struct ddp_rng *rng, float *flat,
                                          void *frozen)
{
    enum ddp_status status = DDP_OK;
    memset(flat, 0, (size_t)graph->flat_count * sizeof *flat);
    if (frozen)
        memset(frozen, 0, graph->frozen_bytes);
    const int count = ddp_graph_place_count(graph);
    for (int i = 0; status == DDP_OK && i < count; i++) {
        const struct ddp_parameter_place at = ddp_graph_place_at(graph, i, flat, frozen);
        if (!at.memory)
            continue;
        if (at.parameter->dtype == DDP_F32)
            fill(at.parameter, rng, at.memory);
        else
            status = fill_packed(at.parameter, rng, at.memory);
    }
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * The tensors of a Llama-type model in files: their names, their shapes, and of which
 * parameters of the graph they consist. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "weights/hf_llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF_LAYER 16 /* tensors of a layer at most, and others of the model */

struct list {
    const struct ddp_hf_llama *config;
    struct ddp_hf_llama_tensor *tensors;
    size_t count;
    int64_t layer;
};

static struct ddp_hf_llama_tensor *add(struct list *list, int dim_count, int64_t columns)
{
    struct ddp_hf_llama_tensor *tensor = &list->tensors[list->count++];
    tensor->dim_count = dim_count;
    tensor->dims[1] = dim_count == 2 ? columns : 0;
    return tensor;
}

static void add_part(struct ddp_hf_llama_tensor *tensor, const char *name, int64_t rows)
{
    const int i = tensor->part_count++;
    snprintf(tensor->parts[i].name, sizeof tensor->parts[i].name, "%s", name);
    tensor->parts[i].rows = rows;
    tensor->dims[0] += rows;
}

/* A tensor that is one parameter. */
static struct ddp_hf_llama_tensor *add_one(struct list *list, const char *name, int dim_count,
                                           int64_t rows, int64_t columns)
{
    struct ddp_hf_llama_tensor *tensor = add(list, dim_count, columns);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    add_part(tensor, name, rows);
    return tensor;
}

static const char *name_of(char name[DDP_HF_LLAMA_NAME], const struct list *list,
                           const char *module, const char *suffix)
{
    snprintf(name, DDP_HF_LLAMA_NAME, "model.layers.%d.%s.%s", (int)list->layer, module, suffix);
    return name;
}

static void add_norm(struct list *list, const char *module, int64_t size)
{
    char name[DDP_HF_LLAMA_NAME];
    add_one(list, name_of(name, list, module, "weight"), 1, size, 0);
}

static void add_linear(struct list *list, const char *module, int64_t rows, int64_t columns,
                       bool bias)
{
    char name[DDP_HF_LLAMA_NAME];
    add_one(list, name_of(name, list, module, "weight"), 2, rows, columns)->linear = true;
    if (bias)
        add_one(list, name_of(name, list, module, "bias"), 1, rows, 0);
}

struct part {
    const char *module;
    int64_t rows;
};

/* Several matrices in one tensor. */
static void add_fused(struct list *list, const char *module, const struct part *parts, int count,
                      int64_t columns)
{
    char name[DDP_HF_LLAMA_NAME];
    struct ddp_hf_llama_tensor *tensor = add(list, 2, columns);
    name_of(tensor->name, list, module, "weight");
    tensor->linear = true;
    for (int i = 0; i < count; i++)
        add_part(tensor, name_of(name, list, parts[i].module, "weight"), parts[i].rows);
}

static void add_layer(struct list *list)
{
    const struct ddp_llama *shape = &list->config->shape;
    const int64_t channels = shape->channels, hidden = shape->hidden;
    const int64_t queries = shape->heads * shape->head_size;
    const int64_t keys = shape->kv_heads * shape->head_size;
    const struct part attention[] = {
        {"self_attn.q_proj", queries}, {"self_attn.k_proj", keys}, {"self_attn.v_proj", keys}};
    const struct part gates[] = {{"mlp.gate_proj", hidden}, {"mlp.up_proj", hidden}};
    const bool fused = shape->family == DDP_LLAMA_PHI3;
    add_norm(list, "input_layernorm", channels);
    if (fused)
        add_fused(list, "self_attn.qkv_proj", attention, 3, channels);
    for (int i = 0; !fused && i < 3; i++)
        add_linear(list, attention[i].module, attention[i].rows, channels, shape->qkv_bias);
    add_linear(list, "self_attn.o_proj", channels, queries, shape->o_bias);
    if (shape->qk_norm) {
        add_norm(list, "self_attn.q_norm", shape->head_size);
        add_norm(list, "self_attn.k_norm", shape->head_size);
    }
    add_norm(list, "post_attention_layernorm", channels);
    if (fused)
        add_fused(list, "mlp.gate_up_proj", gates, 2, channels);
    for (int i = 0; !fused && i < 2; i++)
        add_linear(list, gates[i].module, hidden, channels, shape->mlp_bias);
    add_linear(list, "mlp.down_proj", channels, hidden, shape->mlp_bias);
}

enum ddp_status ddp_hf_llama_tensors(const struct ddp_hf_llama *config,
                                     struct ddp_hf_llama_tensor **tensors, size_t *count)
{
    const struct ddp_llama *shape = &config->shape;
    struct list list = {.config = config};
    list.tensors = ddp_array_alloc((size_t)(shape->layers + 1) * OF_LAYER, sizeof *list.tensors);
    if (!list.tensors)
        return DDP_ERR_MEMORY;
    add_one(&list, "model.embed_tokens.weight", 2, config->vocabulary, shape->channels);
    for (; list.layer < shape->layers; list.layer++)
        add_layer(&list);
    add_one(&list, "model.norm.weight", 1, shape->channels, 0);
    if (!shape->tied)
        add_one(&list, "lm_head.weight", 2, config->vocabulary, shape->channels);
    *tensors = list.tensors;
    *count = list.count;
    return DDP_OK;
}

enum ddp_status ddp_hf_llama_count(const struct ddp_hf_llama *config, int64_t rank,
                                   int64_t *parameters, int64_t *adapters)
{
    struct ddp_hf_llama_tensor *tensors;
    size_t count;
    enum ddp_status status = ddp_hf_llama_tensors(config, &tensors, &count);
    if (status != DDP_OK)
        return status;
    *parameters = *adapters = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t *dims = tensors[i].dims;
        *parameters += dims[0] * (tensors[i].dim_count == 2 ? dims[1] : 1);
        if (tensors[i].linear)
            *adapters += rank * (dims[0] + dims[1]);
    }
    free(tensors);
    return DDP_OK;
}

int ddp_hf_llama_linear(const char *name, int64_t *layer)
{
    int number = 0, end = 0;
    if (sscanf(name, "model.layers.%d.%n", &number, &end) != 1 || end == 0)
        return -1;
    *layer = number;
    for (int i = 0; i < DDP_LLAMA_LINEARS; i++) {
        const size_t size = strlen(ddp_llama_linear_names[i]);
        if (strncmp(name + end, ddp_llama_linear_names[i], size) == 0)
            return i;
    }
    return -1;
}

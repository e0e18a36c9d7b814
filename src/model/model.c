/* SPDX-License-Identifier: MIT
 *
 * The table of models. */
#include "config.h"

#include "model/model.h"

#include "core/log.h"
#include "model/llama.h"

#include <string.h>

static const struct ddp_model *const models[] = {
    &ddp_model_mlp,   &ddp_model_cnn,  &ddp_model_resnet,  &ddp_model_gpt2,
    &ddp_model_llama, &ddp_model_bert, &ddp_model_article, NULL,
};

const struct ddp_model *ddp_model_default(enum ddp_model_data data)
{
    return data == DDP_ON_TOKENS   ? &ddp_model_gpt2
           : data == DDP_ON_IMAGES ? &ddp_model_resnet
                                   : &ddp_model_mlp;
}

const struct ddp_model *ddp_model_on(const struct ddp_model *model, enum ddp_model_data data)
{
    if (data == DDP_ON_TABLE && model == &ddp_model_mlp)
        return &ddp_model_mlp_table;
    return data == DDP_ON_IMAGES && model == &ddp_model_resnet ? &ddp_model_resnet_images : model;
}

bool ddp_model_same(const struct ddp_model *a, const struct ddp_model *b)
{
    return a == b || (a->build == b->build && strcmp(a->name, b->name) == 0);
}

enum ddp_status ddp_model_check_length(int64_t length, int64_t context)
{
    return length > context
               ? ddp_fail(DDP_ERR_INVALID,
                          "--seq-len %lld is more than the model's context of %lld tokens",
                          (long long)length, (long long)context)
               : DDP_OK;
}

bool ddp_model_take(const struct ddp_model *model, struct ddp_model_config *config,
                    const struct ddp_model_config *loaded, bool own_dropout, bool own_lora)
{
    if (model->take) {
        model->take(config, loaded, own_dropout);
        return true;
    }
    if (!model->lora)
        return false;
    const struct ddp_lora lora = *model->lora(&config->own);
    config->own = loaded->own;
    if (own_lora)
        *model->lora(&config->own) = lora;
    config->described = true;
    return true;
}

int64_t ddp_model_adapters(const struct ddp_model *model, const struct ddp_model_config *config)
{
    union ddp_model_own own = config->own;
    return model->lora ? model->lora(&own)->rank : 0;
}

const struct ddp_model *ddp_model_at(int index)
{
    return models[index];
}

int ddp_model_options_of(int index)
{
    int first = 0;
    while (models[index]->options && models[first]->options != models[index]->options)
        first++;
    return models[index]->options ? first : index;
}

const struct ddp_model *ddp_model_find(const char *name)
{
    for (int i = 0; models[i]; i++)
        if (strcmp(models[i]->name, name) == 0)
            return models[i];
    return NULL;
}

enum ddp_status ddp_model_configure(const struct ddp_model *model, struct ddp_model_config *config)
{
    if (config->size && !model->default_size)
        return ddp_fail(DDP_ERR_INVALID, "--size: the model %s has one size only", model->name);
    if (!config->size && !config->described)
        config->size = model->default_size;
    return model->check ? model->check(config) : DDP_OK;
}

enum ddp_status ddp_model_build(ddp_graph **graph, const struct ddp_model *model,
                                const struct ddp_model_config *config)
{
    ddp_graph *g;
    enum ddp_status status = ddp_graph_create(&g);
    if (status != DDP_OK)
        return status;
    char description[DDP_MODEL_TEXT];
    ddp_model_describe(model, config, description);
    ddp_graph_set_description(g, description);
    ddp_graph_set_compute(g, config->compute);
    ddp_graph_set_activations(g, config->activations);
    ddp_graph_set_offers(g, &config->offers);
    ddp_graph_set_recompute(g, config->recompute);
    status = model->build(g, config);
    if (status != DDP_OK) {
        ddp_graph_destroy(g);
        return status;
    }
    *graph = g;
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * The table of models. */
#include "config.h"

#include "model/model.h"

#include <string.h>

static const struct ddp_model *const models[] = {
    &ddp_model_mlp,
    &ddp_model_article,
    NULL,
};

const struct ddp_model *ddp_model_at(int index)
{
    return models[index];
}

const struct ddp_model *ddp_model_find(const char *name)
{
    for (int i = 0; models[i]; i++)
        if (strcmp(models[i]->name, name) == 0)
            return models[i];
    return NULL;
}

enum ddp_status ddp_model_build(ddp_graph **graph, const struct ddp_model *model,
                                const struct ddp_model_config *config)
{
    ddp_graph *g;
    enum ddp_status status = ddp_graph_create(&g);
    if (status != DDP_OK)
        return status;
    status = model->build(g, config);
    if (status != DDP_OK) {
        ddp_graph_destroy(g);
        return status;
    }
    *graph = g;
    return DDP_OK;
}

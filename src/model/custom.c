/* SPDX-License-Identifier: MIT
 *
 * The model of a program that uses the library: ddp_train_set_model(). */
#include "config.h"

#include "model/model.h"

struct custom {
    ddp_model_builder *builder;
    void *arg;
};

void ddp_model_custom_set(union ddp_model_own *own, ddp_model_builder *builder, void *arg)
{
    *(struct custom *)(void *)own = (struct custom){builder, arg};
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct custom *custom = (const void *)&config->own;
    struct ddp_model_shape shape = {
        .batch = config->batch,
        .dtype = config->x_dtype,
        .dim_count = config->dim_count,
        .classes = config->classes,
        .label_count = config->label_count,
    };
    for (int i = 0; i < config->dim_count; i++)
        shape.dims[i] = config->dims[i];
    return custom->builder(graph, &shape, custom->arg);
}

const struct ddp_model ddp_model_custom = {
    .name = "custom",
    .dataset = "idx",
    .rate = 0.1,
    .schedule = DDP_SCHEDULE_LINEAR,
    .build = build,
};

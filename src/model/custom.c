/* SPDX-License-Identifier: MIT
 *
 * The model of a program that uses the library: ddp_train_set_model(). */
#include "config.h"

#include "model/model.h"

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    struct ddp_model_shape shape = {
        .batch = config->batch,
        .dtype = config->x_dtype,
        .dim_count = config->dim_count,
        .classes = config->classes,
        .label_count = config->label_count,
    };
    for (int i = 0; i < config->dim_count; i++)
        shape.dims[i] = config->dims[i];
    return config->builder(graph, &shape, config->builder_arg);
}

const struct ddp_model ddp_model_custom = {
    .name = "custom",
    .dataset = "idx",
    .rate = 0.1,
    .schedule = DDP_SCHEDULE_LINEAR,
    .build = build,
};

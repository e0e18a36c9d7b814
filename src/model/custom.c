/* SPDX-License-Identifier: MIT
 *
 * The model of a program that uses the library: ddp_train_set_model(). */
#include "config.h"

#include "model/model.h"

#include "core/log.h"

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
        .label_dtype = config->label_dtype,
    };
    for (int i = 0; i < config->dim_count; i++)
        shape.dims[i] = config->dims[i];
    /* What a mode and an evaluation bind to a graph is as large as the data say. */
    ddp_graph_expect_input(graph, 0, "samples", shape.dtype, shape.batch, config->features);
    if (shape.label_count > 0)
        ddp_graph_expect_input(graph, 1, "labels", shape.label_dtype, shape.batch,
                               shape.label_count);
    enum ddp_status status = custom->builder(graph, &shape, custom->arg);
    if (status == DDP_OK && !ddp_graph_is_finished(graph))
        return ddp_fail(DDP_ERR_INVALID, "model: the program's builder has returned without "
                                         "ddp_graph_finish()");
    return status;
}

const struct ddp_model ddp_model_custom = {
    .name = "custom",
    .dataset = "idx",
    .rate = 0.1,
    .schedule = DDP_SCHEDULE_LINEAR,
    .build = build,
};

/* SPDX-License-Identifier: MIT
 *
 * The article's model: one linear unit without bias whose weights start at 1; the loss is the sum
 * of its outputs, so the gradient is the sum of the samples and every mode's arithmetic can be
 * followed by hand. */
#include "config.h"

#include "model/model.h"

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    ddp_tensor *x =
        ddp_graph_input(graph, "samples", DDP_F32, 2, (int64_t[]){config->batch, config->features});
    ddp_tensor *weight = ddp_graph_parameter(graph, "weight", 2, (int64_t[]){1, config->features},
                                             (struct ddp_init){.kind = DDP_INIT_ONES});
    ddp_tensor *output = ddp_graph_linear(graph, x, weight, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, output, ddp_graph_sum(graph, output));
}

const struct ddp_model ddp_model_article = {
    .name = "article",
    .dataset = "article",
    .rate = 0.01,
    .schedule = DDP_SCHEDULE_CONSTANT,
    .build = build,
};

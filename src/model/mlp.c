/* SPDX-License-Identifier: MIT
 *
 * A multi-layer perceptron: linear layers with ReLU between them, softmax cross-entropy at the end.
 * The layers are fc1, fc2, ..., initialised as torch.nn.Linear in that order. */
#include "config.h"

#include "model/model.h"

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    ddp_tensor *x =
        ddp_graph_input(graph, "samples", DDP_F32, 2, (int64_t[]){config->batch, config->features});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){config->batch});
    for (int i = 0; i <= config->hidden_count; i++) {
        const bool last = i == config->hidden_count;
        char name[16];
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = ddp_graph_linear_layer(graph, name, x, last ? config->classes : config->hidden[i], true,
                                   last ? DDP_ACTIVATION_NONE : DDP_ACTIVATION_RELU);
    }
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

const struct ddp_model ddp_model_mlp = {
    .name = "mlp",
    .dataset = "idx",
    .labels = true,
    .rate = 0.1,
    .schedule = DDP_SCHEDULE_LINEAR,
    .build = build,
};

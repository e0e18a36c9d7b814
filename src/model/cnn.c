/* SPDX-License-Identifier: MIT
 *
 * A small convolutional network of LeNet's class for small images: two convolutions of 3 x 3 with
 * ReLU and max pooling, two linear layers. Layers are initialised as torch.nn.Conv2d and Linear in
 * order, and the flattened image is PyTorch's (C,H,W). */
#include "config.h"

#include "model/model.h"

#include "core/log.h"

static enum ddp_status check(struct ddp_model_config *config)
{
    if (config->dim_count != 3 || config->dims[1] < 4 || config->dims[2] < 4)
        return ddp_fail(DDP_ERR_INVALID,
                        "--model cnn: the samples are not images of 4 x 4 or more");
    return DDP_OK;
}

static ddp_tensor *convolution(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out)
{
    const struct ddp_conv2d_options options = {.out = out,
                                               .kernel = 3,
                                               .padding = 1,
                                               .with_bias = true,
                                               .activation = DDP_ACTIVATION_RELU};
    ddp_graph_begin_block(graph);
    x = ddp_graph_conv2d_layer(graph, name, x, &options);
    x = ddp_graph_max_pool2d(graph, x, 2, 2, 0);
    ddp_graph_end_block(graph);
    return x;
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const int64_t shape[] = {config->batch, config->dims[0], config->dims[1], config->dims[2]};
    ddp_tensor *x = ddp_graph_input(graph, "samples", DDP_F32, 4, shape);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, &config->batch);
    x = ddp_graph_channels_last(graph, x);
    x = convolution(graph, "conv1", x, 32);
    x = convolution(graph, "conv2", x, 64);
    x = ddp_graph_channels_first(graph, x);
    x = ddp_graph_reshape(graph, x, 2, (int64_t[]){config->batch, -1});
    x = ddp_graph_linear_layer(graph, "fc1", x, 128, true, DDP_ACTIVATION_RELU);
    x = ddp_graph_linear_layer(graph, "fc2", x, config->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

const struct ddp_model ddp_model_cnn = {
    .name = "cnn",
    .dataset = "idx",
    .x_dtype = DDP_F32,
    .labels = true,
    .sample_dim_count = 3,
    .sample_dims = {1, 28, 28},
    .sample_classes = 10,
    .rate = 0.05,
    .schedule = DDP_SCHEDULE_LINEAR,
    .check = check,
    .build = build,
};

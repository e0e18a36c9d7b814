/* SPDX-License-Identifier: MIT
 *
 * Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2016): those for
 * CIFAR with three stages of 16, 32 and 64 channels (20, 32, 44, 56 and 110 layers), and ResNet-18,
 * 34 and, of bottlenecks, 50 with four stages of 64 to 512, whose first layer is that for small
 * images (3 x 3, no pooling) when they have at most 64 pixels a side. A shortcut that changes shape
 * is a 1 x 1 convolution. Parameters are called, ordered and initialised as a PyTorch module of
 * torchvision's names would. */
#include "config.h"

#include "model/resnet.h"

#include "core/log.h"
#include "core/parse.h"

#include <string.h>

#define STAGES_MAX 4

struct shape {
    int depth;
    bool bottleneck;
    int stages;
    int64_t channels; /* of the first stage; each next has twice as many */
    int blocks[STAGES_MAX];
};

static const struct shape shapes[] = {
    {20, false, 3, 16, {3, 3, 3}},     {32, false, 3, 16, {5, 5, 5}},
    {44, false, 3, 16, {7, 7, 7}},     {56, false, 3, 16, {9, 9, 9}},
    {110, false, 3, 16, {18, 18, 18}}, {18, false, 4, 64, {2, 2, 2, 2}},
    {34, false, 4, 64, {3, 4, 6, 3}},  {50, true, 4, 64, {3, 4, 6, 3}},
};

static const struct shape *find_shape(int64_t depth)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].depth == depth)
            return &shapes[i];
    return NULL;
}

static const struct ddp_model_field fields[] = {
    {"layers", DDP_FIELD_INT, offsetof(struct ddp_resnet, layers), 0, 1000, 0, 0},
    {"first", DDP_FIELD_INT, offsetof(struct ddp_resnet, first), 0, 7, 0, 0},
    {0},
};

/* Images that four stages, or a first layer with pooling, are for. */
static bool is_large(const struct ddp_model_config *config)
{
    return config->dims[1] > 64 || config->dims[2] > 64;
}

static enum ddp_status check(struct ddp_model_config *config)
{
    struct ddp_resnet *resnet = ddp_resnet_of(&config->own);
    if (config->size && strcmp(config->size, "auto") == 0)
        resnet->layers = is_large(config) ? 18 : 20;
    else if (config->size && !ddp_parse_int64(config->size, 1, 1000, &resnet->layers))
        resnet->layers = 0;
    if (!find_shape(resnet->layers))
        return ddp_fail(
            DDP_ERR_INVALID,
            "--size %s: resnet comes with 20, 32, 44, 56 or 110 layers (for CIFAR), 18, "
            "34 or 50, or auto: 20 for images of at most 64 pixels, else 18",
            config->size ? config->size : "of the weights that are loaded");
    if (config->dim_count != 3 || config->dims[1] < 8 || config->dims[2] < 8)
        return ddp_fail(DDP_ERR_INVALID,
                        "--model resnet: the samples are not images of 8 x 8 or more");
    return DDP_OK;
}

static ddp_tensor *convolution(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out,
                               int64_t kernel, int64_t stride)
{
    const struct ddp_conv2d_options options = {
        .out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2};
    return ddp_graph_conv2d_layer(graph, name, x, &options);
}

/* A convolution with its norm, "conv2" with "bn2", or a shortcut's. */
static ddp_tensor *layer(ddp_graph *graph, const char *prefix, const char *const names[2],
                         ddp_tensor *x, int64_t out, int64_t kernel, int64_t stride,
                         ddp_tensor *residual, enum ddp_activation activation)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", prefix, names[0]);
    x = convolution(graph, name, x, out, kernel, stride);
    snprintf(name, sizeof name, "%s.%s", prefix, names[1]);
    return ddp_graph_batch_norm_layer(graph, name, x, residual, activation);
}

/* x -> relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), or with a third layer of four times the
 * channels and a stride in the second, as torchvision has it. */
static ddp_tensor *block(ddp_graph *graph, const char *prefix, ddp_tensor *x, int64_t channels,
                         int64_t stride, bool bottleneck)
{
    static const char *const names[][2] = {
        {"conv1", "bn1"}, {"conv2", "bn2"}, {"conv3", "bn3"}, {"downsample.0", "downsample.1"}};
    const int last = bottleneck ? 2 : 1;
    const int64_t out = bottleneck ? 4 * channels : channels;
    char name[64];
    const bool same_shape = stride == 1 && ddp_graph_dims(x)[3] == out;
    ddp_tensor *y = x, *shortcut = x;
    for (int i = 0; i < last; i++)
        y = layer(graph, prefix, names[i], y, channels, bottleneck && i == 0 ? 1 : 3,
                  i == last - 1 ? stride : 1, NULL, DDP_ACTIVATION_RELU);
    snprintf(name, sizeof name, "%s.%s", prefix, names[last][0]);
    y = convolution(graph, name, y, out, bottleneck ? 1 : 3, 1);
    if (!same_shape)
        shortcut = layer(graph, prefix, names[3], x, out, 1, stride, NULL, DDP_ACTIVATION_NONE);
    snprintf(name, sizeof name, "%s.%s", prefix, names[last][1]);
    return ddp_graph_batch_norm_layer(graph, name, y, shortcut, DDP_ACTIVATION_RELU);
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct ddp_resnet *resnet = (const void *)&config->own;
    const struct shape *shape = find_shape(resnet->layers);
    const int64_t dims[] = {config->batch, config->dims[0], config->dims[1], config->dims[2]};
    const bool large = resnet->first ? resnet->first == 7 : shape->stages == 4 && is_large(config);
    ddp_tensor *x = ddp_graph_input(graph, "samples", DDP_F32, 4, dims);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, &config->batch);
    x = ddp_graph_channels_last(graph, x);
    if (config->head_only)
        ddp_graph_begin_held(graph);
    x = convolution(graph, "conv1", x, shape->channels, large ? 7 : 3, large ? 2 : 1);
    x = ddp_graph_batch_norm_layer(graph, "bn1", x, NULL, DDP_ACTIVATION_RELU);
    if (large)
        x = ddp_graph_max_pool2d(graph, x, 3, 2, 1);
    for (int stage = 0; stage < shape->stages; stage++)
        for (int i = 0; i < shape->blocks[stage]; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d", stage + 1, i);
            ddp_graph_begin_block(graph);
            x = block(graph, prefix, x, shape->channels << stage, stage > 0 && i == 0 ? 2 : 1,
                      shape->bottleneck);
            ddp_graph_end_block(graph);
        }
    x = ddp_graph_global_avg_pool2d(graph, x);
    ddp_graph_end_held(graph);
    x = ddp_graph_linear_layer(graph, "fc", x, config->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

const struct ddp_model ddp_model_resnet = {
    .name = "resnet",
    .dataset = "cifar",
    .x_dtype = DDP_F32,
    .labels = true,
    .holds = true,
    .sample_dim_count = 3,
    .sample_dims = {3, 32, 32},
    .sample_classes = 10,
    .default_size = "20",
    .rate = 0.1,
    .schedule = DDP_SCHEDULE_COSINE,
    .weight_decay = 1e-4,
    .fields = fields,
    .check = check,
    .build = build,
};

/* What learns on a few hundred pictures, without a look at rates. */
const struct ddp_model ddp_model_resnet_images = {
    .name = "resnet",
    .dataset = "images",
    .x_dtype = DDP_F32,
    .labels = true,
    .holds = true,
    .batch = 32,
    .batch_least = 8,
    .epochs = 20,
    .epochs_most = 100,
    .default_size = "auto",
    .rate = 3e-4,
    .schedule = DDP_SCHEDULE_COSINE,
    .optimizer = "adamw",
    .fields = fields,
    .check = check,
    .build = build,
};

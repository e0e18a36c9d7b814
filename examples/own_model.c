/* SPDX-License-Identifier: MIT
 *
 * A model of one's own, trained like any other: a small network of convolutions with a residual
 * connection, on the images that --data names. It takes all options of trainer(1) and gives the
 * same weights in every mode:
 *
 *   cc own_model.c -o own_model $(pkg-config --cflags --libs libddp)
 *   ./own_model --data /usr/share/datasets/fashion-mnist --epochs 2
 *   ddprun -n 2 ./own_model --data /usr/share/datasets/fashion-mnist --epochs 2
 *   ./own_model --data PHOTOS --image-size 64 --mode dp --replicas 2 --checkpoint DIR
 */
#include <ddp.h>

struct settings {
    int64_t channels;
};

/* (B,H,W,C): a convolution with batch norm and ReLU. */
static ddp_tensor *convolution(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t channels,
                               int64_t stride)
{
    const struct ddp_conv2d_options options = {channels, 3, stride, 1, false, DDP_ACTIVATION_NONE};
    char norm[32];
    snprintf(norm, sizeof norm, "%s.norm", name);
    x = ddp_graph_conv2d_layer(graph, name, x, &options);
    return ddp_graph_batch_norm_layer(graph, norm, x, NULL, DDP_ACTIVATION_RELU);
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const struct settings *settings = (const struct settings *)arg;
    const int64_t dims[] = {shape->batch, shape->dims[0], shape->dims[1], shape->dims[2]};
    ddp_tensor *x = ddp_graph_input(graph, "images", DDP_F32, 4, dims);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, &shape->batch);

    x = ddp_graph_channels_last(graph, x);
    x = convolution(graph, "stem", x, settings->channels, 2);
    ddp_tensor *y = convolution(graph, "block1", x, settings->channels, 1);
    x = ddp_graph_add(graph, x, convolution(graph, "block2", y, settings->channels, 1));
    x = convolution(graph, "down", x, 2 * settings->channels, 2);
    x = ddp_graph_global_avg_pool2d(graph, x);
    x = ddp_graph_linear_layer(graph, "head", x, shape->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

int main(int argc, char **argv)
{
    struct settings settings = {16}; /* channels */
    ddp_train *train = NULL;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK) {
        ddp_train_set_model(train, "own", build, &settings);
        status = ddp_train_parse(train, argc, argv);
    }
    if (status == DDP_OK)
        status = ddp_train_run(train, stdout);
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}

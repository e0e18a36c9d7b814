/* SPDX-License-Identifier: MIT
 *
 * An operation of one's own: y = x sigmoid(b x), a Swish with a slope b that each channel learns.
 * It takes all options of trainer(1):
 *
 *   cc own_op.c -o own_op $(pkg-config --cflags --libs libddp) -lm
 *   ./own_op --data /usr/share/datasets/fashion-mnist --epochs 1
 *   ddprun -n 2 ./own_op --data /usr/share/datasets/fashion-mnist --epochs 1
 *   ./own_op --data /usr/share/datasets/fashion-mnist --epochs 1 --mode dp --replicas 2
 */
#include <ddp.h>
#include <math.h>

enum { X, SLOPE };

static enum ddp_status swish_forward(void *arg, const struct ddp_custom_pass *pass)
{
    const float *x = (const float *)pass->inputs[X].values;
    const float *slope = (const float *)pass->inputs[SLOPE].values;
    const int64_t channels = pass->inputs[SLOPE].count;
    (void)arg;
    for (int64_t i = 0; i < pass->output_count; i++)
        pass->output[i] = x[i] / (1 + expf(-slope[i % channels] * x[i]));
    return DDP_OK;
}

/* Gradients come as zeros; where they are NULL, none is needed. */
static enum ddp_status swish_backward(void *arg, const struct ddp_custom_pass *pass)
{
    const float *x = (const float *)pass->inputs[X].values;
    const float *slope = (const float *)pass->inputs[SLOPE].values;
    const float *dy = pass->output_gradients;
    float *dx = pass->inputs[X].gradients, *dslope = pass->inputs[SLOPE].gradients;
    const int64_t channels = pass->inputs[SLOPE].count;
    (void)arg;
    for (int64_t i = 0; i < pass->output_count; i++) {
        const int64_t c = i % channels;
        const float s = 1 / (1 + expf(-slope[c] * x[i]));
        if (dx)
            dx[i] = dy[i] * (s + slope[c] * x[i] * s * (1 - s));
        if (dslope)
            dslope[c] += dy[i] * x[i] * x[i] * s * (1 - s);
    }
    return DDP_OK;
}

static ddp_tensor *swish(ddp_graph *graph, const char *name, ddp_tensor *x)
{
    const struct ddp_init ones = {DDP_INIT_ONES, 0, 0};
    struct ddp_custom_op op = DDP_CUSTOM_OP_INIT;
    op.name = "swish";
    op.input_count = 2;
    op.inputs[X] = x;
    op.inputs[SLOPE] = ddp_graph_parameter(graph, name, 1, ddp_graph_dims(x) + 1, ones);
    op.dim_count = 2; /* that of x: samples and channels */
    op.dims[0] = ddp_graph_dims(x)[0];
    op.dims[1] = ddp_graph_dims(x)[1];
    op.forward = swish_forward;
    op.backward = swish_backward;
    return ddp_graph_custom(graph, &op);
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const int64_t flat[] = {shape->batch, -1};
    int64_t dims[1 + DDP_TENSOR_DIMS] = {shape->batch};
    (void)arg;
    for (int i = 0; i < shape->dim_count; i++)
        dims[1 + i] = shape->dims[i];
    ddp_tensor *x = ddp_graph_input(graph, "x", shape->dtype, 1 + shape->dim_count, dims);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, dims);
    x = ddp_graph_reshape(graph, x, 2, flat);
    x = ddp_graph_linear_layer(graph, "hidden", x, 32, true, DDP_ACTIVATION_NONE);
    x = swish(graph, "slope", x);
    x = ddp_graph_linear_layer(graph, "out", x, shape->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc, argv);
    if (status == DDP_OK) {
        ddp_train_set_model(train, "swish", build, NULL);
        status = ddp_train_run(train, stdout);
    }
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}

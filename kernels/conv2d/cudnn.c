/* SPDX-License-Identifier: MIT
 *
 * Convolution by cuDNN; see cudnn.h. Images are its channels-last tensors as they are. The weight
 * is packed to bf16 with its channels last. Its gradient comes back in that order and rounded to
 * bf16, as torch.autocast has it: engines that leave float32 there are few, and do not split the
 * long sums that these are.
 *
 * Kept beside cuda.c until "bench/gpu --only convolution" has run on a GPU; the loser in bf16 is
 * then deleted, in the change that commits the figures. */
#include "config.h"

#include "kernels/conv2d/cudnn.h"

#include "kernels/conv2d/axis.h"
#include "kernels/conv2d/cuda.h"
#include "kernels/cuda/cudnn_graph.h"

enum { FORWARD = 16, DX, DWEIGHT }; /* first word of a key */
enum {
    KEY_WHAT,
    KEY_BATCH,
    KEY_HEIGHT,
    KEY_WIDTH,
    KEY_IN,
    KEY_OUT,
    KEY_KERNEL_HEIGHT,
    KEY_KERNEL_WIDTH,
    KEY_STRIDE,
    KEY_PADDING,
    KEY_DILATION,
    KEY_BIAS,
    KEY_RELU,
    KEY_ADD
};

/* Of all graphs. */
enum tensor { IMAGE = 1, WEIGHT, RESULT, BIAS };

/* --- shapes --------------------------------------------------------------------------------- */

static int64_t rows_of(const struct ddp_conv2d_shape *shape)
{
    return ddp_window_count(shape->height, shape->kernel_height, shape->stride, shape->padding,
                            shape->dilation);
}

static int64_t columns_of(const struct ddp_conv2d_shape *shape)
{
    return ddp_window_count(shape->width, shape->kernel_width, shape->stride, shape->padding,
                            shape->dilation);
}

/* (a,b,c,d) with b innermost in memory, as images and packed weights have their channels. */
static struct ddp_cudnn_shape channels_last(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct ddp_cudnn_shape){{a, b, c, d}, {b * c * d, 1, b * d, b}};
}

static struct ddp_conv2d_shape shape_of(const struct ddp_cudnn_key *key)
{
    return (struct ddp_conv2d_shape){
        .batch = key->words[KEY_BATCH],
        .height = key->words[KEY_HEIGHT],
        .width = key->words[KEY_WIDTH],
        .in = key->words[KEY_IN],
        .out = key->words[KEY_OUT],
        .kernel_height = key->words[KEY_KERNEL_HEIGHT],
        .kernel_width = key->words[KEY_KERNEL_WIDTH],
        .stride = key->words[KEY_STRIDE],
        .padding = key->words[KEY_PADDING],
        .dilation = key->words[KEY_DILATION],
    };
}

static struct ddp_cudnn_key key_of(int64_t what, const struct ddp_conv2d_shape *shape)
{
    return (struct ddp_cudnn_key){{
        [KEY_WHAT] = what,
        [KEY_BATCH] = shape->batch,
        [KEY_HEIGHT] = shape->height,
        [KEY_WIDTH] = shape->width,
        [KEY_IN] = shape->in,
        [KEY_OUT] = shape->out,
        [KEY_KERNEL_HEIGHT] = shape->kernel_height,
        [KEY_KERNEL_WIDTH] = shape->kernel_width,
        [KEY_STRIDE] = shape->stride,
        [KEY_PADDING] = shape->padding,
        [KEY_DILATION] = shape->dilation,
    }};
}

/* --- graphs --------------------------------------------------------------------------------- */

/* IMAGE, WEIGHT and RESULT. */
static struct ddp_cudnn_convolution tensors_of(struct ddp_cudnn_graph *graph,
                                               const struct ddp_conv2d_shape *shape)
{
    const struct ddp_cudnn_shape shapes[] = {
        channels_last(shape->batch, shape->in, shape->height, shape->width),
        channels_last(shape->out, shape->in, shape->kernel_height, shape->kernel_width),
        channels_last(shape->batch, shape->out, rows_of(shape), columns_of(shape)),
    };
    const struct ddp_cudnn_convolution convolution = {
        .stride = shape->stride,
        .padding = shape->padding,
        .dilation = shape->dilation,
        .image = ddp_cudnn_tensor(graph, &shapes[0], CUDNN_DATA_BFLOAT16, DDP_CUDNN_MEMORY),
        .weight = ddp_cudnn_tensor(graph, &shapes[1], CUDNN_DATA_BFLOAT16, DDP_CUDNN_MEMORY),
        .result = ddp_cudnn_tensor(graph, &shapes[2], CUDNN_DATA_BFLOAT16, DDP_CUDNN_MEMORY),
    };
    return convolution;
}

static void describe_forward(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_key *key)
{
    const struct ddp_conv2d_shape shape = shape_of(key);
    const bool bias = key->words[KEY_BIAS], relu = key->words[KEY_RELU], more = bias || relu;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    struct ddp_cudnn_convolution convolution = tensors_of(graph, &shape);
    const struct ddp_cudnn_shape y = graph->tensors[RESULT].shape;
    const struct ddp_cudnn_shape row = channels_last(1, shape.out, 1, 1);
    int sums = RESULT;
    if (bias)
        ddp_cudnn_tensor(graph, &row, f32, DDP_CUDNN_MEMORY);
    if (more)
        sums = convolution.result = ddp_cudnn_tensor(graph, &y, f32, DDP_CUDNN_VIRTUAL);
    ddp_cudnn_convolve(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, &convolution);
    if (bias) {
        const int to = relu ? ddp_cudnn_tensor(graph, &y, f32, DDP_CUDNN_VIRTUAL) : RESULT;
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, f32, sums, BIAS, 0, to);
        sums = to;
    }
    if (relu)
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, f32, sums, 0, 0, RESULT);
}

static void describe_dx(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_key *key)
{
    const struct ddp_conv2d_shape shape = shape_of(key);
    struct ddp_cudnn_convolution convolution = tensors_of(graph, &shape);
    convolution.beta = key->words[KEY_ADD] ? 1 : 0;
    ddp_cudnn_convolve(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       &convolution);
}

static void describe_dweight(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_key *key)
{
    const struct ddp_conv2d_shape shape = shape_of(key);
    const struct ddp_cudnn_convolution convolution = tensors_of(graph, &shape);
    ddp_cudnn_convolve(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                       &convolution);
}

/* --- the operations ------------------------------------------------------------------------- */

static bool is_aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0;
}

/* The plan of a pass; NULL: cuDNN has none. */
static enum ddp_status plan_for(const struct ddp_cudnn_key *key, ddp_cudnn_describe *describe,
                                const char *operation, struct ddp_cuda *cuda,
                                struct ddp_cudnn_plan **plan)
{
    struct ddp_cudnn *cudnn = NULL;
    enum ddp_status status = ddp_cudnn_of(cuda, &cudnn);
    *plan = NULL;
    if (status || !cudnn->usable || cuda->capability < 80)
        return status;
    status = ddp_cudnn_plan_of(cudnn, key, describe, DDP_CUDA_WORKSPACE_BYTES, operation, plan);
    if (status || !(*plan)->plan)
        *plan = NULL;
    return status;
}

static enum ddp_status pack_weight(const struct ddp_conv2d_shape *shape, const float *weight,
                                   void *packed, struct ddp_cuda *cuda)
{
    const struct ddp_conv_taps taps = {
        .in = shape->in,
        .out = shape->out,
        .all = shape->kernel_height * shape->kernel_width,
        .row_taps = shape->kernel_height,
        .column_taps = shape->kernel_width,
        .row = shape->kernel_width,
        .column = 1,
        .weight = weight,
        .type = DDP_BF16,
        .packed = packed,
    };
    return ddp_cuda_conv_pack(&taps, cuda);
}

static enum ddp_status run(const struct ddp_cudnn_plan *plan, const void *image, const void *weight,
                           const void *result, const float *bias, struct ddp_cuda *cuda,
                           const char *operation)
{
    struct ddp_cudnn_binding binding = {.count = 0};
    ddp_cudnn_bind(&binding, IMAGE, image);
    ddp_cudnn_bind(&binding, WEIGHT, weight);
    ddp_cudnn_bind(&binding, RESULT, result);
    if (bias)
        ddp_cudnn_bind(&binding, BIAS, bias);
    return ddp_cudnn_run(plan, &binding, cuda->workspace, cuda, operation);
}

enum ddp_status ddp_cudnn_conv2d_forward(const struct ddp_conv2d_forward *args,
                                         struct ddp_cuda *cuda, bool *done)
{
    struct ddp_cudnn_key key = key_of(FORWARD, &args->shape);
    struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (args->dtype != DDP_BF16 || !is_aligned(args->x) || !is_aligned(args->y) ||
        !is_aligned(args->bias))
        return DDP_OK;
    key.words[KEY_BIAS] = args->bias != NULL;
    key.words[KEY_RELU] = args->activation == DDP_ACTIVATION_RELU;
    enum ddp_status status = plan_for(&key, describe_forward, "conv2d", cuda, &plan);
    if (status || !plan)
        return status;
    *done = true;
    status = pack_weight(&args->shape, args->weight, args->scratch, cuda);
    return status ? status : run(plan, args->x, args->scratch, args->y, args->bias, cuda, "conv2d");
}

static bool is_for_us(const struct ddp_conv2d_backward *args)
{
    return args->dtype == DDP_BF16 && args->activation == DDP_ACTIVATION_NONE &&
           args->shape.batch > 0 && is_aligned(args->dy);
}

enum ddp_status ddp_cudnn_conv2d_dx(const struct ddp_conv2d_backward *args, struct ddp_cuda *cuda,
                                    bool *done)
{
    struct ddp_cudnn_key key = key_of(DX, &args->shape);
    struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (!is_for_us(args) || !is_aligned(args->dx))
        return DDP_OK;
    key.words[KEY_ADD] = args->accumulate_dx;
    enum ddp_status status = plan_for(&key, describe_dx, "conv2d backward", cuda, &plan);
    if (status || !plan)
        return status;
    *done = true;
    status = pack_weight(&args->shape, args->weight, args->scratch, cuda);
    return status ? status
                  : run(plan, args->dx, args->scratch, args->dy, NULL, cuda, "conv2d backward");
}

enum ddp_status ddp_cudnn_conv2d_dweight(const struct ddp_conv2d_backward *args,
                                         struct ddp_cuda *cuda, bool *done)
{
    const struct ddp_conv2d_shape *shape = &args->shape;
    const struct ddp_cudnn_key key = key_of(DWEIGHT, shape);
    struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (!is_for_us(args) || !is_aligned(args->x))
        return DDP_OK;
    enum ddp_status status = plan_for(&key, describe_dweight, "conv2d backward", cuda, &plan);
    if (status || !plan)
        return status;
    *done = true;
    status = run(plan, args->x, args->scratch, args->dy, NULL, cuda, "conv2d backward");
    return status ? status
                  : ddp_cuda_conv_unpack(args->dweight, args->scratch, DDP_BF16, shape->out,
                                         shape->kernel_height * shape->kernel_width, shape->in,
                                         args->accumulate_dweight, cuda);
}

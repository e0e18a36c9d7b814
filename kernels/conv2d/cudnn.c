/* SPDX-License-Identifier: MIT
 *
 * Convolution by cuDNN; see cudnn.h. It does those in bf16, where its library is installed, in a
 * quarter of the time of cuda.c on an H100 ("bench/gpu --only convolution"). Images are its
 * channels-last tensors as they are. The weight is packed to bf16 with its channels last. Its
 * gradient comes back in that order and rounded to bf16, as torch.autocast has it: engines that
 * leave float32 there are few, and do not split the long sums that these are. */
#include "config.h"

#include "kernels/conv2d/cudnn.h"

#include "kernels/conv2d/axis.h"
#include "kernels/conv2d/cuda.h"
#include "kernels/cuda/cudnn_graph.h"

#include <string.h>

/* The words of a key. */
struct words {
    struct ddp_conv2d_shape shape;
    int64_t bias, relu, add; /* yes or no */
};
_Static_assert(sizeof(struct words) == DDP_CUDNN_WORDS * sizeof(int64_t), "words of a key");

/* Of all graphs. */
enum tensor { IMAGE = 1, WEIGHT, RESULT, BIAS };

/* --- shapes --------------------------------------------------------------------------------- */

/* (a,b,c,d) with b innermost in memory, as images and packed weights have their channels. */
static struct ddp_cudnn_shape channels_last(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct ddp_cudnn_shape){{a, b, c, d}, {b * c * d, 1, b * d, b}};
}

static struct ddp_cudnn_shape result_of(const struct ddp_conv2d_shape *s)
{
    return channels_last(
        s->batch, s->out,
        ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, s->dilation),
        ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, s->dilation));
}

static struct ddp_cudnn_key key_of(ddp_cudnn_describe *describe, const struct words *words)
{
    struct ddp_cudnn_key key = {.describe = describe};
    memcpy(key.words, words, sizeof key.words);
    return key;
}

static struct words words_of(const int64_t *words)
{
    struct words of;
    memcpy(&of, words, sizeof of);
    return of;
}

/* --- graphs --------------------------------------------------------------------------------- */

/* IMAGE, WEIGHT and RESULT. */
static struct ddp_cudnn_convolution tensors_of(struct ddp_cudnn_graph *graph,
                                               const struct ddp_conv2d_shape *shape)
{
    const struct ddp_cudnn_shape shapes[] = {
        channels_last(shape->batch, shape->in, shape->height, shape->width),
        channels_last(shape->out, shape->in, shape->kernel_height, shape->kernel_width),
        result_of(shape),
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

static void describe_forward(struct ddp_cudnn_graph *graph, const int64_t *key)
{
    const struct words words = words_of(key);
    struct ddp_cudnn_convolution convolution = tensors_of(graph, &words.shape);
    const struct ddp_cudnn_shape y = result_of(&words.shape);
    const struct ddp_cudnn_shape row = channels_last(1, words.shape.out, 1, 1);
    int sums = RESULT;
    if (words.bias)
        ddp_cudnn_tensor(graph, &row, CUDNN_DATA_FLOAT, DDP_CUDNN_MEMORY);
    if (words.bias || words.relu)
        sums = convolution.result =
            ddp_cudnn_tensor(graph, &y, CUDNN_DATA_FLOAT, DDP_CUDNN_VIRTUAL);
    ddp_cudnn_convolve(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, &convolution);
    if (words.bias) {
        const int to =
            words.relu ? ddp_cudnn_tensor(graph, &y, CUDNN_DATA_FLOAT, DDP_CUDNN_VIRTUAL) : RESULT;
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, sums, BIAS, to);
        sums = to;
    }
    if (words.relu)
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, sums, 0, RESULT);
}

static void describe_dx(struct ddp_cudnn_graph *graph, const int64_t *key)
{
    const struct words words = words_of(key);
    struct ddp_cudnn_convolution convolution = tensors_of(graph, &words.shape);
    convolution.beta = words.add ? 1 : 0;
    ddp_cudnn_convolve(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       &convolution);
}

static void describe_dweight(struct ddp_cudnn_graph *graph, const int64_t *key)
{
    const struct words words = words_of(key);
    const struct ddp_cudnn_convolution convolution = tensors_of(graph, &words.shape);
    ddp_cudnn_convolve(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                       &convolution);
}

/* --- the operations ------------------------------------------------------------------------- */

static bool is_aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0;
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
    const void *const arrays[] = {image, weight, result, bias}; /* as enum tensor has them */
    return ddp_cudnn_run(plan, arrays, bias ? BIAS : RESULT, cuda, operation);
}

enum ddp_status ddp_cudnn_conv2d_forward(const struct ddp_conv2d_forward *args,
                                         struct ddp_cuda *cuda, bool *done)
{
    const struct words words = {.shape = args->shape,
                                .bias = args->bias != NULL,
                                .relu = args->activation == DDP_ACTIVATION_RELU};
    const struct ddp_cudnn_key key = key_of(describe_forward, &words);
    const struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (args->dtype != DDP_BF16 || !is_aligned(args->x) || !is_aligned(args->y) ||
        !is_aligned(args->bias))
        return DDP_OK;
    enum ddp_status status = ddp_cudnn_plan_of(cuda, &key, "conv2d", &plan);
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
    const struct words words = {.shape = args->shape, .add = args->accumulate_dx};
    const struct ddp_cudnn_key key = key_of(describe_dx, &words);
    const struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (!is_for_us(args) || !is_aligned(args->dx))
        return DDP_OK;
    enum ddp_status status = ddp_cudnn_plan_of(cuda, &key, "conv2d backward", &plan);
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
    const struct ddp_cudnn_key key = key_of(describe_dweight, &(struct words){.shape = *shape});
    const struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (!is_for_us(args) || !is_aligned(args->x))
        return DDP_OK;
    enum ddp_status status = ddp_cudnn_plan_of(cuda, &key, "conv2d backward", &plan);
    if (status || !plan)
        return status;
    *done = true;
    status = run(plan, args->x, args->scratch, args->dy, NULL, cuda, "conv2d backward");
    return status ? status
                  : ddp_cuda_conv_unpack(args->dweight, args->scratch, DDP_BF16, shape->out,
                                         shape->kernel_height * shape->kernel_width, shape->in,
                                         args->accumulate_dweight, cuda);
}

/* SPDX-License-Identifier: MIT
 *
 * Convolution as its definition says it, added in double precision, and the checks that both
 * versions share; see conv2d.h. */
#include "config.h"

#include "kernels/conv2d_check.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/bf16.h"

#include <stdlib.h>

#define SIZE_LIMIT 16777216 /* of one dimension: offsets then fit without further checks */

int64_t ddp_window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                         int64_t dilation)
{
    const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    return size < 0 || kernel < 1 || stride < 1 || room < 0 ? 0 : room / stride + 1;
}

static int64_t row_count(const struct ddp_conv2d_shape *s)
{
    return ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, s->dilation);
}

static int64_t column_count(const struct ddp_conv2d_shape *s)
{
    return ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, s->dilation);
}

static bool product_fits(const int64_t *factors, int count)
{
    size_t product = sizeof(float);
    for (int i = 0; i < count; i++)
        if (!ddp_size_multiply(product, (size_t)factors[i], &product))
            return false;
    return product <= INT64_MAX / 64;
}

bool ddp_conv2d_shape_fits(const struct ddp_conv2d_shape *s)
{
    const int64_t at_least_one[] = {s->in,     s->out,      s->kernel_height, s->kernel_width,
                                    s->stride, s->dilation, s->height,        s->width};
    for (size_t i = 0; i < sizeof at_least_one / sizeof *at_least_one; i++)
        if (at_least_one[i] < 1 || at_least_one[i] > SIZE_LIMIT)
            return false;
    if (s->batch < 0 || s->batch > SIZE_LIMIT || s->padding < 0 || s->padding > SIZE_LIMIT)
        return false;
    return row_count(s) > 0 && column_count(s) > 0 &&
           product_fits((const int64_t[]){s->batch, s->height, s->width, s->in}, 4) &&
           product_fits((const int64_t[]){s->batch, row_count(s), column_count(s), s->out}, 4) &&
           product_fits(
               (const int64_t[]){s->out + 15, s->in + 15, s->kernel_height, s->kernel_width, 16},
               5);
}

static enum ddp_status check_shape(const struct ddp_conv2d_shape *s, enum ddp_activation activation,
                                   enum ddp_dtype compute)
{
    if (!ddp_conv2d_shape_fits(s))
        return ddp_fail(DDP_ERR_INVALID,
                        "conv2d: %lld images of %lld x %lld x %lld with windows of %lld x %lld for "
                        "%lld channels (stride %lld, padding %lld, dilation %lld) do not fit",
                        (long long)s->batch, (long long)s->height, (long long)s->width,
                        (long long)s->in, (long long)s->kernel_height, (long long)s->kernel_width,
                        (long long)s->out, (long long)s->stride, (long long)s->padding,
                        (long long)s->dilation);
    if (activation != DDP_ACTIVATION_NONE && activation != DDP_ACTIVATION_RELU)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: activation %d is not fused", (int)activation);
    if (compute != DDP_F32 && compute != DDP_BF16)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: cannot compute in dtype %d", (int)compute);
    return DDP_OK;
}

enum ddp_status ddp_conv2d_check_forward(const struct ddp_conv2d_forward *args)
{
    enum ddp_status status = check_shape(&args->shape, args->activation, args->compute);
    if (status)
        return status;
    if (args->shape.batch > 0 && (!args->x || !args->weight || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "conv2d: x, weight or y is NULL");
    return DDP_OK;
}

enum ddp_status ddp_conv2d_check_backward(const struct ddp_conv2d_backward *args)
{
    enum ddp_status status = check_shape(&args->shape, args->activation, args->compute);
    if (status || args->shape.batch == 0)
        return status;
    bool missing = !args->dy || (args->activation != DDP_ACTIVATION_NONE && !args->y);
    missing |= args->dweight && !args->x;
    missing |= args->dx && !args->weight;
    if (missing)
        return ddp_fail(DDP_ERR_INVALID, "conv2d backward: dy, y, x or weight is NULL");
    return DDP_OK;
}

/* What the places of window and image are called while all pairs of them are visited. */
struct place {
    int64_t y;      /* index of a pixel of y, in pixels */
    int64_t x;      /* index of a pixel of x, in pixels */
    int64_t weight; /* row * KW + column */
};

/* Calls visit() for every product of a pixel of x with a tap of the window. */
static void visit_all(const struct ddp_conv2d_shape *s,
                      void (*visit)(void *arg, const struct place *place), void *arg)
{
    const int64_t rows = row_count(s), columns = column_count(s);
    for (int64_t at = 0; at < s->batch * rows * columns; at++)
        for (int64_t tap = 0; tap < s->kernel_height * s->kernel_width; tap++) {
            const int64_t image = at / (rows * columns);
            const int64_t h =
                at / columns % rows * s->stride - s->padding + tap / s->kernel_width * s->dilation;
            const int64_t w =
                at % columns * s->stride - s->padding + tap % s->kernel_width * s->dilation;
            if (h >= 0 && h < s->height && w >= 0 && w < s->width)
                visit(arg, &(struct place){at, (image * s->height + h) * s->width + w, tap});
        }
}

static double operand(float value, enum ddp_dtype compute)
{
    return (double)(compute == DDP_BF16 ? ddp_bf16_to_f32(ddp_bf16_of(value)) : value);
}

struct sums {
    const struct ddp_conv2d_shape *shape;
    enum ddp_dtype compute;
    const float *x, *weight, *dy, *y;
    bool relu;
    double *out;
};

static void add_forward(void *arg, const struct place *place)
{
    const struct sums *s = arg;
    const int64_t in = s->shape->in, out = s->shape->out;
    const int64_t taps = s->shape->kernel_height * s->shape->kernel_width;
    for (int64_t o = 0; o < out; o++)
        for (int64_t c = 0; c < in; c++)
            s->out[place->y * out + o] +=
                operand(s->x[place->x * in + c], s->compute) *
                operand(s->weight[(o * in + c) * taps + place->weight], s->compute);
}

/* The gradient before the activation. */
static float gradient_at(const struct sums *s, int64_t at)
{
    return s->relu && !(s->y[at] > 0) ? 0 : s->dy[at];
}

static void add_dx(void *arg, const struct place *place)
{
    const struct sums *s = arg;
    const int64_t in = s->shape->in, out = s->shape->out;
    const int64_t taps = s->shape->kernel_height * s->shape->kernel_width;
    for (int64_t o = 0; o < out; o++)
        for (int64_t c = 0; c < in; c++)
            s->out[place->x * in + c] +=
                operand(gradient_at(s, place->y * out + o), s->compute) *
                operand(s->weight[(o * in + c) * taps + place->weight], s->compute);
}

static void add_dweight(void *arg, const struct place *place)
{
    const struct sums *s = arg;
    const int64_t in = s->shape->in, out = s->shape->out;
    const int64_t taps = s->shape->kernel_height * s->shape->kernel_width;
    for (int64_t o = 0; o < out; o++)
        for (int64_t c = 0; c < in; c++)
            s->out[(o * in + c) * taps + place->weight] +=
                operand(gradient_at(s, place->y * out + o), s->compute) *
                operand(s->x[place->x * in + c], s->compute);
}

enum ddp_status ddp_conv2d_forward_reference(const struct ddp_conv2d_forward *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_conv2d_check_forward(args);
    if (status || args->shape.batch == 0)
        return status;
    const int64_t out = args->shape.out;
    const int64_t count = args->shape.batch * row_count(&args->shape) * column_count(&args->shape);
    struct sums sums = {
        .shape = &args->shape, .compute = args->compute, .x = args->x, .weight = args->weight};
    sums.out = ddp_array_alloc((size_t)(count * out), sizeof *sums.out);
    if (!sums.out)
        return DDP_ERR_MEMORY;
    visit_all(&args->shape, add_forward, &sums);
    for (int64_t i = 0; i < count * out; i++) {
        const float value = (float)(sums.out[i] + (args->bias ? (double)args->bias[i % out] : 0));
        args->y[i] = args->activation == DDP_ACTIVATION_RELU && value < 0 ? 0 : value;
    }
    free(sums.out);
    return DDP_OK;
}

static enum ddp_status gradient_reference(struct sums *sums, float *gradient, int64_t count,
                                          void (*visit)(void *arg, const struct place *place),
                                          bool accumulate)
{
    sums->out = ddp_array_alloc((size_t)count, sizeof *sums->out);
    if (!sums->out)
        return DDP_ERR_MEMORY;
    visit_all(sums->shape, visit, sums);
    for (int64_t i = 0; i < count; i++)
        gradient[i] = (float)(sums->out[i] + (accumulate ? (double)gradient[i] : 0));
    free(sums->out);
    return DDP_OK;
}

enum ddp_status ddp_conv2d_backward_reference(const struct ddp_conv2d_backward *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_conv2d_check_backward(args);
    if (status)
        return status;
    const struct ddp_conv2d_shape *s = &args->shape;
    const int64_t pixels = s->batch * row_count(s) * column_count(s);
    struct sums sums = {
        .shape = s,
        .compute = args->compute,
        .x = args->x,
        .weight = args->weight,
        .dy = args->dy,
        .y = args->y,
        .relu = args->activation == DDP_ACTIVATION_RELU,
    };
    if (args->dx)
        status = gradient_reference(&sums, args->dx, s->batch * s->height * s->width * s->in,
                                    add_dx, args->accumulate_dx);
    if (args->dweight && status == DDP_OK)
        status = gradient_reference(&sums, args->dweight,
                                    s->out * s->in * s->kernel_height * s->kernel_width,
                                    add_dweight, args->accumulate_dweight);
    for (int64_t o = 0; args->dbias && o < s->out && status == DDP_OK; o++) {
        double sum = args->accumulate_dweight ? (double)args->dbias[o] : 0;
        for (int64_t p = 0; p < pixels; p++)
            sum += (double)gradient_at(&sums, p * s->out + o);
        args->dbias[o] = (float)sum;
    }
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Convolution as its definition says it, added in double precision; see conv2d.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"
#include "core/memory.h"
#include <stdlib.h>

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
    const int64_t rows = ddp_conv2d_row_count(s), columns = ddp_conv2d_column_count(s);
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
    return (double)(compute == DDP_BF16  ? ddp_bf16_to_f32(ddp_bf16_of(value))
                    : compute == DDP_F16 ? ddp_f16_to_f32(ddp_f16_of(value))
                                         : value);
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
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_conv2d_check_forward(args);
    if (status || args->shape.batch == 0)
        return status;
    const int64_t out = args->shape.out;
    const int64_t count = args->shape.batch * ddp_conv2d_row_count(&args->shape) *
                          ddp_conv2d_column_count(&args->shape);
    struct sums sums = {
        .shape = &args->shape, .compute = args->compute, .x = args->x, .weight = args->weight};
    sums.out = ddp_array_alloc((size_t)(count * out), sizeof *sums.out);
    if (!sums.out)
        return DDP_ERR_MEMORY;
    visit_all(&args->shape, add_forward, &sums);
    for (int64_t i = 0; i < count * out; i++) {
        const float value = (float)(sums.out[i] + (args->bias ? (double)args->bias[i % out] : 0));
        y[i] = args->activation == DDP_ACTIVATION_RELU && value < 0 ? 0 : value;
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
    const int64_t pixels = s->batch * ddp_conv2d_row_count(s) * ddp_conv2d_column_count(s);
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

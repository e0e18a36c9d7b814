/* SPDX-License-Identifier: MIT
 *
 * Convolution on the CPU; see conv2d.h. Forward, and back to dx, it is one pass over tiles of the
 * images (correlate.c); dweight is in weight.c. No library is called: on images of 8 to 32 pixels
 * with 16 to 64 channels these loops run at nearly the processor's peak. */
#include "config.h"

#include "kernels/conv2d/conv2d.h"

#include "core/log.h"
#include "kernels/conv2d/correlate.h"
#include "kernels/conv2d/weight.h"
#include "kernels/cpu/cpu.h"

/* --- forward ---------------------------------------------------------------------------------- */

size_t ddp_conv2d_forward_scratch_bytes(const struct ddp_conv2d_shape *shape)
{
    if (!ddp_conv2d_shape_fits(shape))
        return 0;
    return sizeof(float) *
           ddp_correlate_packed(shape->in, shape->out, shape->kernel_height, shape->kernel_width);
}

enum ddp_status ddp_conv2d_forward(const struct ddp_conv2d_forward *args, void *stream)
{
    enum ddp_status status = ddp_conv2d_check_forward(args);
    if (status || args->shape.batch == 0)
        return status;
    if (!args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: scratch is NULL");
    const struct ddp_conv2d_shape *shape = &args->shape;
    struct ddp_correlate correlate = {
        .images = ddp_conv2d_images(shape),
        .out = shape->out,
        .weight = args->weight,
        .weight_out = shape->in * shape->kernel_height * shape->kernel_width,
        .weight_in = shape->kernel_height * shape->kernel_width,
        .weight_row = shape->kernel_width,
        .weight_column = 1,
        .bias = args->bias,
        .y = args->y,
        .relu = args->activation == DDP_ACTIVATION_RELU,
        .packed = args->scratch,
    };
    correlate.images.x = args->x;
    correlate.images.compute = args->compute;
    correlate.y_column = shape->out;
    correlate.y_row = correlate.images.column.count * correlate.y_column;
    correlate.y_image = correlate.images.row.count * correlate.y_row;
    return ddp_correlate(&correlate, stream);
}

/* --- backward --------------------------------------------------------------------------------- */

static enum ddp_status backward_phase(const struct ddp_conv2d_backward *args,
                                      const struct ddp_conv_images *forward, int64_t row,
                                      int64_t column, void *stream)
{
    float *dx = args->dx;
    const struct ddp_conv2d_shape *shape = &args->shape;
    const struct ddp_conv_phase down =
        ddp_conv_phase_of(shape, row, shape->height, forward->row.count, shape->kernel_height);
    const struct ddp_conv_phase across =
        ddp_conv_phase_of(shape, column, shape->width, forward->column.count, shape->kernel_width);
    const int64_t taps = shape->kernel_height * shape->kernel_width;
    struct ddp_correlate correlate = {
        .images = {.batch = shape->batch,
                   .channels = shape->out,
                   .row = down.axis,
                   .column = across.axis,
                   .x = args->dy,
                   .gate = args->activation == DDP_ACTIVATION_RELU ? args->y : NULL,
                   .compute = args->compute},
        .out = shape->in,
        .weight = args->weight + down.last * shape->kernel_width + across.last,
        .weight_out = taps,
        .weight_in = shape->in * taps,
        .weight_row = -down.every * shape->kernel_width,
        .weight_column = -across.every,
        .y = dx + (row * shape->width + column) * shape->in,
        .y_image = shape->height * shape->width * shape->in,
        .y_row = shape->stride * shape->width * shape->in,
        .y_column = shape->stride * shape->in,
        .add = args->accumulate_dx,
        .packed = args->scratch,
    };
    const bool empty = down.axis.taps == 0 || across.axis.taps == 0;
    if (empty && args->accumulate_dx)
        return DDP_OK;
    if (empty)
        correlate.images.row.taps = correlate.images.column.taps = 0;
    return ddp_correlate(&correlate, stream);
}

size_t ddp_conv2d_backward_scratch_bytes(const struct ddp_conv2d_shape *shape)
{
    if (!ddp_conv2d_shape_fits(shape))
        return 0;
    const size_t packed =
        sizeof(float) *
        ddp_correlate_packed(shape->out, shape->in, shape->kernel_height, shape->kernel_width);
    const size_t sums = ddp_conv2d_weight_scratch_bytes(shape);
    return packed > sums ? packed : sums;
}

enum ddp_status ddp_conv2d_backward(const struct ddp_conv2d_backward *args, void *stream)
{
    enum ddp_status status = ddp_conv2d_check_backward(args);
    if (status)
        return status;
    if (!args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "conv2d backward: scratch is NULL");
    const struct ddp_conv_images forward = ddp_conv2d_images(&args->shape);
    for (int64_t row = 0; args->dx && row < args->shape.stride; row++)
        for (int64_t column = 0; column < args->shape.stride && status == DDP_OK; column++)
            status = backward_phase(args, &forward, row, column, stream);
    if ((args->dweight || args->dbias) && status == DDP_OK)
        status = ddp_conv2d_weight(args, stream);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Pooling, one output at a time; see pool2d.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>
#include <string.h>

/* One output: where its window begins, and where in x a position of the window lies. */
struct output {
    const struct ddp_pool2d_shape *s;
    int64_t image, row, column, channel;
};

static int64_t count_outputs(const struct ddp_pool2d_shape *s)
{
    return s->batch * s->channels *
           ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1) *
           ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1);
}

static struct output output_at(const struct ddp_pool2d_shape *s, int64_t at)
{
    const int64_t rows = ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1);
    const int64_t columns = ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1);
    return (struct output){
        .s = s,
        .image = at / s->channels / columns / rows,
        .row = at / s->channels / columns % rows * s->stride - s->padding,
        .column = at / s->channels % columns * s->stride - s->padding,
        .channel = at % s->channels,
    };
}

/* The index in x, or -1 for padding. */
static int64_t index_of(const struct output *o, int64_t position)
{
    const int64_t row = o->row + position / o->s->kernel_width;
    const int64_t column = o->column + position % o->s->kernel_width;
    if (row < 0 || row >= o->s->height || column < 0 || column >= o->s->width)
        return -1;
    return ((o->image * o->s->height + row) * o->s->width + column) * o->s->channels + o->channel;
}

enum ddp_status ddp_max_pool2d_forward_reference(const struct ddp_max_pool2d_forward *args,
                                                 void *stream)
{
    const float *x = args->x;
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_max_pool2d_check_forward(args);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        int64_t best = -1;
        for (int64_t p = 0; p < s->kernel_height * s->kernel_width; p++) {
            const int64_t at = index_of(&output, p);
            if (at < 0)
                continue;
            if (best < 0 || x[at] > x[index_of(&output, best)] || isnan(x[at]))
                best = p;
        }
        y[i] = x[index_of(&output, best)];
        if (args->chosen)
            args->chosen[i] = (uint8_t)best;
    }
    return DDP_OK;
}

enum ddp_status ddp_max_pool2d_backward_reference(const struct ddp_max_pool2d_backward *args,
                                                  void *stream)
{
    const float *dy = args->dy;
    float *dx = args->dx;
    (void)stream;
    enum ddp_status status = ddp_max_pool2d_check_backward(args);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    if (!args->accumulate_dx && s->batch > 0)
        memset(dx, 0, (size_t)(s->batch * s->height * s->width * s->channels) * sizeof *dx);
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        dx[index_of(&output, args->chosen[i])] += dy[i];
    }
    return DDP_OK;
}

enum ddp_status ddp_avg_pool2d_forward_reference(const struct ddp_avg_pool2d_forward *args,
                                                 void *stream)
{
    const float *x = args->x;
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_avg_pool2d_check_forward(args);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    const int64_t positions = s->kernel_height * s->kernel_width;
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        double sum = 0;
        for (int64_t p = 0; p < positions; p++) {
            const int64_t at = index_of(&output, p);
            sum += at < 0 ? 0 : (double)x[at];
        }
        y[i] = (float)(sum / (double)positions);
    }
    return DDP_OK;
}

enum ddp_status ddp_avg_pool2d_backward_reference(const struct ddp_avg_pool2d_backward *args,
                                                  void *stream)
{
    const float *dy = args->dy;
    float *dx = args->dx;
    (void)stream;
    enum ddp_status status = ddp_avg_pool2d_check_backward(args);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    const int64_t positions = s->kernel_height * s->kernel_width;
    if (!args->accumulate_dx && s->batch > 0)
        memset(dx, 0, (size_t)(s->batch * s->height * s->width * s->channels) * sizeof *dx);
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        for (int64_t p = 0; p < positions; p++) {
            const int64_t at = index_of(&output, p);
            if (at >= 0)
                dx[at] += dy[i] / (float)positions;
        }
    }
    return DDP_OK;
}

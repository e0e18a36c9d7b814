/* SPDX-License-Identifier: MIT
 *
 * Pooling one output at a time, and the check that both versions share; see pool2d.h. */
#include "config.h"

#include "kernels/pool2d_check.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/conv2d.h"

#include <math.h>
#include <string.h>

#define SIZE_LIMIT 16777216 /* of one dimension */

enum ddp_status ddp_pool2d_check(const struct ddp_pool2d_shape *s, bool given, bool max)
{
    const int64_t sizes[] = {s->height,        s->width,        s->channels,
                             s->kernel_height, s->kernel_width, s->stride};
    bool fits = s->batch >= 0 && s->batch <= SIZE_LIMIT && s->padding >= 0;
    size_t bytes = sizeof(double) * (size_t)s->batch;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fits &= sizes[i] >= 1 && sizes[i] <= SIZE_LIMIT;
    fits = fits && s->padding <= s->kernel_height / 2 && s->padding <= s->kernel_width / 2 &&
           ddp_size_multiply(bytes, (size_t)s->height, &bytes) &&
           ddp_size_multiply(bytes, (size_t)s->width, &bytes) &&
           ddp_size_multiply(bytes, (size_t)s->channels, &bytes) && bytes <= INT64_MAX / 64 &&
           ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1) > 0 &&
           ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1) > 0 &&
           (!max || s->kernel_height * s->kernel_width <= 256);
    if (!fits)
        return ddp_fail(DDP_ERR_INVALID,
                        "pool2d: %lld images of %lld x %lld x %lld with windows of %lld x %lld "
                        "(stride %lld, padding %lld) do not fit",
                        (long long)s->batch, (long long)s->height, (long long)s->width,
                        (long long)s->channels, (long long)s->kernel_height,
                        (long long)s->kernel_width, (long long)s->stride, (long long)s->padding);
    if (s->batch > 0 && !given)
        return ddp_fail(DDP_ERR_INVALID, "pool2d: NULL where elements are needed");
    return DDP_OK;
}

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
    (void)stream;
    enum ddp_status status = ddp_pool2d_check(&args->shape, args->x && args->y, true);
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
            if (best < 0 || args->x[at] > args->x[index_of(&output, best)] || isnan(args->x[at]))
                best = p;
        }
        args->y[i] = args->x[index_of(&output, best)];
        if (args->chosen)
            args->chosen[i] = (uint8_t)best;
    }
    return DDP_OK;
}

enum ddp_status ddp_max_pool2d_backward_reference(const struct ddp_max_pool2d_backward *args,
                                                  void *stream)
{
    (void)stream;
    enum ddp_status status =
        ddp_pool2d_check(&args->shape, args->dy && args->dx && args->chosen, true);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    if (!args->accumulate_dx && s->batch > 0)
        memset(args->dx, 0,
               (size_t)(s->batch * s->height * s->width * s->channels) * sizeof *args->dx);
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        args->dx[index_of(&output, args->chosen[i])] += args->dy[i];
    }
    return DDP_OK;
}

enum ddp_status ddp_avg_pool2d_forward_reference(const struct ddp_avg_pool2d_forward *args,
                                                 void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_pool2d_check(&args->shape, args->x && args->y, false);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    const int64_t positions = s->kernel_height * s->kernel_width;
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        double sum = 0;
        for (int64_t p = 0; p < positions; p++) {
            const int64_t at = index_of(&output, p);
            sum += at < 0 ? 0 : (double)args->x[at];
        }
        args->y[i] = (float)(sum / (double)positions);
    }
    return DDP_OK;
}

enum ddp_status ddp_avg_pool2d_backward_reference(const struct ddp_avg_pool2d_backward *args,
                                                  void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_pool2d_check(&args->shape, args->dy && args->dx, false);
    if (status)
        return status;
    const struct ddp_pool2d_shape *s = &args->shape;
    const int64_t positions = s->kernel_height * s->kernel_width;
    if (!args->accumulate_dx && s->batch > 0)
        memset(args->dx, 0,
               (size_t)(s->batch * s->height * s->width * s->channels) * sizeof *args->dx);
    for (int64_t i = 0, n = count_outputs(s); i < n; i++) {
        const struct output output = output_at(s, i);
        for (int64_t p = 0; p < positions; p++) {
            const int64_t at = index_of(&output, p);
            if (at >= 0)
                args->dx[at] += args->dy[i] / (float)positions;
        }
    }
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * Pooling on the CPU; see pool2d.h. A task is some rows of outputs going forward, and an image
 * going back, where windows may share pixels. */
#include "config.h"

#include "kernels/pool2d.h"

#include "core/log.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

#define TASK 16384 /* elements of x that a task reads, about */

/* Pixels [begin, end) of x that a window meets, and its first position's pixel, padding included.
 */
struct window {
    int64_t begin, end, origin;
};

static struct window window_at(int64_t position, int64_t size, int64_t kernel,
                               const struct ddp_pool2d_shape *s)
{
    const int64_t origin = position * s->stride - s->padding;
    return (struct window){.begin = origin < 0 ? 0 : origin,
                           .end = origin + kernel < size ? origin + kernel : size,
                           .origin = origin};
}

struct pass {
    const struct ddp_pool2d_shape *s;
    int64_t rows, columns; /* of y */
    int64_t task_rows;     /* rows of y, over all images, of a task */
    const float *from;
    float *to;
    uint8_t *chosen_out;
    const uint8_t *chosen;
    bool add;
};

static struct pass pass_of(const struct ddp_pool2d_shape *s)
{
    return (struct pass){
        .s = s,
        .rows = ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1),
        .columns = ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1),
    };
}

/* --- forward ---------------------------------------------------------------------------------- */

/* As PyTorch: a larger value takes over, and any NaN. */
DDP_MULTIVERSION
static void take_larger(float *restrict y, uint8_t *restrict chosen, const float *restrict x,
                        uint8_t position, int64_t n)
{
    if (!chosen) {
        for (int64_t c = 0; c < n; c++)
            y[c] = x[c] > y[c] || x[c] != x[c] ? x[c] : y[c];
        return;
    }
    for (int64_t c = 0; c < n; c++) {
        const bool larger = x[c] > y[c] || x[c] != x[c];
        chosen[c] = larger ? position : chosen[c];
        y[c] = larger ? x[c] : y[c];
    }
}

DDP_MULTIVERSION
static void add_to(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += x[c];
}

DDP_MULTIVERSION
static void divide_by(float *y, float divisor, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] /= divisor;
}

static void max_pixel(const struct pass *pass, const float *image, int64_t at,
                      const struct window *down, const struct window *across)
{
    const struct ddp_pool2d_shape *s = pass->s;
    const int64_t channels = s->channels;
    float *y = pass->to + at * channels;
    uint8_t *chosen = pass->chosen_out ? pass->chosen_out + at * channels : NULL;
    const int64_t first =
        (down->begin - down->origin) * s->kernel_width + across->begin - across->origin;
    for (int64_t c = 0; c < channels; c++)
        y[c] = -INFINITY;
    if (chosen)
        memset(chosen, (int)first, (size_t)channels);
    for (int64_t h = down->begin; h < down->end; h++)
        for (int64_t w = across->begin; w < across->end; w++)
            take_larger(y, chosen, image + (h * s->width + w) * channels,
                        (uint8_t)((h - down->origin) * s->kernel_width + w - across->origin),
                        channels);
}

static void avg_pixel(const struct pass *pass, const float *image, int64_t at,
                      const struct window *down, const struct window *across)
{
    const struct ddp_pool2d_shape *s = pass->s;
    const int64_t channels = s->channels;
    float *y = pass->to + at * channels;
    memset(y, 0, (size_t)channels * sizeof *y);
    for (int64_t h = down->begin; h < down->end; h++)
        for (int64_t w = across->begin; w < across->end; w++)
            add_to(y, image + (h * s->width + w) * channels, channels);
    divide_by(y, (float)(s->kernel_height * s->kernel_width), channels);
}

typedef void pixel_function(const struct pass *pass, const float *image, int64_t at,
                            const struct window *down, const struct window *across);

DDP_INLINE void forward_rows(const struct pass *pass, size_t index, pixel_function *pixel)
{
    const struct ddp_pool2d_shape *s = pass->s;
    const int64_t begin = (int64_t)index * pass->task_rows, all = s->batch * pass->rows;
    for (int64_t row = begin; row < begin + pass->task_rows && row < all; row++) {
        const float *image = pass->from + row / pass->rows * s->height * s->width * s->channels;
        const struct window down = window_at(row % pass->rows, s->height, s->kernel_height, s);
        for (int64_t column = 0; column < pass->columns; column++) {
            const struct window across = window_at(column, s->width, s->kernel_width, s);
            pixel(pass, image, row * pass->columns + column, &down, &across);
        }
    }
}

static void max_task(void *arg, size_t index)
{
    forward_rows(arg, index, max_pixel);
}

static void avg_task(void *arg, size_t index)
{
    forward_rows(arg, index, avg_pixel);
}

static void forward_run(struct pass *pass, ddp_pool_task *task, void *stream)
{
    const struct ddp_pool2d_shape *s = pass->s;
    const int64_t reads = pass->columns * s->kernel_height * s->kernel_width * s->channels;
    const int64_t all = s->batch * pass->rows;
    pass->task_rows = TASK / reads + 1;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)((all + pass->task_rows - 1) / pass->task_rows),
                 task, pass);
}

enum ddp_status ddp_max_pool2d_forward(const struct ddp_max_pool2d_forward *args, void *stream)
{
    enum ddp_status status = ddp_max_pool2d_check_forward(args);
    if (status || args->shape.batch == 0)
        return status;
    struct pass pass = pass_of(&args->shape);
    pass.from = args->x;
    pass.to = args->y;
    pass.chosen_out = args->chosen;
    forward_run(&pass, max_task, stream);
    return DDP_OK;
}

enum ddp_status ddp_avg_pool2d_forward(const struct ddp_avg_pool2d_forward *args, void *stream)
{
    enum ddp_status status = ddp_avg_pool2d_check_forward(args);
    if (status || args->shape.batch == 0)
        return status;
    struct pass pass = pass_of(&args->shape);
    pass.from = args->x;
    pass.to = args->y;
    forward_run(&pass, avg_task, stream);
    return DDP_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

DDP_MULTIVERSION
static void add_where_chosen(float *restrict dx, const float *restrict dy,
                             const uint8_t *restrict chosen, uint8_t position, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        dx[c] += chosen[c] == position ? dy[c] : 0;
}

DDP_MULTIVERSION
static void add_share(float *restrict dx, const float *restrict dy, float divisor, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        dx[c] += dy[c] / divisor;
}

/* One output's gradient goes to the pixels of its window. */
DDP_INLINE void spread(const struct pass *pass, float *image, int64_t at, const struct window *down,
                       const struct window *across, bool max)
{
    const struct ddp_pool2d_shape *s = pass->s;
    const int64_t channels = s->channels;
    const float *dy = pass->from + at * channels;
    for (int64_t h = down->begin; h < down->end; h++)
        for (int64_t w = across->begin; w < across->end; w++) {
            float *dx = image + (h * s->width + w) * channels;
            if (max)
                add_where_chosen(
                    dx, dy, pass->chosen + at * channels,
                    (uint8_t)((h - down->origin) * s->kernel_width + w - across->origin), channels);
            else
                add_share(dx, dy, (float)(s->kernel_height * s->kernel_width), channels);
        }
}

DDP_INLINE void backward_image(const struct pass *pass, int64_t image, bool max)
{
    const struct ddp_pool2d_shape *s = pass->s;
    const int64_t size = s->height * s->width * s->channels;
    float *dx = pass->to + image * size;
    if (!pass->add)
        memset(dx, 0, (size_t)size * sizeof *dx);
    for (int64_t row = 0; row < pass->rows; row++) {
        const struct window down = window_at(row, s->height, s->kernel_height, s);
        for (int64_t column = 0; column < pass->columns; column++) {
            const struct window across = window_at(column, s->width, s->kernel_width, s);
            spread(pass, dx, (image * pass->rows + row) * pass->columns + column, &down, &across,
                   max);
        }
    }
}

static void max_backward_task(void *arg, size_t index)
{
    backward_image(arg, (int64_t)index, true);
}

static void avg_backward_task(void *arg, size_t index)
{
    backward_image(arg, (int64_t)index, false);
}

enum ddp_status ddp_max_pool2d_backward(const struct ddp_max_pool2d_backward *args, void *stream)
{
    enum ddp_status status = ddp_max_pool2d_check_backward(args);
    if (status)
        return status;
    struct pass pass = pass_of(&args->shape);
    pass.from = args->dy;
    pass.to = args->dx;
    pass.chosen = args->chosen;
    pass.add = args->accumulate_dx;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)args->shape.batch, max_backward_task, &pass);
    return DDP_OK;
}

enum ddp_status ddp_avg_pool2d_backward(const struct ddp_avg_pool2d_backward *args, void *stream)
{
    enum ddp_status status = ddp_avg_pool2d_check_backward(args);
    if (status)
        return status;
    struct pass pass = pass_of(&args->shape);
    pass.from = args->dy;
    pass.to = args->dx;
    pass.add = args->accumulate_dx;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)args->shape.batch, avg_backward_task, &pass);
    return DDP_OK;
}

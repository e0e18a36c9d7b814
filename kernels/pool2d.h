/* SPDX-License-Identifier: MIT
 *
 * Max and average pooling of channels-last images, as torch.nn.MaxPool2d and torch.nn.AvgPool2d
 * (which counts the padding), and their gradients. A global average is an average with the window
 * of the whole image. */
#ifndef DDP_KERNELS_POOL2D_H
#define DDP_KERNELS_POOL2D_H

#include "ddp.h"

#include "kernels/check.h"
#include "kernels/window.h"

struct ddp_pool2d_shape {
    int64_t batch, height, width, channels; /* of x */
    int64_t kernel_height, kernel_width;    /* at least 1; max pooling: at most 256 positions */
    int64_t stride, padding; /* 1..; at most half the kernel. OH and OW: ddp_window_count() with
                                dilation 1 */
};

struct ddp_max_pool2d_forward {
    struct ddp_pool2d_shape shape;
    enum ddp_dtype dtype; /* of x and y: DDP_F32 or DDP_BF16 */
    const void *x;        /* (B,H,W,C) */
    void *y;              /* (B,OH,OW,C) out; NaN in a window is its maximum */
    uint8_t *chosen; /* (B,OH,OW,C) out: which position of the window (row * KW + column), the first
                        of equals; NULL: not needed (evaluation) */
};

struct ddp_max_pool2d_backward {
    struct ddp_pool2d_shape shape;
    enum ddp_dtype dtype;  /* of dx and dy: DDP_F32 or DDP_BF16 */
    const void *dy;        /* (B,OH,OW,C) */
    const uint8_t *chosen; /* (B,OH,OW,C) of forward */
    void *dx;              /* (B,H,W,C) out */
    bool accumulate_dx;    /* add to dx; else overwrite */
};

struct ddp_avg_pool2d_forward {
    struct ddp_pool2d_shape shape;
    enum ddp_dtype dtype; /* of x and y: DDP_F32 or DDP_BF16 */
    const void *x;        /* (B,H,W,C) */
    void *y;              /* (B,OH,OW,C) out: sums in the window, over KH * KW */
};

struct ddp_avg_pool2d_backward {
    struct ddp_pool2d_shape shape;
    enum ddp_dtype dtype; /* of dx and dy: DDP_F32 or DDP_BF16 */
    const void *dy;       /* (B,OH,OW,C) */
    void *dx;             /* (B,H,W,C) out */
    bool accumulate_dx;
};

/* `given`: whether the arrays are there, which a batch of 0 does not need. */
static inline enum ddp_status ddp_pool2d_check(const struct ddp_pool2d_shape *s, bool given,
                                               bool max, enum ddp_dtype dtype)
{
    const int64_t sizes[] = {s->height,        s->width,        s->channels,
                             s->kernel_height, s->kernel_width, s->stride};
    bool fits = s->batch >= 0 && s->batch <= DDP_WINDOW_SIZE_LIMIT && s->padding >= 0;
    size_t bytes = sizeof(double) * (size_t)s->batch;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fits &= sizes[i] >= 1 && sizes[i] <= DDP_WINDOW_SIZE_LIMIT;
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
    return ddp_check_dtype("pool2d", dtype);
}

static inline enum ddp_status
ddp_max_pool2d_check_forward(const struct ddp_max_pool2d_forward *args)
{
    return ddp_pool2d_check(&args->shape, args->x && args->y, true, args->dtype);
}

static inline enum ddp_status
ddp_max_pool2d_check_backward(const struct ddp_max_pool2d_backward *args)
{
    return ddp_pool2d_check(&args->shape, args->dy && args->dx && args->chosen, true, args->dtype);
}

static inline enum ddp_status
ddp_avg_pool2d_check_forward(const struct ddp_avg_pool2d_forward *args)
{
    return ddp_pool2d_check(&args->shape, args->x && args->y, false, args->dtype);
}

static inline enum ddp_status
ddp_avg_pool2d_check_backward(const struct ddp_avg_pool2d_backward *args)
{
    return ddp_pool2d_check(&args->shape, args->dy && args->dx, false, args->dtype);
}

/* DDP_ERR_INVALID for a shape as above or NULL where elements are needed. */
enum ddp_status ddp_max_pool2d_forward(const struct ddp_max_pool2d_forward *args, void *stream);
enum ddp_status ddp_max_pool2d_backward(const struct ddp_max_pool2d_backward *args, void *stream);
enum ddp_status ddp_avg_pool2d_forward(const struct ddp_avg_pool2d_forward *args, void *stream);
enum ddp_status ddp_avg_pool2d_backward(const struct ddp_avg_pool2d_backward *args, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Max and average pooling of channels-last images, as torch.nn.MaxPool2d and torch.nn.AvgPool2d
 * (which counts the padding), and their gradients. A global average is an average with the window
 * of the whole image. */
#ifndef DDP_KERNELS_POOL2D_H
#define DDP_KERNELS_POOL2D_H

#include "ddp.h"

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

/* DDP_ERR_INVALID for a shape as above or NULL where elements are needed. */
enum ddp_status ddp_max_pool2d_forward(const struct ddp_max_pool2d_forward *args, void *stream);
enum ddp_status ddp_max_pool2d_forward_reference(const struct ddp_max_pool2d_forward *args,
                                                 void *stream);
enum ddp_status ddp_max_pool2d_backward(const struct ddp_max_pool2d_backward *args, void *stream);
enum ddp_status ddp_max_pool2d_backward_reference(const struct ddp_max_pool2d_backward *args,
                                                  void *stream);
enum ddp_status ddp_avg_pool2d_forward(const struct ddp_avg_pool2d_forward *args, void *stream);
enum ddp_status ddp_avg_pool2d_forward_reference(const struct ddp_avg_pool2d_forward *args,
                                                 void *stream);
enum ddp_status ddp_avg_pool2d_backward(const struct ddp_avg_pool2d_backward *args, void *stream);
enum ddp_status ddp_avg_pool2d_backward_reference(const struct ddp_avg_pool2d_backward *args,
                                                  void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The pass over images that convolution takes forward, and, with the window turned round, back to
 * the gradient of its input. Private to this folder. */
#ifndef DDP_KERNELS_CONV2D_CORRELATE_H
#define DDP_KERNELS_CONV2D_CORRELATE_H

#include "kernels/conv2d/tile.h"

struct ddp_correlate {
    struct ddp_conv_images images;
    int64_t out; /* channels that come out */
    /* The weight of channel `o` from channel `c` at tap (h,w): weight[o * weight_out + c *
     * weight_in
     * + h * weight_row + w * weight_column]. */
    const float *weight;
    int64_t weight_out, weight_in, weight_row, weight_column;
    const float *bias;                /* (O), or NULL */
    float *y;                         /* of position (0,0) of image 0 */
    int64_t y_image, y_row, y_column; /* elements between images and positions */
    bool add, relu;                   /* see struct ddp_conv_strip */
    float *packed;                    /* ddp_correlate_packed() floats, 64-byte aligned */
};

/* Floats that the packed weight takes; 0 when it cannot be done: the window is too large. */
size_t ddp_correlate_packed(int64_t in, int64_t out, int64_t row_taps, int64_t column_taps);

/* DDP_ERR_UNSUPPORTED: the window is too large. */
enum ddp_status ddp_correlate(const struct ddp_correlate *args, void *stream);

#endif

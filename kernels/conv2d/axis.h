/* SPDX-License-Identifier: MIT
 *
 * Where the windows of a convolution meet its images, in one direction, for all devices. Positions
 * are what one row of a product belongs to: output pixels going forward, pixels of x going back.
 * Position p reads the pixels origin + p * stride + t * step for the taps t of its window. Private
 * to conv2d*. */
#ifndef DDP_KERNELS_CONV2D_AXIS_H
#define DDP_KERNELS_CONV2D_AXIS_H

#include "kernels/conv2d/conv2d.h"

struct ddp_conv_axis {
    int64_t size;  /* pixels of the image */
    int64_t count; /* positions */
    int64_t taps;  /* of the window; 0: nothing is read */
    int64_t step;  /* pixels between taps */
    int64_t stride;
    int64_t origin; /* pixel of tap 0 for position 0; negative: padding */
};

/* Going forward, over x; `size` and `kernel` of the direction. */
struct ddp_conv_axis ddp_conv_axis_of(const struct ddp_conv2d_shape *shape, int64_t size,
                                      int64_t kernel);

/* Going back: pixels residue, residue + stride, ... of x, and the taps of the window that meet
 * them: every `every`-th one, down from `last`. */
struct ddp_conv_phase {
    struct ddp_conv_axis axis; /* over dy */
    int64_t last, every;
};

struct ddp_conv_phase ddp_conv_phase_of(const struct ddp_conv2d_shape *shape, int64_t residue,
                                        int64_t size, int64_t positions, int64_t kernel);

#endif

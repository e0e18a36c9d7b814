/* SPDX-License-Identifier: MIT
 *
 * See axis.h. */
#include "config.h"

#include "kernels/conv2d/axis.h"

struct ddp_conv_axis ddp_conv_axis_of(const struct ddp_conv2d_shape *shape, int64_t size,
                                      int64_t kernel)
{
    return (struct ddp_conv_axis){
        .size = size,
        .count = ddp_window_count(size, kernel, shape->stride, shape->padding, shape->dilation),
        .taps = kernel,
        .step = shape->dilation,
        .stride = shape->stride,
        .origin = -shape->padding,
    };
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Pixel i of x meets tap k at position (i + padding - k * dilation) / stride, where that is whole.
 */
struct ddp_conv_phase ddp_conv_phase_of(const struct ddp_conv2d_shape *shape, int64_t residue,
                                        int64_t size, int64_t positions, int64_t kernel)
{
    const int64_t stride = shape->stride, shared = common_divisor(stride, shape->dilation);
    struct ddp_conv_phase phase = {
        .axis = {.size = positions, .stride = 1, .step = shape->dilation / shared},
        .every = stride / shared,
    };
    phase.axis.count = residue < size ? (size - residue - 1) / stride + 1 : 0;
    for (int64_t k = 0; k < kernel; k++) {
        const int64_t at = residue + shape->padding - k * shape->dilation;
        if (at % stride != 0)
            continue;
        phase.axis.taps++;
        phase.axis.origin = at / stride;
        phase.last = k;
    }
    return phase;
}

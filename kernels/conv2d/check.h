/* SPDX-License-Identifier: MIT
 *
 * The arguments of convolution, checked: for all devices. Private to conv2d*. */
#ifndef DDP_KERNELS_CONV2D_CHECK_H
#define DDP_KERNELS_CONV2D_CHECK_H

#include "kernels/conv2d/conv2d.h"

bool ddp_conv2d_shape_fits(const struct ddp_conv2d_shape *shape); /* silently */
enum ddp_status ddp_conv2d_check_forward(const struct ddp_conv2d_forward *args);
enum ddp_status ddp_conv2d_check_backward(const struct ddp_conv2d_backward *args);

#endif

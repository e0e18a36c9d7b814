/* SPDX-License-Identifier: MIT
 *
 * The gradients of convolution's weight and bias. Private to this folder. */
#ifndef DDP_KERNELS_CONV2D_WEIGHT_H
#define DDP_KERNELS_CONV2D_WEIGHT_H

#include "kernels/conv2d/conv2d.h"

size_t ddp_conv2d_weight_scratch_bytes(const struct ddp_conv2d_shape *shape);

/* dweight and dbias; dx is not touched. DDP_ERR_UNSUPPORTED: the window is too large. */
enum ddp_status ddp_conv2d_weight(const struct ddp_conv2d_backward *args, void *stream);

/* The images of x as its windows read them. */
struct ddp_conv_images ddp_conv2d_images(const struct ddp_conv2d_shape *shape);

#endif

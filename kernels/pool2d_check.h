/* SPDX-License-Identifier: MIT
 *
 * The arguments of pooling, checked. Private to pool2d*.c. */
#ifndef DDP_KERNELS_POOL2D_CHECK_H
#define DDP_KERNELS_POOL2D_CHECK_H

#include "kernels/pool2d.h"

/* `given`: are the arrays there? They need not be for a batch of 0. */
enum ddp_status ddp_pool2d_check(const struct ddp_pool2d_shape *shape, bool given, bool max);

#endif

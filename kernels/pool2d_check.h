/* SPDX-License-Identifier: MIT
 *
 * The arguments of pooling, checked: for all devices. Private to pool2d*. */
#ifndef DDP_KERNELS_POOL2D_CHECK_H
#define DDP_KERNELS_POOL2D_CHECK_H

#include "kernels/pool2d.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `given`: are the arrays there? They need not be for a batch of 0. */
enum ddp_status ddp_pool2d_check(const struct ddp_pool2d_shape *shape, bool given, bool max);

#ifdef __cplusplus
}
#endif

#endif

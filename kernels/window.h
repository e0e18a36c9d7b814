/* SPDX-License-Identifier: MIT
 *
 * Windows over images: what convolution and pooling share. */
#ifndef DDP_KERNELS_WINDOW_H
#define DDP_KERNELS_WINDOW_H

#include "ddp.h"

#define DDP_WINDOW_SIZE_LIMIT 16777216 /* of one dimension: offsets then need no more checks */

/* OH or OW: positions of a window of `kernel` in `size` elements; 0 when it never fits. */
static inline int64_t ddp_window_count(int64_t size, int64_t kernel, int64_t stride,
                                       int64_t padding, int64_t dilation)
{
    const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    return size < 0 || kernel < 1 || stride < 1 || room < 0 ? 0 : room / stride + 1;
}

#endif

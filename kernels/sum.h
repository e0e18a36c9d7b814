/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements in double precision, in one fixed order; its gradient fills with one value.
 */
#ifndef DDP_KERNELS_SUM_H
#define DDP_KERNELS_SUM_H

#include "ddp.h"

struct ddp_sum_forward {
    int64_t count;
    enum ddp_dtype dtype; /* of x: DDP_F32 or DDP_BF16 */
    const void *x;        /* (n) */
    float *y;             /* (1) out */
};

struct ddp_sum_backward {
    int64_t count;
    enum ddp_dtype dtype; /* of dx: DDP_F32 or DDP_BF16 */
    const float *dy;      /* (1) gradient of the sum */
    void *dx;             /* (n) out: dy in every element */
};

enum ddp_status ddp_sum_forward(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_sum_forward_reference(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_sum_backward(const struct ddp_sum_backward *args, void *stream);
enum ddp_status ddp_sum_backward_reference(const struct ddp_sum_backward *args, void *stream);

#endif

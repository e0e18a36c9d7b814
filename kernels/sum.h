/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements in double precision, in one fixed order; its gradient fills with one value.
 */
#ifndef DDP_KERNELS_SUM_H
#define DDP_KERNELS_SUM_H

#include "ddp.h"

struct ddp_sum_forward {
    int64_t count;
    const float *x; /* (n) */
    float *y;       /* (1) out */
};

struct ddp_sum_backward {
    int64_t count;
    const float *dy; /* (1) gradient of the sum */
    float *dx;       /* (n) out: dy in every element */
};

enum ddp_status ddp_sum_forward(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_sum_forward_reference(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_sum_backward(const struct ddp_sum_backward *args, void *stream);
enum ddp_status ddp_sum_backward_reference(const struct ddp_sum_backward *args, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements in double precision, in one fixed order; its gradient fills with one value.
 */
#ifndef DDP_KERNELS_SUM_H
#define DDP_KERNELS_SUM_H

#include "ddp.h"

#include "kernels/check.h"

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

static inline enum ddp_status ddp_sum_check_forward(const struct ddp_sum_forward *args)
{
    if (!args->y)
        return ddp_fail(DDP_ERR_INVALID, "sum: y is NULL");
    return ddp_check_elements("sum", args->count, args->x, args->dtype);
}

static inline enum ddp_status ddp_sum_check_backward(const struct ddp_sum_backward *args)
{
    if (!args->dy)
        return ddp_fail(DDP_ERR_INVALID, "sum backward: dy is NULL");
    return ddp_check_elements("sum backward", args->count, args->dx, args->dtype);
}

enum ddp_status ddp_sum_forward(const struct ddp_sum_forward *args, void *stream);
enum ddp_status ddp_sum_backward(const struct ddp_sum_backward *args, void *stream);

#endif

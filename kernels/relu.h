/* SPDX-License-Identifier: MIT
 *
 * y = max(x, 0), elementwise, and its gradient, where no operation before it has it fused. NaN
 * stays NaN. */
#ifndef DDP_KERNELS_RELU_H
#define DDP_KERNELS_RELU_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_relu_forward {
    int64_t count;
    enum ddp_dtype dtype; /* of x and y: DDP_F32 or DDP_BF16 */
    const void *x;        /* (n) */
    void *y;              /* (n) out; may be the memory of x */
};

struct ddp_relu_backward {
    int64_t count;
    enum ddp_dtype dtype; /* of y and the gradients: DDP_F32 or DDP_BF16 */
    const void *y;        /* (n) output of forward */
    const void *dy;       /* (n) */
    void *dx;             /* (n) out; may be the memory of dy when not accumulated */
    bool accumulate_dx;
};

static inline enum ddp_status ddp_relu_check_forward(const struct ddp_relu_forward *args)
{
    return ddp_check_elements("relu", args->count, args->x && args->y, args->dtype);
}

static inline enum ddp_status ddp_relu_check_backward(const struct ddp_relu_backward *args)
{
    return ddp_check_elements("relu backward", args->count, args->y && args->dy && args->dx,
                              args->dtype);
}

enum ddp_status ddp_relu_forward(const struct ddp_relu_forward *args, void *stream);
enum ddp_status ddp_relu_backward(const struct ddp_relu_backward *args, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Mean squared error of float32 targets, as torch.nn.functional.mse_loss (mean over all elements),
 * fused with its gradient, which may be written over the output. */
#ifndef DDP_KERNELS_MSE_H
#define DDP_KERNELS_MSE_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_mse {
    int64_t count;
    enum ddp_dtype dtype; /* of x and dx: DDP_F32 or DDP_BF16 */
    const void *x;        /* (n) what the network gives */
    const float *targets; /* (n) */
    float *loss;          /* (1) out: mean of (x - target)^2; 0 for no elements */
    void *dx;             /* (n) out: gradient of loss; may equal x; NULL: not needed */
    const float *dloss;   /* (1) the gradient of the loss itself; NULL: 1 */
};

static inline enum ddp_status ddp_mse_check(const struct ddp_mse *args)
{
    if (!args->loss)
        return ddp_fail(DDP_ERR_INVALID, "mse: loss is NULL");
    return ddp_check_elements("mse", args->count, args->x && args->targets, args->dtype);
}

enum ddp_status ddp_mse(const struct ddp_mse *args, void *stream);

#endif

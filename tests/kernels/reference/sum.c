/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements; see sum.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_sum_forward_reference(const struct ddp_sum_forward *args, void *stream)
{
    const float *x = args->x;
    (void)stream;
    enum ddp_status status = ddp_sum_check_forward(args);
    if (status)
        return status;
    double sum = 0;
    for (int64_t i = 0; i < args->count; i++)
        sum += (double)x[i];
    *args->y = (float)sum;
    return DDP_OK;
}

enum ddp_status ddp_sum_backward_reference(const struct ddp_sum_backward *args, void *stream)
{
    float *dx = args->dx;
    (void)stream;
    enum ddp_status status = ddp_sum_check_backward(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++)
        dx[i] = *args->dy;
    return DDP_OK;
}

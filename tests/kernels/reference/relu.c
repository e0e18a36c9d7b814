/* SPDX-License-Identifier: MIT
 *
 * ReLU; see relu.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_relu_forward_reference(const struct ddp_relu_forward *args, void *stream)
{
    const float *x = args->x;
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_relu_check_forward(args);
    for (int64_t i = 0; status == DDP_OK && i < args->count; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
    return status;
}

enum ddp_status ddp_relu_backward_reference(const struct ddp_relu_backward *args, void *stream)
{
    const float *y = args->y;
    const float *dy = args->dy;
    (void)stream;
    enum ddp_status status = ddp_relu_check_backward(args);
    for (int64_t i = 0; status == DDP_OK && i < args->count; i++) {
        const float dx = y[i] > 0 ? dy[i] : 0;
        ((float *)args->dx)[i] = args->accumulate_dx ? ((float *)args->dx)[i] + dx : dx;
    }
    return status;
}

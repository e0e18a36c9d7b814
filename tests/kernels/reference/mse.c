/* SPDX-License-Identifier: MIT
 *
 * Mean squared error in double precision; see mse.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_mse_reference(const struct ddp_mse *args, void *stream)
{
    const float *x = args->x;
    float *dx = args->dx;
    (void)stream;
    enum ddp_status status = ddp_mse_check(args);
    if (status)
        return status;
    double sum = 0;
    for (int64_t i = 0; i < args->count; i++) {
        const double difference = (double)x[i] - (double)args->targets[i];
        sum += difference * difference;
        if (dx)
            dx[i] = (float)(2 * difference / (double)args->count);
    }
    *args->loss = args->count > 0 ? (float)(sum / (double)args->count) : 0;
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * SwiGLU in double precision; see swiglu.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>

static void put(float *to, double value, bool accumulate)
{
    *to = (float)(accumulate ? (double)*to + value : value);
}

enum ddp_status ddp_swiglu_forward_reference(const struct ddp_swiglu_forward *args, void *stream)
{
    const float *gate = args->gate, *up = args->up;
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_swiglu_check_forward(args);
    for (int64_t i = 0; status == DDP_OK && i < args->count; i++)
        y[i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
    return status;
}

enum ddp_status ddp_swiglu_backward_reference(const struct ddp_swiglu_backward *args, void *stream)
{
    const float *gate = args->gate, *up = args->up, *dy = args->dy;
    float *dgate = args->dgate, *dup = args->dup;
    (void)stream;
    enum ddp_status status = ddp_swiglu_check_backward(args);
    for (int64_t i = 0; status == DDP_OK && i < args->count; i++) {
        const double z = (double)gate[i], u = (double)up[i], d = (double)dy[i];
        const double sigmoid = 1 / (1 + exp(-z)), slope = sigmoid * (1 - sigmoid);
        if (dgate)
            put(&dgate[i], d * u * (sigmoid + z * slope), args->accumulate_dgate);
        if (dup)
            put(&dup[i], d * z * sigmoid, args->accumulate_dup);
    }
    return status;
}

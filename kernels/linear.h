/* SPDX-License-Identifier: MIT
 *
 * y = activation(x W^T + b), as torch.nn.Linear followed by its activation, and its gradients. */
#ifndef DDP_KERNELS_LINEAR_H
#define DDP_KERNELS_LINEAR_H

#include "ddp.h"

enum ddp_activation {
    DDP_ACTIVATION_NONE = 0,
    DDP_ACTIVATION_RELU = 1,
};

struct ddp_linear_forward {
    int64_t rows, in, out; /* B, C, O */
    enum ddp_activation activation;
    const float *x;      /* (B,C) */
    const float *weight; /* (O,C) */
    const float *bias;   /* (O), or NULL: none */
    float *y;            /* (B,O) out */
};

struct ddp_linear_backward {
    int64_t rows, in, out;
    enum ddp_activation activation;
    const float *x;      /* (B,C) the input of forward */
    const float *y;      /* (B,O) the output of forward; may be NULL without an activation */
    const float *weight; /* (O,C) */
    float *dy; /* (B,O) gradient of y; with an activation overwritten by the gradient before it */
    float *dx; /* (B,C) out, or NULL: not needed */
    float *dweight; /* (O,C) out, or NULL */
    float *dbias;   /* (O) out, or NULL; rows are added from the first to the last */
};

enum ddp_status ddp_linear_forward(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_linear_forward_reference(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_linear_backward(const struct ddp_linear_backward *args, void *stream);
enum ddp_status ddp_linear_backward_reference(const struct ddp_linear_backward *args, void *stream);

#endif

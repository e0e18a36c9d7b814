/* SPDX-License-Identifier: MIT
 *
 * What the versions of the linear layer share on all devices: the arguments, checked, and the
 * layout of the scratch memory. Private to linear*. */
#ifndef DDP_KERNELS_LINEAR_CHECK_H
#define DDP_KERNELS_LINEAR_CHECK_H

#include "kernels/linear.h"

enum ddp_status ddp_linear_check_forward(const struct ddp_linear_forward *args);
enum ddp_status ddp_linear_check_backward(const struct ddp_linear_backward *args);

static inline int64_t ddp_linear_stride(int64_t y_stride, int64_t out)
{
    return y_stride > 0 ? y_stride : out;
}

static inline bool ddp_linear_is_gelu(enum ddp_activation activation)
{
    return activation == DDP_ACTIVATION_GELU || activation == DDP_ACTIVATION_GELU_TANH;
}

/* Where the operands that are rounded to bf16 lie in the scratch memory. */
struct ddp_linear_rounded {
    uint16_t *x, *dy, *weight;
};

struct ddp_linear_rounded ddp_linear_rounded_in(void *scratch, int64_t rows, int64_t in,
                                                int64_t out, enum ddp_dtype dtype);

#endif

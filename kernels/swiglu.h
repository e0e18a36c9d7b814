/* SPDX-License-Identifier: MIT
 *
 * The gated activation of a perceptron: y = silu(gate) * up, silu(z) = z / (1 + exp(-z)),
 * elementwise. */
#ifndef DDP_KERNELS_SWIGLU_H
#define DDP_KERNELS_SWIGLU_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_swiglu_forward {
    int64_t count;
    enum ddp_dtype dtype; /* of all arrays: DDP_F32 or DDP_BF16 */
    const void *gate;     /* (n) */
    const void *up;       /* (n) */
    void *y;              /* (n) out; may be gate or up */
};

struct ddp_swiglu_backward {
    int64_t count;
    enum ddp_dtype dtype; /* of all arrays: DDP_F32 or DDP_BF16 */
    const void *gate;     /* (n) the inputs of forward */
    const void *up;       /* (n) */
    const void *dy;       /* (n) */
    /* Out; NULL: not needed. Each may be gate, up or dy, if it is not accumulated, or both may be
     * the same, if that of up is accumulated. */
    void *dgate, *dup;                     /* (n) */
    bool accumulate_dgate, accumulate_dup; /* add to what is there; false: overwrite it */
};

static inline enum ddp_status ddp_swiglu_check_forward(const struct ddp_swiglu_forward *args)
{
    return ddp_check_elements("swiglu", args->count, args->gate && args->up && args->y,
                              args->dtype);
}

static inline enum ddp_status ddp_swiglu_check_backward(const struct ddp_swiglu_backward *args)
{
    return ddp_check_elements("swiglu backward", args->count, args->gate && args->up && args->dy,
                              args->dtype);
}

enum ddp_status ddp_swiglu_forward(const struct ddp_swiglu_forward *args, void *stream);
enum ddp_status ddp_swiglu_backward(const struct ddp_swiglu_backward *args, void *stream);

#endif

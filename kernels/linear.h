/* SPDX-License-Identifier: MIT
 *
 * y = activation(x W^T + b), as torch.nn.Linear followed by its activation, and its gradients. */
#ifndef DDP_KERNELS_LINEAR_H
#define DDP_KERNELS_LINEAR_H

#include "ddp.h"

/* With compute DDP_BF16 the operands of each product are rounded to bf16 (nearest, ties to even)
 * and the products added in float32. The rounded weights may be handed in as weight_bf16, the same
 * values as `weight`; else they are made in the scratch memory. A dtype of DDP_BF16 goes with this
 * only: its tensors are operands as they are, results and the bias that is added to them are
 * rounded once, and what is added to dweight and dbias stays float32. */

struct ddp_linear_forward {
    int64_t rows, in, out; /* B, C, O */
    int64_t y_stride; /* from row to row of y: O, or 0, which is O; more with a dtype of DDP_BF16
                         and without an activation, what lies between is not written */
    enum ddp_activation activation;
    enum ddp_dtype compute;      /* DDP_F32 or DDP_BF16 */
    enum ddp_dtype dtype;        /* of x, y and pre: DDP_F32 or DDP_BF16 */
    const void *x;               /* (B,C) */
    const float *weight;         /* (O,C); with weight_bf16 not read, may be NULL */
    const uint16_t *weight_bf16; /* (O,C), or NULL */
    const float *bias;           /* (O), or NULL: none */
    const uint16_t *bias_bf16; /* (O) rounded, which saves a pass with a dtype of DDP_BF16; NULL */
    void *y;                   /* (B,O) out */
    void *pre;     /* (B,O) out: what the activation took, for the backward pass of the two GELUs
                       (other activations leave it alone); NULL: not needed. Not y. */
    void *scratch; /* ddp_linear_scratch_bytes(), aligned to 64; NULL where that is 0 */
};

struct ddp_linear_backward {
    int64_t rows, in, out;
    int64_t y_stride; /* of dy, likewise; what lies between is not read */
    enum ddp_activation activation;
    enum ddp_dtype compute;
    enum ddp_dtype dtype;        /* of x, y, pre and their gradients: DDP_F32 or DDP_BF16 */
    const void *x;               /* (B,C) the input of forward */
    const void *y;               /* (B,O) the output of forward; read for ReLU only */
    const void *pre;             /* (B,O) read for the GELUs only */
    const float *weight;         /* (O,C) */
    const uint16_t *weight_bf16; /* (O,C), or NULL */
    void *dy; /* (B,O) gradient of y; with an activation overwritten by the gradient before it */
    void *dx; /* (B,C) out, or NULL: not needed */
    float *dweight;          /* (O,C) out, or NULL */
    float *dbias;            /* (O) out, or NULL; rows are added from the first to the last */
    bool accumulate_dx;      /* add to what is in dx; false: overwrite it, whatever it is */
    bool accumulate_dweight; /* likewise */
    bool accumulate_dbias;   /* likewise: the sum over rows is made first, then added */
    void *scratch;           /* as in forward, and the same size */
};

/* What either pass needs for a shape: memory for operands that have to be rounded. 0 for DDP_F32,
 * and with a dtype of DDP_BF16 and weight_bf16. */
size_t ddp_linear_scratch_bytes(int64_t rows, int64_t in, int64_t out, enum ddp_dtype compute,
                                enum ddp_dtype dtype, bool has_weight_bf16);

enum ddp_status ddp_linear_forward(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_linear_forward_reference(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_linear_backward(const struct ddp_linear_backward *args, void *stream);
enum ddp_status ddp_linear_backward_reference(const struct ddp_linear_backward *args, void *stream);

#endif

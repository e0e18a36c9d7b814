/* SPDX-License-Identifier: MIT
 *
 * Layer norm over the last dimension, as torch.nn.LayerNorm:
 * y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(variance + eps), the variance over C. */
#ifndef DDP_KERNELS_LAYER_NORM_H
#define DDP_KERNELS_LAYER_NORM_H

#include "ddp.h"

struct ddp_layer_norm_forward {
    int64_t rows, features; /* B, C */
    float eps;
    const float *x;     /* (B,C) */
    const float *gamma; /* (C), or NULL: ones */
    const float *beta;  /* (C), or NULL: zeros */
    float *y;           /* (B,C) out; may be x */
    float *statistics;  /* (B,2) out: mean and rstd of each row; NULL: not needed */
};

struct ddp_layer_norm_backward {
    int64_t rows, features;
    const float *x;          /* (B,C) the input of forward */
    const float *gamma;      /* (C), or NULL: ones */
    const float *statistics; /* (B,2) from forward */
    const float *dy;         /* (B,C) */
    float *dx;               /* (B,C) out, or NULL: not needed; may be dy, if not accumulated */
    float *dgamma;           /* (C) out, or NULL */
    float *dbeta;            /* (C) out, or NULL */
    bool accumulate_dx;      /* add to what is in dx; false: overwrite it, whatever it is */
    bool accumulate;         /* likewise for dgamma and dbeta */
    void *scratch; /* ddp_layer_norm_scratch_bytes(), aligned to 64; NULL where that is 0 */
};

/* What backward needs: the sums of fixed blocks of rows, added in the order of the blocks. */
size_t ddp_layer_norm_scratch_bytes(int64_t rows, int64_t features);

enum ddp_status ddp_layer_norm_forward(const struct ddp_layer_norm_forward *args, void *stream);
enum ddp_status ddp_layer_norm_forward_reference(const struct ddp_layer_norm_forward *args,
                                                 void *stream);
enum ddp_status ddp_layer_norm_backward(const struct ddp_layer_norm_backward *args, void *stream);
enum ddp_status ddp_layer_norm_backward_reference(const struct ddp_layer_norm_backward *args,
                                                  void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Layer norm over the last dimension, as torch.nn.LayerNorm:
 * y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(variance + eps), the variance over C.
 * RMS norm, as torch.nn.RMSNorm, is the same with a mean of 0: y = x * rstd * gamma,
 * rstd = 1 / sqrt(mean of x^2 + eps). It has no beta. */
#ifndef DDP_KERNELS_LAYER_NORM_H
#define DDP_KERNELS_LAYER_NORM_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_layer_norm_forward {
    int64_t rows, features; /* B, C */
    enum ddp_dtype dtype;   /* of x and y: DDP_F32 or DDP_BF16 */
    float eps;
    bool rms;           /* RMS norm: beta is NULL, and the mean in the statistics 0 */
    const void *x;      /* (B,C) */
    const float *gamma; /* (C), or NULL: ones */
    const float *beta;  /* (C), or NULL: zeros */
    void *y;            /* (B,C) out; may be x */
    float *statistics;  /* (B,2) out: mean and rstd of each row; NULL: not needed */
};

/* The sum of a residual connection and its norm in one pass: as ddp_add, then
 * ddp_layer_norm_forward of what it stored; the same bits. */
struct ddp_add_layer_norm_forward {
    int64_t rows, features;
    enum ddp_dtype dtype; /* of a, b, sum and y */
    float eps;
    bool rms;           /* as above */
    const void *a, *b;  /* (B,C) */
    void *sum;          /* (B,C) out: a + b; may be a or b */
    const float *gamma; /* (C), or NULL: ones */
    const float *beta;  /* (C), or NULL: zeros */
    void *y;            /* (B,C) out */
    float *statistics;  /* (B,2) out: mean and rstd of each row of sum; NULL: not needed */
};

struct ddp_layer_norm_backward {
    int64_t rows, features;
    enum ddp_dtype dtype;    /* of x and the gradients of x and y: DDP_F32 or DDP_BF16 */
    bool rms;                /* RMS norm: dbeta is NULL */
    const void *x;           /* (B,C) the input of forward */
    const float *gamma;      /* (C), or NULL: ones */
    const float *statistics; /* (B,2) from forward */
    const void *dy;          /* (B,C) */
    void *dx;                /* (B,C) out, or NULL: not needed; may be dy, if not accumulated */
    float *dgamma;           /* (C) out, or NULL */
    float *dbeta;            /* (C) out, or NULL */
    bool accumulate_dx;      /* add to what is in dx; false: overwrite it, whatever it is */
    bool accumulate;         /* likewise for dgamma and dbeta */
    void *scratch; /* ddp_layer_norm_scratch_bytes(), aligned to 64; NULL where that is 0 */
};

/* What backward needs: the sums of fixed blocks of rows, added in the order of the blocks. */
size_t ddp_layer_norm_scratch_bytes(int64_t rows, int64_t features);

static inline enum ddp_status ddp_layer_norm_check(const char *operation, int64_t rows,
                                                   int64_t features, float eps, bool given,
                                                   enum ddp_dtype dtype)
{
    if (rows < 0 || features < 0)
        return ddp_fail(DDP_ERR_INVALID, "%s: negative size (%lld rows, %lld features)", operation,
                        (long long)rows, (long long)features);
    if (!(eps >= 0))
        return ddp_fail(DDP_ERR_INVALID, "%s: eps %g is negative", operation, (double)eps);
    if (rows > 0 && features > 0 && !given)
        return ddp_fail(DDP_ERR_INVALID, "%s: NULL where elements are needed", operation);
    return ddp_check_dtype(operation, dtype);
}

static inline enum ddp_status ddp_layer_norm_check_beta(const char *operation, bool rms,
                                                        const float *beta)
{
    return rms && beta ? ddp_fail(DDP_ERR_INVALID, "%s: an RMS norm has no beta", operation)
                       : DDP_OK;
}

static inline enum ddp_status
ddp_layer_norm_check_forward(const struct ddp_layer_norm_forward *args)
{
    const enum ddp_status status = ddp_layer_norm_check_beta("layer norm", args->rms, args->beta);
    return status ? status
                  : ddp_layer_norm_check("layer norm", args->rows, args->features, args->eps,
                                         args->x && args->y, args->dtype);
}

static inline enum ddp_status
ddp_layer_norm_check_backward(const struct ddp_layer_norm_backward *args)
{
    if (args->rows > 0 && args->features > 0 && (args->dgamma || args->dbeta) && !args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "layer norm backward: no scratch memory");
    const enum ddp_status status =
        ddp_layer_norm_check_beta("layer norm backward", args->rms, args->dbeta);
    return status ? status
                  : ddp_layer_norm_check("layer norm backward", args->rows, args->features, 0,
                                         args->x && args->statistics && args->dy, args->dtype);
}

enum ddp_status ddp_layer_norm_forward(const struct ddp_layer_norm_forward *args, void *stream);
enum ddp_status ddp_layer_norm_backward(const struct ddp_layer_norm_backward *args, void *stream);

#endif

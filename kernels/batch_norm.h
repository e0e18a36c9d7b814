/* SPDX-License-Identifier: MIT
 *
 * Batch norm over channels, as torch.nn.BatchNorm2d on channels-last images (B,H,W,C) seen as rows
 * of C channels, with an optional residual that is added and an optional ReLU after it:
 *
 *     y = activation((x - mean) * rstd * gamma + beta + residual)
 *
 * Each pass has two halves. The first makes sums over rows, in double precision, which may be added
 * over ranks before the second half reads them: then `count` is the rows of all ranks, and the norm
 * is a synchronised one (torch.nn.SyncBatchNorm). */
#ifndef DDP_KERNELS_BATCH_NORM_H
#define DDP_KERNELS_BATCH_NORM_H

#include "ddp.h"

#include "kernels/check.h"

/* First half of the training forward pass. */
struct ddp_batch_norm_sums {
    int64_t rows, channels; /* B*H*W, C */
    enum ddp_dtype dtype;   /* of x: DDP_F32 or DDP_BF16 */
    const void *x;          /* (rows,C) */
    double *sums;           /* (2,C) out: sums of x, sums of its squares */
    void *scratch;          /* ddp_batch_norm_scratch_bytes(), 64-byte aligned */
};

/* Second half; or, with sums NULL, the whole of evaluation. */
struct ddp_batch_norm_forward {
    int64_t rows, channels;
    enum ddp_dtype dtype;           /* of x, residual and y: DDP_F32 or DDP_BF16 */
    enum ddp_activation activation; /* none or ReLU */
    float epsilon;
    const void *x;        /* (rows,C) */
    const float *gamma;   /* (C) */
    const float *beta;    /* (C) */
    const void *residual; /* (rows,C), or NULL: none */
    const double *sums;   /* (2,C) of the first half; NULL: evaluation, by the running statistics */
    double count;         /* rows that are in sums; at least 2, as PyTorch wants */
    const float *running_mean, *running_var; /* (C) each; evaluation only */
    void *y;      /* (rows,C) out; may be the memory of x or residual in evaluation */
    float *saved; /* (2,C) out: mean, 1/sqrt(biased variance + epsilon), for backward;
                     training only */
    float *stat_mean, *stat_var; /* (C) out, or NULL: mean and UNBIASED variance, for the running
                                    statistics; training only */
    bool accumulate_stat;        /* add to them; else overwrite */
};

/* First half of the backward pass. With dz the gradient through the activation and xhat the
 * normalised x: */
struct ddp_batch_norm_backward_sums {
    int64_t rows, channels;
    enum ddp_dtype dtype; /* of x, y and dy: DDP_F32 or DDP_BF16 */
    enum ddp_activation activation;
    bool has_residual;
    const void *x;  /* (rows,C) input of forward */
    const void *y;  /* (rows,C) its output; read only with ReLU and a residual, else may be NULL */
    const void *dy; /* (rows,C) gradient of y */
    const float *gamma; /* (C) */
    const float *beta;  /* (C) */
    const float *saved; /* (2,C) of forward */
    double *sums;  /* (2,C) out: sums of dz, sums of dz * xhat; of this rank's rows: the gradients
                      of beta and gamma */
    void *scratch; /* ddp_batch_norm_scratch_bytes() */
};

/* Second half. */
struct ddp_batch_norm_backward {
    int64_t rows, channels;
    enum ddp_dtype dtype; /* of x, y, the residual and their gradients: DDP_F32 or DDP_BF16 */
    enum ddp_activation activation;
    const void *x, *y, *dy;            /* as in the first half */
    const float *gamma, *beta, *saved; /* likewise */
    const double *sums; /* (2,C) of the first half, added over ranks for a synchronised norm */
    double count;       /* rows that are in sums */
    const double *local_sums; /* (2,C) of this rank's rows; may be the same memory as sums */
    void *dx;          /* (rows,C) out, or NULL; may be the memory of dy when not accumulated */
    void *dresidual;   /* (rows,C) out, or NULL; dz */
    bool has_residual; /* forward had one, whether or not its gradient is wanted */
    float *dgamma;     /* (C) out, or NULL */
    float *dbeta;      /* (C) out, or NULL */
    bool accumulate_dx, accumulate_dresidual; /* add; else overwrite */
    bool accumulate;                          /* the same for dgamma and dbeta */
};

static inline enum ddp_status ddp_batch_norm_check_shape(int64_t rows, int64_t channels,
                                                         enum ddp_activation activation,
                                                         enum ddp_dtype dtype)
{
    size_t bytes;
    if (rows < 0 || channels < 1 || channels > INT32_MAX ||
        !ddp_size_multiply((size_t)rows, (size_t)channels * sizeof(float), &bytes) ||
        bytes > INT64_MAX)
        return ddp_fail(DDP_ERR_INVALID, "batch norm: %lld rows of %lld channels", (long long)rows,
                        (long long)channels);
    if (activation != DDP_ACTIVATION_NONE && activation != DDP_ACTIVATION_RELU)
        return ddp_fail(DDP_ERR_INVALID, "batch norm: activation %d is not fused", (int)activation);
    return ddp_check_dtype("batch norm", dtype);
}

static inline enum ddp_status ddp_batch_norm_missing(bool is)
{
    return is ? ddp_fail(DDP_ERR_INVALID, "batch norm: NULL where elements are needed") : DDP_OK;
}

static inline enum ddp_status ddp_batch_norm_check_sums(const struct ddp_batch_norm_sums *a)
{
    enum ddp_status status =
        ddp_batch_norm_check_shape(a->rows, a->channels, DDP_ACTIVATION_NONE, a->dtype);
    return status ? status : ddp_batch_norm_missing(!a->sums || (a->rows > 0 && !a->x));
}

static inline enum ddp_status ddp_batch_norm_check_forward(const struct ddp_batch_norm_forward *a)
{
    enum ddp_status status =
        ddp_batch_norm_check_shape(a->rows, a->channels, a->activation, a->dtype);
    if (status)
        return status;
    if (a->sums && !(a->count >= 2))
        return ddp_fail(DDP_ERR_INVALID,
                        "batch norm: training needs at least 2 values of each channel, not %g",
                        a->count);
    bool is = !a->gamma || !a->beta || (a->rows > 0 && (!a->x || !a->y));
    is |= a->sums ? !a->saved : !a->running_mean || !a->running_var;
    return ddp_batch_norm_missing(is);
}

static inline enum ddp_status
ddp_batch_norm_check_backward_sums(const struct ddp_batch_norm_backward_sums *a)
{
    enum ddp_status status =
        ddp_batch_norm_check_shape(a->rows, a->channels, a->activation, a->dtype);
    if (status)
        return status;
    bool is = !a->gamma || !a->beta || !a->saved || !a->sums;
    is |= a->rows > 0 && (!a->x || !a->dy);
    is |= a->rows > 0 && a->activation != DDP_ACTIVATION_NONE && a->has_residual && !a->y;
    return ddp_batch_norm_missing(is);
}

static inline enum ddp_status ddp_batch_norm_check_backward(const struct ddp_batch_norm_backward *a)
{
    enum ddp_status status =
        ddp_batch_norm_check_shape(a->rows, a->channels, a->activation, a->dtype);
    if (status)
        return status;
    if (a->rows > 0 && !(a->count > 0))
        return ddp_fail(DDP_ERR_INVALID, "batch norm: sums of %g rows", a->count);
    bool is = !a->gamma || !a->beta || !a->saved || !a->sums;
    is |= (a->dgamma || a->dbeta) && !a->local_sums;
    is |= a->rows > 0 && (!a->x || !a->dy);
    is |= a->rows > 0 && a->activation != DDP_ACTIVATION_NONE && a->has_residual && !a->y;
    return ddp_batch_norm_missing(is);
}

size_t ddp_batch_norm_scratch_bytes(int64_t rows, int64_t channels);

enum ddp_status ddp_batch_norm_sums(const struct ddp_batch_norm_sums *args, void *stream);
enum ddp_status ddp_batch_norm_forward(const struct ddp_batch_norm_forward *args, void *stream);
enum ddp_status ddp_batch_norm_backward_sums(const struct ddp_batch_norm_backward_sums *args,
                                             void *stream);
enum ddp_status ddp_batch_norm_backward(const struct ddp_batch_norm_backward *args, void *stream);

#endif

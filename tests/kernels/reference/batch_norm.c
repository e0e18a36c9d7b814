/* SPDX-License-Identifier: MIT
 *
 * Batch norm as its formulas say it, in double precision; see batch_norm.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>
#include <string.h>

/* --- once for each channel -------------------------------------------------------------------- */

static void statistics(const struct ddp_batch_norm_forward *a)
{
    for (int64_t c = 0; c < a->channels; c++) {
        const double mean = a->sums[c] / a->count;
        double variance = a->sums[a->channels + c] / a->count - mean * mean;
        if (variance < 0) /* rounding; NaN stays */
            variance = 0;
        a->saved[c] = (float)mean;
        a->saved[a->channels + c] = (float)(1 / sqrt(variance + (double)a->epsilon));
        if (a->stat_mean)
            a->stat_mean[c] = a->accumulate_stat ? a->stat_mean[c] + (float)mean : (float)mean;
        if (a->stat_var)
            a->stat_var[c] = a->accumulate_stat
                                 ? a->stat_var[c] + (float)(variance * (a->count / (a->count - 1)))
                                 : (float)(variance * (a->count / (a->count - 1)));
    }
}

static void parameters(const struct ddp_batch_norm_backward *a)
{
    for (int64_t c = 0; a->dbeta && c < a->channels; c++)
        a->dbeta[c] = (a->accumulate ? a->dbeta[c] : 0) + (float)a->local_sums[c];
    for (int64_t c = 0; a->dgamma && c < a->channels; c++)
        a->dgamma[c] = (a->accumulate ? a->dgamma[c] : 0) + (float)a->local_sums[a->channels + c];
}

/* --- the plain version ------------------------------------------------------------------------ */

enum ddp_status ddp_batch_norm_sums_reference(const struct ddp_batch_norm_sums *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_batch_norm_check_sums(args);
    if (status)
        return status;
    memset(args->sums, 0, (size_t)args->channels * 2 * sizeof *args->sums);
    for (int64_t i = 0; i < args->rows * args->channels; i++) {
        const double x = (double)((const float *)args->x)[i];
        args->sums[i % args->channels] += x;
        args->sums[args->channels + i % args->channels] += x * x;
    }
    return DDP_OK;
}

enum ddp_status ddp_batch_norm_forward_reference(const struct ddp_batch_norm_forward *args,
                                                 void *stream)
{
    const float *x = args->x;
    const float *residual = args->residual;
    (void)stream;
    enum ddp_status status = ddp_batch_norm_check_forward(args);
    if (status)
        return status;
    if (args->sums)
        statistics(args);
    for (int64_t i = 0; i < args->rows * args->channels; i++) {
        const int64_t c = i % args->channels;
        double mean, rstd;
        if (args->sums) {
            mean = (double)args->saved[c];
            rstd = (double)args->saved[args->channels + c];
        } else {
            mean = (double)args->running_mean[c];
            rstd = 1 / sqrt((double)args->running_var[c] + (double)args->epsilon);
        }
        double y = ((double)x[i] - mean) * rstd * (double)args->gamma[c] + (double)args->beta[c];
        if (residual)
            y += (double)residual[i];
        ((float *)args->y)[i] = args->activation == DDP_ACTIVATION_RELU && y < 0 ? 0 : (float)y;
    }
    return DDP_OK;
}

/* The gradient through the activation. Without a residual the sign of y is computed again. */
static double gradient_at(const float *x, const float *y, const float *dy, const float *gamma,
                          const float *beta, const float *saved, int64_t channels, bool relu,
                          bool residual, int64_t i)
{
    const int64_t c = i % channels;
    const float scale = saved[channels + c] * gamma[c];
    const float value = relu && residual ? y[i] : (x[i] - saved[c]) * scale + beta[c];
    return relu && !(value > 0) ? 0 : (double)dy[i];
}

enum ddp_status
ddp_batch_norm_backward_sums_reference(const struct ddp_batch_norm_backward_sums *args,
                                       void *stream)
{
    const float *x = args->x;
    (void)stream;
    enum ddp_status status = ddp_batch_norm_check_backward_sums(args);
    if (status)
        return status;
    const int64_t channels = args->channels;
    memset(args->sums, 0, (size_t)channels * 2 * sizeof *args->sums);
    for (int64_t i = 0; i < args->rows * channels; i++) {
        const int64_t c = i % channels;
        const double dz =
            gradient_at(x, args->y, args->dy, args->gamma, args->beta, args->saved, channels,
                        args->activation == DDP_ACTIVATION_RELU, args->has_residual, i);
        args->sums[c] += dz;
        args->sums[channels + c] +=
            dz * ((double)x[i] - (double)args->saved[c]) * (double)args->saved[channels + c];
    }
    return DDP_OK;
}

enum ddp_status ddp_batch_norm_backward_reference(const struct ddp_batch_norm_backward *args,
                                                  void *stream)
{
    float *dresidual = args->dresidual;
    (void)stream;
    enum ddp_status status = ddp_batch_norm_check_backward(args);
    if (status)
        return status;
    parameters(args);
    const int64_t channels = args->channels;
    for (int64_t i = 0; i < args->rows * channels; i++) {
        const int64_t c = i % channels;
        const double dz =
            gradient_at(args->x, args->y, args->dy, args->gamma, args->beta, args->saved, channels,
                        args->activation == DDP_ACTIVATION_RELU, args->has_residual, i);
        const double rstd = (double)args->saved[channels + c];
        const double xhat = ((double)((const float *)args->x)[i] - (double)args->saved[c]) * rstd;
        const double dx =
            (double)args->gamma[c] * rstd *
            (dz - args->sums[c] / args->count - xhat * (args->sums[channels + c] / args->count));
        if (args->dx)
            ((float *)args->dx)[i] =
                (float)(dx + (args->accumulate_dx ? (double)((float *)args->dx)[i] : 0));
        if (dresidual && args->has_residual)
            dresidual[i] = (float)(dz + (args->accumulate_dresidual ? (double)dresidual[i] : 0));
    }
    return DDP_OK;
}

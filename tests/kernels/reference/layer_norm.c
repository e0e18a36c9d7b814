/* SPDX-License-Identifier: MIT
 *
 * Layer norm in double precision; see layer_norm.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>

enum ddp_status ddp_layer_norm_forward_reference(const struct ddp_layer_norm_forward *args,
                                                 void *stream)
{
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_layer_norm_check_forward(args);
    if (status)
        return status;
    const int64_t n = args->features;
    for (int64_t row = 0; n > 0 && row < args->rows; row++) {
        const float *x = (const float *)args->x + row * n;
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < n && !args->rms; j++)
            mean += (double)x[j] / (double)n;
        for (int64_t j = 0; j < n; j++)
            variance += ((double)x[j] - mean) * ((double)x[j] - mean) / (double)n;
        double rstd = 1 / sqrt(variance + (double)args->eps);
        for (int64_t j = 0; j < n; j++) {
            double value = ((double)x[j] - mean) * rstd;
            value *= args->gamma ? (double)args->gamma[j] : 1;
            y[row * n + j] = (float)(value + (args->beta ? (double)args->beta[j] : 0));
        }
        if (args->statistics) {
            args->statistics[2 * row] = (float)mean;
            args->statistics[2 * row + 1] = (float)rstd;
        }
    }
    return DDP_OK;
}

static void reference_dx(const struct ddp_layer_norm_backward *args, int64_t row)
{
    const int64_t n = args->features;
    const float *x = (const float *)args->x + row * n, *dy = (const float *)args->dy + row * n;
    const double mean = (double)args->statistics[2 * row];
    const double rstd = (double)args->statistics[2 * row + 1];
    double mean_g = 0, mean_gx = 0;
    for (int64_t j = 0; j < n; j++) {
        double g = (double)dy[j] * (args->gamma ? (double)args->gamma[j] : 1);
        mean_g += args->rms ? 0 : g / (double)n;
        mean_gx += g * ((double)x[j] - mean) * rstd / (double)n;
    }
    for (int64_t j = 0; j < n; j++) {
        double g = (double)dy[j] * (args->gamma ? (double)args->gamma[j] : 1);
        double value = rstd * (g - mean_g - ((double)x[j] - mean) * rstd * mean_gx);
        float *dx = &((float *)args->dx)[row * n + j];
        *dx = (float)(args->accumulate_dx ? (double)*dx + value : value);
    }
}

enum ddp_status ddp_layer_norm_backward_reference(const struct ddp_layer_norm_backward *args,
                                                  void *stream)
{
    const float *x = args->x;
    (void)stream;
    enum ddp_status status = ddp_layer_norm_check_backward(args);
    if (status)
        return status;
    const int64_t n = args->features;
    for (int64_t j = 0; j < n; j++) {
        double dgamma = 0, dbeta = 0;
        for (int64_t row = 0; row < args->rows; row++) {
            const double dy = (double)((const float *)args->dy)[row * n + j];
            dbeta += dy;
            dgamma += dy * ((double)x[row * n + j] - (double)args->statistics[2 * row]) *
                      (double)args->statistics[2 * row + 1];
        }
        if (args->dgamma)
            args->dgamma[j] = (args->accumulate ? args->dgamma[j] : 0) + (float)dgamma;
        if (args->dbeta)
            args->dbeta[j] = (args->accumulate ? args->dbeta[j] : 0) + (float)dbeta;
    }
    for (int64_t row = 0; args->dx && n > 0 && row < args->rows; row++)
        reference_dx(args, row);
    return DDP_OK;
}

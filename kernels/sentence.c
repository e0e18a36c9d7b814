/* SPDX-License-Identifier: MIT
 *
 * See sentence.h. Vectors of sentences are few beside those of their tokens: only the products of
 * the loss have threads. */
#include "config.h"

#include "kernels/sentence.h"

#include "core/portable_math.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

#include <math.h>

#define LEAST_NORM 1e-12 /* torch.nn.functional.normalize() divides by no less */

/* --- mean of tokens --------------------------------------------------------------------------- */

static enum ddp_status check_mean(int64_t batch, int64_t features, enum ddp_dtype dtype,
                                  const int32_t *bounds, bool there)
{
    if (batch < 0 || features < 0)
        return ddp_fail(DDP_ERR_INVALID, "token_mean: bad size (%lld texts, %lld features)",
                        (long long)batch, (long long)features);
    if (batch > 0 && features > 0 && (!there || !bounds))
        return ddp_fail(DDP_ERR_INVALID, "token_mean: x, y, bounds or a gradient is NULL");
    for (int64_t b = 0; b < batch; b++)
        if (bounds[b] < 0 || bounds[b + 1] < bounds[b])
            return ddp_fail(DDP_ERR_INVALID, "token_mean: text %lld from %d to %d", (long long)b,
                            (int)bounds[b], (int)bounds[b + 1]);
    return ddp_check_dtype("token_mean", dtype);
}

enum ddp_status ddp_token_mean_forward(const struct ddp_token_mean_forward *args, void *stream)
{
    const int64_t features = args->features;
    enum ddp_status status =
        check_mean(args->batch, features, args->dtype, args->bounds, args->x && args->y);
    (void)stream;
    for (int64_t b = 0; status == DDP_OK && b < args->batch; b++) {
        const int64_t length = args->first ? 1 : args->bounds[b + 1] - args->bounds[b];
        const float *x = (const float *)args->x + args->bounds[b] * features;
        float *y = (float *)args->y + b * features;
        for (int64_t c = 0; c < features; c++)
            y[c] = x[c];
        for (int64_t t = 1; t < length; t++)
            for (int64_t c = 0; c < features; c++)
                y[c] += x[t * features + c];
        for (int64_t c = 0; length > 1 && c < features; c++)
            y[c] /= (float)length;
    }
    return status;
}

enum ddp_status ddp_token_mean_backward(const struct ddp_token_mean_backward *args, void *stream)
{
    const int64_t features = args->features;
    enum ddp_status status =
        check_mean(args->batch, features, args->dtype, args->bounds, args->dy && args->dx);
    (void)stream;
    for (int64_t b = 0; status == DDP_OK && b < args->batch; b++) {
        const int64_t there = args->bounds[b + 1] - args->bounds[b];
        const int64_t length = args->first ? 1 : there;
        const float *dy = (const float *)args->dy + b * features;
        float *dx = (float *)args->dx + args->bounds[b] * features;
        for (int64_t t = 0; t < there; t++)
            for (int64_t c = 0; c < features; c++) {
                const float gradient = t < length ? dy[c] / (float)length : 0;
                float *to = &dx[t * features + c];
                *to = args->accumulate ? *to + gradient : gradient;
            }
    }
    return status;
}

/* --- tanh ------------------------------------------------------------------------------------- */

enum ddp_status ddp_tanh_forward(const struct ddp_tanh_forward *args, void *stream)
{
    const float *x = args->x;
    float *y = args->y;
    enum ddp_status status = ddp_check_elements("tanh", args->count, x && y, args->dtype);
    (void)stream;
    for (int64_t i = 0; status == DDP_OK && i < args->count; i++) {
        const double e = ddp_math_exp(-2 * fabs((double)x[i]));
        y[i] = (float)copysign((1 - e) / (1 + e), (double)x[i]);
    }
    return status;
}

enum ddp_status ddp_tanh_backward(const struct ddp_tanh_backward *args, void *stream)
{
    const float *y = args->y, *dy = args->dy;
    float *dx = args->dx;
    enum ddp_status status =
        ddp_check_elements("tanh backward", args->count, y && dy && dx, args->dtype);
    (void)stream;
    for (int64_t i = 0; status == DDP_OK && i < args->count; i++) {
        const float gradient = dy[i] * (1 - y[i] * y[i]);
        dx[i] = args->accumulate ? dx[i] + gradient : gradient;
    }
    return status;
}

/* --- the contrastive loss --------------------------------------------------------------------- */

/* Texts are anchors first, then the second texts of all samples, then the third. */
struct work {
    const struct ddp_contrastive *args;
    int64_t others; /* N: texts that are no anchors */
    float *units;   /* (B+N,C) */
    float *dunits;  /* (B+N,C) their gradients */
    float *scores;  /* (B,N) cosines, then their gradients */
    float *norms;   /* (B+N) */
};

/* Where text i lies in x. */
static int64_t place_of(const struct ddp_contrastive *args, int64_t i)
{
    return (i % args->samples * args->texts + i / args->samples) * args->features;
}

static void make_units(const struct work *work)
{
    const struct ddp_contrastive *args = work->args;
    for (int64_t i = 0; i < args->samples * args->texts; i++) {
        const float *x = (const float *)args->x + place_of(args, i);
        float *unit = work->units + i * args->features;
        double sum = 0;
        for (int64_t c = 0; c < args->features; c++)
            sum += (double)x[c] * (double)x[c];
        const double norm = sqrt(sum);
        work->norms[i] = (float)(norm > LEAST_NORM ? norm : LEAST_NORM);
        for (int64_t c = 0; c < args->features; c++)
            unit[c] = x[c] / work->norms[i];
    }
}

/* The mean cross-entropy; cosines become its gradients by them. */
static float take_scores(const struct work *work)
{
    const struct ddp_contrastive *args = work->args;
    const double scale = (double)args->scale, given = args->dloss ? (double)*args->dloss : 1;
    const double factor = scale * given / (double)args->samples;
    double loss = 0;
    for (int64_t i = 0; i < args->samples; i++) {
        float *row = work->scores + i * work->others;
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < work->others; j++)
            most = scale * (double)row[j] > most ? scale * (double)row[j] : most;
        for (int64_t j = 0; j < work->others; j++)
            sum += ddp_math_exp(scale * (double)row[j] - most);
        loss += ddp_math_log(sum) + most - scale * (double)row[i];
        for (int64_t j = 0; args->dx && j < work->others; j++) {
            const double share = ddp_math_exp(scale * (double)row[j] - most) / sum;
            row[j] = (float)((share - (j == i)) * factor);
        }
    }
    return (float)(loss / (double)args->samples);
}

/* Through the division by the norm. */
static void put_gradients(const struct work *work)
{
    const struct ddp_contrastive *args = work->args;
    for (int64_t i = 0; i < args->samples * args->texts; i++) {
        const float *unit = work->units + i * args->features;
        const float *dunit = work->dunits + i * args->features;
        float *dx = (float *)args->dx + place_of(args, i);
        double along = 0;
        for (int64_t c = 0; c < args->features; c++)
            along += (double)unit[c] * (double)dunit[c];
        if (!((double)work->norms[i] > LEAST_NORM))
            along = 0;
        for (int64_t c = 0; c < args->features; c++)
            dx[c] = (dunit[c] - unit[c] * (float)along) / work->norms[i];
    }
}

static enum ddp_status check_contrastive(const struct ddp_contrastive *args)
{
    if (args->samples < 1 || args->texts < 2 || args->features < 1)
        return ddp_fail(
            DDP_ERR_INVALID, "contrastive: bad size (%lld samples of %lld texts, %lld features)",
            (long long)args->samples, (long long)args->texts, (long long)args->features);
    if (!args->x || !args->loss || !args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "contrastive: x, loss or scratch is NULL");
    return ddp_check_dtype("contrastive", args->dtype);
}

enum ddp_status ddp_contrastive(const struct ddp_contrastive *args, void *stream)
{
    enum ddp_status status = check_contrastive(args);
    if (status != DDP_OK)
        return status;
    const int64_t samples = args->samples, features = args->features;
    const int64_t values = samples * args->texts * features;
    struct work work = {.args = args, .others = samples * (args->texts - 1)};
    work.units = args->scratch;
    work.dunits = work.units + values;
    work.scores = work.dunits + values;
    work.norms = work.scores + samples * work.others;
    const float *others = work.units + samples * features;
    make_units(&work);
    status = ddp_gemm(&(struct ddp_gemm){.transpose_b = true,
                                         .m = samples,
                                         .n = work.others,
                                         .k = features,
                                         .a = work.units,
                                         .lda = features,
                                         .b = others,
                                         .ldb = features,
                                         .c = work.scores,
                                         .ldc = work.others},
                      stream);
    if (status != DDP_OK)
        return status;
    *args->loss = take_scores(&work);
    if (!args->dx)
        return DDP_OK;
    status = ddp_gemm(&(struct ddp_gemm){.m = samples,
                                         .n = features,
                                         .k = work.others,
                                         .a = work.scores,
                                         .lda = work.others,
                                         .b = others,
                                         .ldb = features,
                                         .c = work.dunits,
                                         .ldc = features},
                      stream);
    if (status == DDP_OK)
        status = ddp_gemm(&(struct ddp_gemm){.transpose_a = true,
                                             .m = work.others,
                                             .n = features,
                                             .k = samples,
                                             .a = work.scores,
                                             .lda = work.others,
                                             .b = work.units,
                                             .ldb = features,
                                             .c = work.dunits + samples * features,
                                             .ldc = features},
                          stream);
    if (status == DDP_OK)
        put_gradients(&work);
    return status;
}

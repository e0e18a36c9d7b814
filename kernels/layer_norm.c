/* SPDX-License-Identifier: MIT
 *
 * Layer norm on the CPU; see layer_norm.h. A row is summed in sixteen lanes; the sums over rows
 * that gamma and beta need are made in fixed blocks of rows, and the blocks added in order. */
#include "config.h"

#include "kernels/layer_norm.h"

#include "core/log.h"
#include "kernels/cpu/vmath.h"

#define ROWS    16 /* of a task, at least */
#define BLOCKS  64 /* at most, so that backward's scratch memory stays small */
#define COLUMNS 256

static struct ddp_blocks row_blocks(int64_t rows)
{
    int64_t size = rows / BLOCKS + (rows % BLOCKS != 0);
    return ddp_blocks_cut(rows, size > ROWS ? size : ROWS, 1);
}

/* A row of partial sums, in whole vectors. */
static int64_t padded(int64_t features)
{
    return (features + DDP_LANES - 1) / DDP_LANES * DDP_LANES;
}

size_t ddp_layer_norm_scratch_bytes(int64_t rows, int64_t features)
{
    if (rows <= 0 || features <= 0)
        return 0;
    return row_blocks(rows).count * 2 * (size_t)padded(features) * sizeof(float);
}

/* --- forward ---------------------------------------------------------------------------------- */

DDP_INLINE float row_sum(const float *x, int64_t n)
{
    ddp_f32x16 sums = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        sums += ddp_load16(x + i);
    if (i < n)
        sums += ddp_load16_tail(x + i, n - i, 0);
    return ddp_sum16(sums);
}

DDP_INLINE float row_squares(const float *x, int64_t n, float mean)
{
    ddp_f32x16 sums = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES) {
        ddp_f32x16 off = ddp_load16(x + i) - mean;
        sums += off * off;
    }
    if (i < n) {
        ddp_f32x16 off = ddp_load16_tail(x + i, n - i, mean) - mean;
        sums += off * off;
    }
    return ddp_sum16(sums);
}

DDP_INLINE void scale_row(const float *x, const float *gamma, const float *beta, float *y,
                          int64_t n, float mean, float rstd)
{
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES) {
        ddp_f32x16 value = (ddp_load16(x + i) - mean) * rstd;
        if (gamma)
            value *= ddp_load16(gamma + i);
        if (beta)
            value += ddp_load16(beta + i);
        ddp_store16(y + i, value);
    }
    for (; i < n; i++) {
        float value = (x[i] - mean) * rstd;
        value = gamma ? value * gamma[i] : value;
        y[i] = beta ? value + beta[i] : value;
    }
}

DDP_MULTIVERSION
static void forward_rows(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_layer_norm_forward *args = arg;
    float *y = args->y;
    const int64_t n = args->features;
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)args->x + row * n;
        const float mean = args->rms ? 0 : row_sum(x, n) / (float)n;
        const float rstd = 1 / sqrtf(row_squares(x, n, mean) / (float)n + args->eps);
        scale_row(x, args->gamma, args->beta, y + row * n, n, mean, rstd);
        if (args->statistics) {
            args->statistics[2 * row] = mean;
            args->statistics[2 * row + 1] = rstd;
        }
    }
}

enum ddp_status ddp_layer_norm_forward(const struct ddp_layer_norm_forward *args, void *stream)
{
    enum ddp_status status = ddp_layer_norm_check_forward(args);
    if (status || args->features == 0)
        return status;
    ddp_blocks_run(row_blocks(args->rows), forward_rows, args, stream);
    return DDP_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

struct backward {
    const struct ddp_layer_norm_backward *args;
    struct ddp_blocks blocks;
    int64_t stride;
    float *partial; /* (blocks,2,stride): sums for gamma, then for beta; NULL: not needed */
};

/* The means over a row of g = dy gamma and of g xhat. */
DDP_INLINE void row_means(const float *x, const float *dy, const float *gamma, int64_t n,
                          float mean, float rstd, float means[2])
{
    ddp_f32x16 sum_g = {0}, sum_gx = {0};
    for (int64_t i = 0; i < n; i += DDP_LANES) {
        const bool whole = i + DDP_LANES <= n;
        ddp_f32x16 g = whole ? ddp_load16(dy + i) : ddp_load16_tail(dy + i, n - i, 0);
        ddp_f32x16 xs = whole ? ddp_load16(x + i) : ddp_load16_tail(x + i, n - i, mean);
        if (gamma)
            g *= whole ? ddp_load16(gamma + i) : ddp_load16_tail(gamma + i, n - i, 0);
        sum_g += g;
        sum_gx += g * ((xs - mean) * rstd);
    }
    means[0] = ddp_sum16(sum_g) / (float)n;
    means[1] = ddp_sum16(sum_gx) / (float)n;
}

/* dx of a row; and its part in the sums for gamma and beta (NULL: none). */
DDP_INLINE void row_backward(const struct ddp_layer_norm_backward *args, int64_t row, float *dgamma,
                             float *dbeta)
{
    const int64_t n = args->features;
    const float mean = args->statistics[2 * row], rstd = args->statistics[2 * row + 1];
    const float *x = (const float *)args->x + row * n, *dy = (const float *)args->dy + row * n,
                *gamma = args->gamma;
    float *dx = args->dx ? (float *)args->dx + row * n : NULL, means[2] = {0};
    if (dx)
        row_means(x, dy, gamma, n, mean, rstd, means);
    if (args->rms)
        means[0] = 0; /* x has not been centred */
    for (int64_t i = 0; i < n; i += DDP_LANES) {
        const int64_t left = n - i;
        const bool whole = left >= DDP_LANES;
        ddp_f32x16 d = whole ? ddp_load16(dy + i) : ddp_load16_tail(dy + i, left, 0);
        ddp_f32x16 xs = whole ? ddp_load16(x + i) : ddp_load16_tail(x + i, left, mean);
        ddp_f32x16 xhat = (xs - mean) * rstd, g = d;
        if (dgamma) {
            ddp_store16(dgamma + i, ddp_load16(dgamma + i) + d * xhat);
            if (!args->rms)
                ddp_store16(dbeta + i, ddp_load16(dbeta + i) + d);
        }
        if (!dx)
            continue;
        if (gamma)
            g *= whole ? ddp_load16(gamma + i) : ddp_load16_tail(gamma + i, left, 0);
        ddp_f32x16 value = (g - means[0] - xhat * means[1]) * rstd;
        if (args->accumulate_dx)
            value = (whole ? ddp_load16(dx + i) : ddp_load16_tail(dx + i, left, 0)) + value;
        if (whole)
            ddp_store16(dx + i, value);
        else
            ddp_store16_tail(dx + i, left, value);
    }
}

DDP_MULTIVERSION
static void backward_rows(const struct backward *backward, size_t index)
{
    float *dgamma = NULL, *dbeta = NULL;
    if (backward->partial) {
        dgamma = backward->partial + (int64_t)index * 2 * backward->stride;
        dbeta = dgamma + backward->stride;
        memset(dgamma, 0, (size_t)(2 * backward->stride) * sizeof *dgamma);
    }
    const int64_t end = ddp_block_end(&backward->blocks, index);
    for (int64_t row = ddp_block_begin(&backward->blocks, index); row < end; row++)
        row_backward(backward->args, row, dgamma, dbeta);
}

static void backward_task(void *arg, size_t index)
{
    backward_rows(arg, index);
}

/* Adds the blocks' sums up, for columns [begin, begin+count) of gamma (which 0) or beta (1). */
DDP_MULTIVERSION
static void add_blocks(const struct backward *backward, float *out, int which, int64_t begin,
                       int64_t count)
{
    float sums[COLUMNS] = {0};
    for (size_t block = 0; block < backward->blocks.count; block++) {
        const float *part =
            backward->partial + ((int64_t)block * 2 + which) * backward->stride + begin;
        for (int64_t j = 0; j < count; j++)
            sums[j] += part[j];
    }
    for (int64_t j = 0; j < count; j++)
        out[begin + j] = backward->args->accumulate ? out[begin + j] + sums[j] : sums[j];
}

static void add_task(void *arg, size_t index)
{
    const struct backward *backward = arg;
    const int64_t begin = (int64_t)index * COLUMNS, left = backward->args->features - begin;
    const int64_t count = left < COLUMNS ? left : COLUMNS;
    if (backward->args->dgamma)
        add_blocks(backward, backward->args->dgamma, 0, begin, count);
    if (backward->args->dbeta)
        add_blocks(backward, backward->args->dbeta, 1, begin, count);
}

enum ddp_status ddp_layer_norm_backward(const struct ddp_layer_norm_backward *args, void *stream)
{
    enum ddp_status status = ddp_layer_norm_check_backward(args);
    if (status || args->features == 0)
        return status;
    struct backward backward = {
        .args = args,
        .blocks = row_blocks(args->rows),
        .stride = padded(args->features),
        .partial = args->dgamma || args->dbeta ? args->scratch : NULL,
    };
    ddp_pool_run(ddp_stream_pool(stream), backward.blocks.count, backward_task, &backward);
    if (args->dgamma || args->dbeta)
        ddp_pool_run(ddp_stream_pool(stream), (size_t)((args->features + COLUMNS - 1) / COLUMNS),
                     add_task, &backward);
    return DDP_OK;
}

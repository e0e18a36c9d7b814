/* SPDX-License-Identifier: MIT
 *
 * Products of matrices, added in double precision, and in the order that gemm.h defines. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"

#include <float.h>
#include <math.h>

static float element(const void *operand, bool bf16, int64_t at)
{
    return bf16 ? ddp_bf16_to_f32(((const uint16_t *)operand)[at]) : ((const float *)operand)[at];
}

static float a_at(const struct ddp_gemm *g, int64_t i, int64_t l)
{
    return element(g->a, g->bf16, g->transpose_a ? l * g->lda + i : i * g->lda + l);
}

static float b_at(const struct ddp_gemm *g, int64_t l, int64_t j)
{
    return element(g->b, g->bf16 || g->b_bf16, g->transpose_b ? j * g->ldb + l : l * g->ldb + j);
}

enum ddp_status ddp_gemm_reference(const struct ddp_gemm *gemm, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_gemm_check(gemm);
    if (status)
        return status;
    for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < gemm->k; l++)
                sum += (double)a_at(gemm, i, l) * (double)b_at(gemm, l, j);
            float *c = &gemm->c[i * gemm->ldc + j];
            if (gemm->beta != 0)
                sum += (double)gemm->beta * (double)*c;
            *c = (float)sum;
        }
    if (gemm->epilogue && gemm->m > 0 && gemm->n > 0)
        gemm->epilogue(gemm->epilogue_arg, 0, gemm->m, 0, gemm->n);
    return DDP_OK;
}

static float zero_if_denormal(float value)
{
    return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

/* c + x y in one rounding, zero where that is below the normal numbers once it is rounded to their
 * precision: x y has 16 digits, so long double holds the sum where that is in question. */
static float flushed(float x, float y, float c)
{
    const long double sum = (long double)x * (long double)y + (long double)c;
    const float rounded = fmaf(x, y, c);
    const float scaled = (float)(sum * 0x1p64L);
    return fabsl(sum) < 0x1p-120L && fabsf(scaled) < FLT_MIN * 0x1p64F ? copysignf(0, rounded)
                                                                       : rounded;
}

/* The part of a sum that begins at depth `begin`. */
static float part_of(const struct ddp_gemm *g, int64_t i, int64_t j, int64_t begin, int64_t depths)
{
    float sum = 0;
    for (int64_t l = begin; l < begin + depths; l++) {
        const int64_t at = g->bf16 ? begin + ((l - begin) ^ 1) : l;
        const bool filled = at >= g->k;
        const float a = filled ? 0 : a_at(g, i, at), b = filled ? 0 : b_at(g, at, j);
        sum = g->bf16 ? flushed(zero_if_denormal(a), zero_if_denormal(b), sum) : fmaf(a, b, sum);
    }
    return sum;
}

static float defined_sum(const struct ddp_gemm *g, int64_t i, int64_t j)
{
    const int64_t unit = g->bf16 ? 2 : 1, all = (g->k + unit - 1) / unit;
    float sum = g->c[i * g->ldc + j];
    bool add = g->beta != 0;
    for (int64_t done = 0, depths; done < all; done += depths, add = true) {
        const int64_t rest = all - done;
        depths = rest >= 768 ? 384 : rest > 384 ? (rest + 1) / 2 : rest;
        const float part = part_of(g, i, j, done * unit, depths * unit);
        if (!add)
            sum = part;
        else
            sum = g->bf16 ? zero_if_denormal(zero_if_denormal(sum) + part) : sum + part;
    }
    return add ? sum : 0;
}

enum ddp_status ddp_gemm_defined(const struct ddp_gemm *gemm)
{
    enum ddp_status status = ddp_gemm_check(gemm);
    for (int64_t i = 0; status == DDP_OK && i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++)
            gemm->c[i * gemm->ldc + j] = defined_sum(gemm, i, j);
    return status;
}

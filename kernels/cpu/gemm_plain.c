/* SPDX-License-Identifier: MIT
 *
 * Tiles in plain C: see gemm_tile.h. */
#include "config.h"

#include "core/bf16.h"
#include "core/fma.h"
#include "core/memory.h"
#include "kernels/cpu/gemm_tile.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define COLUMNS 64 /* whose sums are kept */

/* A denormal number becomes a zero of its sign. */
static float flush(float value)
{
    return fabsf(value) < FLT_MIN ? copysignf(0, value) : value;
}

/* x y + c of bf16 x and y as vdpbf16ps makes it: rounded once, and zero where that is denormal.
 * Whether it is, is decided as if exponents had no end: what was rounded up to FLT_MIN may be.
 * There the sum is exact in double precision. */
static float flushed_fma(float x, float y, float c)
{
    const float sum = flush(ddp_fma_f32(x, y, c));
    if (fabsf(sum) == FLT_MIN && fabs((double)x * (double)y + (double)c) < 0x1.ffffffp-127)
        return copysignf(0, sum);
    return sum;
}

static float element(const void *operand, bool bf16, int64_t at)
{
    return bf16 ? ddp_bf16_to_f32(((const uint16_t *)operand)[at]) : ((const float *)operand)[at];
}

/* The steps between elements. */
struct steps {
    int64_t a_row, a_depth, b_column, b_depth;
};

static void part_f32(const struct ddp_gemm *g, const struct steps *s, int64_t i, int64_t column,
                     int64_t columns, int64_t begin, int64_t end, float *sums)
{
    for (int64_t l = begin; l < end; l++) {
        const float a = ((const float *)g->a)[i * s->a_row + l * s->a_depth];
        for (int64_t j = 0; j < columns; j++)
            sums[j] = ddp_fma_f32(
                a, element(g->b, g->b_bf16, (column + j) * s->b_column + l * s->b_depth), sums[j]);
    }
}

static void part_bf16(const struct ddp_gemm *g, const struct steps *s, int64_t i, int64_t column,
                      int64_t columns, int64_t begin, int64_t end, float *sums)
{
    for (int64_t pair = begin; pair < end; pair += 2)
        for (int64_t l = pair + 1; l >= pair; l--) {
            const bool there = l < end;
            const float a = there ? flush(element(g->a, true, i * s->a_row + l * s->a_depth)) : 0;
            for (int64_t j = 0; j < columns; j++) {
                const int64_t at = (column + j) * s->b_column + l * s->b_depth;
                sums[j] = flushed_fma(a, there ? flush(element(g->b, true, at)) : 0, sums[j]);
            }
        }
}

static void row(const struct ddp_gemm *g, const struct steps *s, int64_t i, int64_t column,
                int64_t columns)
{
    float *c = g->c + i * g->ldc + column;
    bool add = g->beta != 0;
    for (int64_t depth = 0, depths; depth < g->k; depth += depths, add = true) {
        float sums[COLUMNS] = {0};
        const int64_t rest = g->k - depth;
        depths = g->bf16 ? 2 * ddp_gemm_part((rest + 1) / 2) : ddp_gemm_part(rest);
        const int64_t end = depths < rest ? depth + depths : g->k;
        if (g->bf16)
            part_bf16(g, s, i, column, columns, depth, end, sums);
        else
            part_f32(g, s, i, column, columns, depth, end, sums);
        for (int64_t j = 0; j < columns; j++)
            if (g->bf16)
                c[j] = add ? flush(flush(c[j]) + sums[j]) : sums[j];
            else
                c[j] = add ? c[j] + sums[j] : sums[j];
    }
}

/* Some columns of a B that lies in blocks, one behind the other. */
static void unpack_columns(const struct ddp_gemm *g, int64_t column, int64_t columns, void *to)
{
    const int64_t size = g->bf16 ? 2 : 4;
    if (g->transpose_b)
        ddp_gemm_unpack(g, column * g->k, columns * g->k, to);
    for (int64_t l = 0; !g->transpose_b && l < g->k; l++)
        ddp_gemm_unpack(g, l * g->n + column, columns, (char *)to + l * columns * size);
}

/* All rows, and some columns at a time. */
static bool tile_of_blocks(const struct ddp_gemm *gemm, const struct ddp_gemm_tile *tile,
                           const struct steps *steps)
{
    struct ddp_gemm some = *gemm;
    void *unpacked = ddp_array_alloc((size_t)gemm->k * COLUMNS, sizeof(float));
    for (int64_t j = 0, columns; unpacked && j < tile->columns; j += columns) {
        columns = tile->columns - j < COLUMNS ? tile->columns - j : COLUMNS;
        struct steps here = *steps;
        if (gemm->transpose_b)
            here.b_column = gemm->k;
        else
            here.b_depth = columns;
        unpack_columns(gemm, tile->column + j, columns, unpacked);
        some.b = unpacked;
        some.c = gemm->c + tile->column + j;
        for (int64_t i = tile->row; i < tile->row + tile->rows; i++)
            row(&some, &here, i, 0, columns);
    }
    free(unpacked);
    return unpacked != NULL;
}

bool ddp_gemm_tile_plain(const struct ddp_gemm *gemm, const struct ddp_gemm_tile *tile)
{
    bool made = true;
    const struct steps steps = {
        .a_row = gemm->transpose_a ? 1 : gemm->lda,
        .a_depth = gemm->transpose_a ? gemm->lda : 1,
        .b_column = gemm->transpose_b ? gemm->ldb : 1,
        .b_depth = gemm->transpose_b ? 1 : gemm->ldb,
    };
    if (gemm->b_block)
        made = tile_of_blocks(gemm, tile, &steps);
    for (int64_t i = tile->row; !gemm->b_block && i < tile->row + tile->rows; i++)
        for (int64_t j = 0; j < tile->columns; j += COLUMNS)
            row(gemm, &steps, i, tile->column + j,
                tile->columns - j < COLUMNS ? tile->columns - j : COLUMNS);
    if (made && gemm->epilogue)
        gemm->epilogue(gemm->epilogue_arg, tile->row, tile->rows, tile->column, tile->columns);
    return made;
}

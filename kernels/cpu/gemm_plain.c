/* SPDX-License-Identifier: MIT
 *
 * See gemm_plain.h. Blocks of both operands are copied into strips that the inner loop reads in
 * order; the inner loop keeps 6 rows by 16 columns of C in registers. */
#include "config.h"

#include "kernels/cpu/gemm_plain.h"

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"

#define STRIP_ROWS    6
#define STRIP_COLUMNS DDP_LANES
#define BLOCK_ROWS    48 /* a packed block of A: 48 KiB */
#define BLOCK_COLUMNS 64 /* of B: 64 KiB */
#define BLOCK_K       256

struct packed {
    _Alignas(64) float a[BLOCK_ROWS * BLOCK_K];
    _Alignas(64) float b[BLOCK_COLUMNS * BLOCK_K];
};

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

/* A product with the steps between its operands' elements. */
struct operands {
    const void *a, *b; /* float or, with bf16, uint16_t */
    bool bf16;
    int64_t m, n, k;
    int64_t a_row, a_depth; /* steps from one row of op(A) to the next, and along K */
    int64_t b_column, b_depth;
    float *c;
    int64_t ldc;
    float beta;
};

DDP_INLINE float element(const void *values, int64_t at, bool bf16)
{
    return bf16 ? ddp_bf16_to_f32(((const uint16_t *)values)[at]) : ((const float *)values)[at];
}

/* `lines` rows of op(A), or columns of op(B), from element `from` on, as strips of `width` of them:
 * for each depth its `width` values, zeros behind the last. */
DDP_INLINE void pack(float *packed, const void *values, bool bf16, int64_t from, int64_t lines,
                     int64_t line_step, int64_t depths, int64_t depth_step, int64_t width)
{
    for (int64_t strip = 0; strip < lines; strip += width, packed += width * depths) {
        const int64_t here = at_most(lines - strip, width);
        if (here < width)
            memset(packed, 0, (size_t)(width * depths) * sizeof *packed);
        for (int64_t l = 0; l < depths; l++)
            for (int64_t i = 0; i < here; i++)
                packed[l * width + i] =
                    element(values, from + (strip + i) * line_step + l * depth_step, bf16);
    }
}

static void pack_a(float *packed, const struct operands *o, int64_t row, int64_t rows,
                   int64_t depth, int64_t depths)
{
    const int64_t from = row * o->a_row + depth * o->a_depth;
    if (o->bf16)
        pack(packed, o->a, true, from, rows, o->a_row, depths, o->a_depth, STRIP_ROWS);
    else
        pack(packed, o->a, false, from, rows, o->a_row, depths, o->a_depth, STRIP_ROWS);
}

static void pack_b(float *packed, const struct operands *o, int64_t column, int64_t columns,
                   int64_t depth, int64_t depths)
{
    const int64_t from = column * o->b_column + depth * o->b_depth;
    if (o->bf16)
        pack(packed, o->b, true, from, columns, o->b_column, depths, o->b_depth, STRIP_COLUMNS);
    else
        pack(packed, o->b, false, from, columns, o->b_column, depths, o->b_depth, STRIP_COLUMNS);
}

/* c += (or = , with beta 0) the product of one strip of A and one of B. Six sums by name: an array
 * of them would stay in memory at -O2. */
DDP_INLINE void strips(float *c, int64_t ldc, int64_t rows, int64_t columns, const float *a,
                       const float *b, int64_t depths, float beta)
{
    ddp_f32x16 sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0}, sum5 = {0};
    for (int64_t l = 0; l < depths; l++, a += STRIP_ROWS, b += STRIP_COLUMNS) {
        ddp_f32x16 right;
        memcpy(&right, b, sizeof right);
        sum0 += right * a[0];
        sum1 += right * a[1];
        sum2 += right * a[2];
        sum3 += right * a[3];
        sum4 += right * a[4];
        sum5 += right * a[5];
    }
    const ddp_f32x16 sums[STRIP_ROWS] = {sum0, sum1, sum2, sum3, sum4, sum5};
    for (int64_t i = 0; i < rows; i++) {
        float line[STRIP_COLUMNS];
        memcpy(line, &sums[i], sizeof line);
        for (int64_t j = 0; j < columns; j++)
            c[i * ldc + j] = beta == 0 ? line[j] : beta * c[i * ldc + j] + line[j];
    }
}

DDP_MULTIVERSION
static void blocks(float *c, int64_t ldc, int64_t rows, int64_t columns,
                   const struct packed *packed, int64_t depths, float beta)
{
    for (int64_t j = 0; j < columns; j += STRIP_COLUMNS)
        for (int64_t i = 0; i < rows; i += STRIP_ROWS)
            strips(c + i * ldc + j, ldc, rows - i < STRIP_ROWS ? rows - i : STRIP_ROWS,
                   columns - j < STRIP_COLUMNS ? columns - j : STRIP_COLUMNS,
                   packed->a + i * depths, packed->b + j * depths, depths, beta);
}

static void tile(const struct operands *o)
{
    struct packed packed; /* 112 KiB of stack */
    for (int64_t depth = 0; depth < o->k; depth += BLOCK_K) {
        int64_t depths = at_most(o->k - depth, BLOCK_K);
        float beta = depth == 0 ? o->beta : 1;
        for (int64_t column = 0; column < o->n; column += BLOCK_COLUMNS) {
            int64_t columns = at_most(o->n - column, BLOCK_COLUMNS);
            pack_b(packed.b, o, column, columns, depth, depths);
            for (int64_t row = 0; row < o->m; row += BLOCK_ROWS) {
                int64_t rows = at_most(o->m - row, BLOCK_ROWS);
                pack_a(packed.a, o, row, rows, depth, depths);
                blocks(o->c + row * o->ldc + column, o->ldc, rows, columns, &packed, depths, beta);
            }
        }
    }
}

int ddp_gemm_plain_tile(const struct ddp_gemm *gemm)
{
    const struct operands operands = {
        .a = gemm->a,
        .b = gemm->b,
        .bf16 = gemm->bf16,
        .m = gemm->m,
        .n = gemm->n,
        .k = gemm->k,
        .a_row = gemm->transpose_a ? 1 : gemm->lda,
        .a_depth = gemm->transpose_a ? gemm->lda : 1,
        .b_column = gemm->transpose_b ? gemm->ldb : 1,
        .b_depth = gemm->transpose_b ? 1 : gemm->ldb,
        .c = gemm->c,
        .ldc = gemm->ldc,
        .beta = gemm->beta,
    };
    tile(&operands);
    return 0;
}

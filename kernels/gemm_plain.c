/* SPDX-License-Identifier: MIT
 *
 * See gemm_plain.h. Blocks of both operands are copied into strips that the inner loop reads in
 * order; the inner loop keeps 6 rows by 16 columns of C in registers. */
#include "config.h"

#include "kernels/gemm_plain.h"

#include "kernels/cpu.h"

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

/* op(A)[row.., depth..] as strips of 6 rows: for each depth the 6 values, zeros below the last row.
 */
static void pack_a(float *packed, const struct ddp_gemm *gemm, int64_t row, int64_t rows,
                   int64_t depth, int64_t depths)
{
    const int64_t row_step = gemm->transpose_a ? 1 : gemm->lda;
    const int64_t depth_step = gemm->transpose_a ? gemm->lda : 1;
    const float *a = gemm->a + row * row_step + depth * depth_step;
    for (int64_t strip = 0; strip < rows; strip += STRIP_ROWS, packed += STRIP_ROWS * depths) {
        const int64_t here = at_most(rows - strip, STRIP_ROWS);
        if (here < STRIP_ROWS)
            memset(packed, 0, (size_t)(STRIP_ROWS * depths) * sizeof *packed);
        for (int64_t l = 0; l < depths; l++)
            for (int64_t i = 0; i < here; i++)
                packed[l * STRIP_ROWS + i] = a[(strip + i) * row_step + l * depth_step];
    }
}

static void pack_b(float *packed, const struct ddp_gemm *gemm, int64_t column, int64_t columns,
                   int64_t depth, int64_t depths)
{
    const int64_t column_step = gemm->transpose_b ? gemm->ldb : 1;
    const int64_t depth_step = gemm->transpose_b ? 1 : gemm->ldb;
    const float *b = gemm->b + column * column_step + depth * depth_step;
    for (int64_t strip = 0; strip < columns;
         strip += STRIP_COLUMNS, packed += STRIP_COLUMNS * depths) {
        const int64_t here = at_most(columns - strip, STRIP_COLUMNS);
        if (here < STRIP_COLUMNS)
            memset(packed, 0, (size_t)(STRIP_COLUMNS * depths) * sizeof *packed);
        for (int64_t l = 0; l < depths; l++)
            for (int64_t j = 0; j < here; j++)
                packed[l * STRIP_COLUMNS + j] = b[(strip + j) * column_step + l * depth_step];
    }
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

void ddp_gemm_plain_tile(const struct ddp_gemm *gemm)
{
    struct packed packed; /* 112 KiB of stack */
    for (int64_t depth = 0; depth < gemm->k; depth += BLOCK_K) {
        int64_t depths = at_most(gemm->k - depth, BLOCK_K);
        float beta = depth == 0 ? gemm->beta : 1;
        for (int64_t column = 0; column < gemm->n; column += BLOCK_COLUMNS) {
            int64_t columns = at_most(gemm->n - column, BLOCK_COLUMNS);
            pack_b(packed.b, gemm, column, columns, depth, depths);
            for (int64_t row = 0; row < gemm->m; row += BLOCK_ROWS) {
                int64_t rows = at_most(gemm->m - row, BLOCK_ROWS);
                pack_a(packed.a, gemm, row, rows, depth, depths);
                blocks(gemm->c + row * gemm->ldc + column, gemm->ldc, rows, columns, &packed,
                       depths, beta);
            }
        }
    }
}

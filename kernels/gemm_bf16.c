/* SPDX-License-Identifier: MIT
 *
 * Products of bf16 on the CPU; see gemm_bf16.h. Where the processor has instructions for them a
 * tile is a call of oneDNN; without them its emulation would be slower than float32, and ours in
 * plain C has the merit of giving the same bits everywhere. */
#include "config.h"

#include "kernels/gemm_bf16.h"

#include "core/log.h"
#include "kernels/bf16.h"
#include "kernels/cpu.h"
#include "kernels/gemm_plain.h"
#include "kernels/gemm_tiles.h"

#include <stdatomic.h>

#ifdef HAVE_ONEDNN_BF16
#include <dnnl.h>

dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc);
#endif

struct product {
    const struct ddp_gemm_bf16 *gemm;
    struct ddp_gemm_grid grid;
    void (*tile)(struct product *product, const struct ddp_gemm_tile *tile);
    atomic_int error; /* of the library, from any thread */
};

bool ddp_gemm_bf16_native(void)
{
#if defined(HAVE_ONEDNN_BF16) && defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Operand A from row `row` of op(A), operand B from column `column` of op(B). */
static const uint16_t *a_at(const struct ddp_gemm_bf16 *gemm, int64_t row)
{
    return gemm->a + (gemm->transpose_a ? row : row * gemm->lda);
}

static const uint16_t *b_at(const struct ddp_gemm_bf16 *gemm, int64_t column)
{
    return gemm->b + (gemm->transpose_b ? column * gemm->ldb : column);
}

#ifdef HAVE_ONEDNN_BF16
static void onednn_tile(struct product *product, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm_bf16 *gemm = product->gemm;
    ddp_gemm_stay_single();
    dnnl_status_t status = dnnl_gemm_bf16bf16f32(
        gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', tile->rows, tile->columns,
        gemm->k, 1.0f, a_at(gemm, tile->row), gemm->lda, b_at(gemm, tile->column), gemm->ldb,
        gemm->beta, gemm->c + tile->row * gemm->ldc + tile->column, gemm->ldc);
    if (status != dnnl_success)
        atomic_store(&product->error, (int)status);
}
#endif

static void plain_tile(struct product *product, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm_bf16 *gemm = product->gemm;
    struct ddp_gemm_bf16 part = *gemm;
    part.m = tile->rows;
    part.n = tile->columns;
    part.a = a_at(gemm, tile->row);
    part.b = b_at(gemm, tile->column);
    part.c = gemm->c + tile->row * gemm->ldc + tile->column;
    ddp_gemm_bf16_plain_tile(&part);
}

static void empty_tile(struct product *product, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm_bf16 *gemm = product->gemm;
    ddp_gemm_empty_tile(gemm->c, gemm->ldc, tile, gemm->beta);
}

static void tile_task(void *arg, size_t index)
{
    struct product *product = arg;
    const struct ddp_gemm_bf16 *gemm = product->gemm;
    const struct ddp_gemm_tile tile = ddp_gemm_grid_tile(&product->grid, index);
    product->tile(product, &tile);
    if (gemm->epilogue)
        gemm->epilogue(gemm->epilogue_arg, tile.row, tile.rows, tile.column, tile.columns);
}

static enum ddp_status check(const struct ddp_gemm_bf16 *gemm)
{
    const int64_t m = gemm->m, n = gemm->n, k = gemm->k;
    if (m < 0 || n < 0 || k < 0)
        return ddp_fail(DDP_ERR_INVALID, "bf16 gemm: negative size (%lld x %lld x %lld)",
                        (long long)m, (long long)n, (long long)k);
    if (m == 0 || n == 0)
        return DDP_OK;
    if (!gemm->c || (k > 0 && (!gemm->a || !gemm->b)))
        return ddp_fail(DDP_ERR_INVALID, "bf16 gemm: a, b or c is NULL");
    if (gemm->ldc < n || (k > 0 && (gemm->lda < (gemm->transpose_a ? m : k) ||
                                    gemm->ldb < (gemm->transpose_b ? k : n))))
        return ddp_fail(DDP_ERR_INVALID,
                        "bf16 gemm: a leading dimension is shorter than a row (%lld, %lld, %lld)",
                        (long long)gemm->lda, (long long)gemm->ldb, (long long)gemm->ldc);
    return DDP_OK;
}

static enum ddp_status run(struct product *product, void *stream)
{
    const struct ddp_gemm_bf16 *gemm = product->gemm;
    enum ddp_status status = check(gemm);
    if (status || gemm->m == 0 || gemm->n == 0)
        return status;
    if (gemm->k == 0)
        product->tile = empty_tile;
    product->grid = ddp_gemm_grid_cut(gemm->m, gemm->n, gemm->k);
    ddp_pool_run(ddp_stream_pool(stream), product->grid.count, tile_task, product);
    int error = atomic_load(&product->error);
    if (error)
        return ddp_fail(DDP_ERR_SYSTEM, "bf16 gemm: oneDNN failed with status %d", error);
    return DDP_OK;
}

enum ddp_status ddp_gemm_bf16(const struct ddp_gemm_bf16 *gemm, void *stream)
{
    struct product product = {.gemm = gemm, .tile = plain_tile};
#ifdef HAVE_ONEDNN_BF16
    if (ddp_gemm_bf16_native())
        product.tile = onednn_tile;
#endif
    return run(&product, stream);
}

enum ddp_status ddp_gemm_bf16_plain(const struct ddp_gemm_bf16 *gemm, void *stream)
{
    struct product product = {.gemm = gemm, .tile = plain_tile};
    return run(&product, stream);
}

enum ddp_status ddp_gemm_bf16_reference(const struct ddp_gemm_bf16 *gemm, void *stream)
{
    (void)stream;
    enum ddp_status status = check(gemm);
    if (status)
        return status;
    for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < gemm->k; l++) {
                uint16_t a = gemm->a[gemm->transpose_a ? l * gemm->lda + i : i * gemm->lda + l];
                uint16_t b = gemm->b[gemm->transpose_b ? j * gemm->ldb + l : l * gemm->ldb + j];
                sum += (double)ddp_bf16_to_f32(a) * (double)ddp_bf16_to_f32(b);
            }
            float *c = &gemm->c[i * gemm->ldc + j];
            if (gemm->beta != 0)
                sum += (double)gemm->beta * (double)*c;
            *c = (float)sum;
        }
    if (gemm->epilogue && gemm->m > 0 && gemm->n > 0)
        gemm->epilogue(gemm->epilogue_arg, 0, gemm->m, 0, gemm->n);
    return DDP_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * Products of bf16 on the CPU; see gemm_bf16.h. Where the processor has instructions for them a
 * tile is a call of oneDNN; without them its emulation would be slower than float32, and ours in
 * plain C has the merit of giving the same bits everywhere. */
#include "config.h"

#include "kernels/cpu/gemm_bf16.h"

#include "core/bf16.h"
#include "kernels/cpu/gemm_plain.h"
#include "kernels/cpu/gemm_tiles.h"
#include "kernels/cpu/onednn.h"

#ifdef HAVE_ONEDNN_BF16
#include <dnnl.h>

dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc);
#endif

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
static int onednn_tile(const void *arg, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm_bf16 *gemm = arg;
    ddp_gemm_stay_single();
    return (int)dnnl_gemm_bf16bf16f32(
        gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', tile->rows, tile->columns,
        gemm->k, 1.0f, a_at(gemm, tile->row), gemm->lda, b_at(gemm, tile->column), gemm->ldb,
        gemm->beta, gemm->c + tile->row * gemm->ldc + tile->column, gemm->ldc);
}
#endif

static int plain_tile(const void *arg, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm_bf16 *gemm = arg;
    struct ddp_gemm_bf16 part = *gemm;
    part.m = tile->rows;
    part.n = tile->columns;
    part.a = a_at(gemm, tile->row);
    part.b = b_at(gemm, tile->column);
    part.c = gemm->c + tile->row * gemm->ldc + tile->column;
    ddp_gemm_bf16_plain_tile(&part);
    return 0;
}

enum ddp_status ddp_gemm_bf16(const struct ddp_gemm_bf16 *gemm, void *stream)
{
    ddp_gemm_tile_function *tile = plain_tile;
#ifdef HAVE_ONEDNN_BF16
    if (ddp_gemm_bf16_native())
        tile = onednn_tile;
#endif
    const enum ddp_status status = ddp_onednn_prepare(gemm->m == 1 || gemm->n == 1);
    return status == DDP_OK ? ddp_gemm_run(&DDP_GEMM_FRAME("bf16 gemm", gemm), tile, gemm, stream)
                            : status;
}

enum ddp_status ddp_gemm_bf16_plain(const struct ddp_gemm_bf16 *gemm, void *stream)
{
    return ddp_gemm_run(&DDP_GEMM_FRAME("bf16 gemm", gemm), plain_tile, gemm, stream);
}

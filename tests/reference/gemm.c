/* SPDX-License-Identifier: MIT
 *
 * Products of matrices, added in double precision; see gemm.h. */
#include "config.h"

#include "tests/reference/reference.h"

#include "core/bf16.h"
#include "kernels/cpu/gemm_tiles.h"

enum ddp_status ddp_gemm_reference(const struct ddp_gemm *gemm, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_gemm_check(&DDP_GEMM_FRAME("gemm", gemm));
    if (status)
        return status;
    for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < gemm->k; l++)
                sum += (double)gemm->a[gemm->transpose_a ? l * gemm->lda + i : i * gemm->lda + l] *
                       (double)gemm->b[gemm->transpose_b ? j * gemm->ldb + l : l * gemm->ldb + j];
            float *c = &gemm->c[i * gemm->ldc + j];
            if (gemm->beta != 0)
                sum += (double)gemm->beta * (double)*c;
            *c = (float)sum;
        }
    if (gemm->epilogue && gemm->m > 0 && gemm->n > 0)
        gemm->epilogue(gemm->epilogue_arg, 0, gemm->m, 0, gemm->n);
    return DDP_OK;
}

enum ddp_status ddp_gemm_bf16_reference(const struct ddp_gemm_bf16 *gemm, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_gemm_check(&DDP_GEMM_FRAME("bf16 gemm", gemm));
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

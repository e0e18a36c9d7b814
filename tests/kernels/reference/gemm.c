/* SPDX-License-Identifier: MIT
 *
 * Products of matrices, added in double precision; see gemm.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"

static double element(const struct ddp_gemm *gemm, const void *operand, int64_t at)
{
    return (double)(gemm->bf16 ? ddp_bf16_to_f32(((const uint16_t *)operand)[at])
                               : ((const float *)operand)[at]);
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
                sum += element(gemm, gemm->a,
                               gemm->transpose_a ? l * gemm->lda + i : i * gemm->lda + l) *
                       element(gemm, gemm->b,
                               gemm->transpose_b ? j * gemm->ldb + l : l * gemm->ldb + j);
            float *c = &gemm->c[i * gemm->ldc + j];
            if (gemm->beta != 0)
                sum += (double)gemm->beta * (double)*c;
            *c = (float)sum;
        }
    if (gemm->epilogue && gemm->m > 0 && gemm->n > 0)
        gemm->epilogue(gemm->epilogue_arg, 0, gemm->m, 0, gemm->n);
    return DDP_OK;
}

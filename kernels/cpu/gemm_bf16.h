/* SPDX-License-Identifier: MIT
 *
 * C = op(A) op(B) + beta C with operands in bf16, added up in float32; on the grid of gemm.h. */
#ifndef DDP_KERNELS_CPU_GEMM_BF16_H
#define DDP_KERNELS_CPU_GEMM_BF16_H

#include "ddp.h"

struct ddp_gemm_bf16 {
    bool transpose_a, transpose_b;
    int64_t m, n, k;   /* as in struct ddp_gemm */
    const uint16_t *a; /* (m,k), or (k,m) when transposed */
    const uint16_t *b; /* (k,n), or (n,k) when transposed */
    float *c;          /* (m,n) float32 */
    int64_t lda, ldb, ldc;
    float beta; /* 0: C is overwritten, NaN in it does not matter; 1: added to */
    void (*epilogue)(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *epilogue_arg;
};

/* Whether products run on the processor's own bf16 instructions; else ddp_gemm_bf16() is
 * ddp_gemm_bf16_plain(), which is slower than float32. */
bool ddp_gemm_bf16_native(void);

enum ddp_status ddp_gemm_bf16(const struct ddp_gemm_bf16 *gemm, void *stream);

/* Operands are widened and multiplied in float32, in plain C: the same bits on every machine. */
enum ddp_status ddp_gemm_bf16_plain(const struct ddp_gemm_bf16 *gemm, void *stream);

#endif

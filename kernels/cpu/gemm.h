/* SPDX-License-Identifier: MIT
 *
 * C = op(A) op(B) + beta C, row-major, the product under every linear layer: operands are float32
 * or bf16, sums float32.
 *
 * Every element of C is a sum in one order, which depends on K alone: the bits are the same on
 * every processor, for any number of threads, whatever the other rows and columns are.
 *   K is cut into parts: while at least 768 depths are left a part has 384; of more than 384 it
 *   has half, rounded up; else what is left.
 *   A part is a chain of fused multiply-adds over ascending k, from 0.
 *   The parts are added to C, or with beta 0 to the first one, one after another.
 * Products of bf16 by bf16 are what vdpbf16ps computes: K is cut in pairs, of which an odd K has
 * one filled up with zeros, the same way; the odd one of a pair is added before the even one; and
 * denormal operands, C too, and results become zeros of their sign. */
#ifndef DDP_KERNELS_CPU_GEMM_H
#define DDP_KERNELS_CPU_GEMM_H

#include "ddp.h"

#include "core/blocks.h"
#include "kernels/cpu/isa.h"

struct ddp_gemm {
    bool transpose_a, transpose_b;
    bool bf16;   /* the operands are uint16_t; else float */
    bool b_bf16; /* B alone is uint16_t: its values are taken as float32 */
    /* B alone lies in such blocks, its lines one behind the other, and its values are taken as
     * float32, or with `bf16` rounded to that; NULL: it does not. */
    const struct ddp_block *b_block;
    int64_t m, n, k; /* op(A) is (m,k), op(B) (k,n), C (m,n); any may be 0 (k = 0: C = beta C) */
    const void *a;   /* (m,k), or (k,m) when transposed; leading dimension lda elements */
    const void *b;   /* (k,n), or (n,k) when transposed */
    float *c;        /* (m,n) */
    int64_t lda, ldb, ldc;
    float beta; /* 0: C is overwritten, NaN in it does not matter; 1: added to */
    /* Called once for each element of C, after it is complete, by the thread that made it: rows
     * [row, row+rows), columns [column, column+columns); columns begin at a multiple of 16. May be
     * NULL. For bias and activation while C is in the cache. */
    void (*epilogue)(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *epilogue_arg;
};

/* DDP_ERR_INVALID for negative sizes, short leading dimensions or NULL where elements are needed.
 * All functions below check this. */
enum ddp_status ddp_gemm_check(const struct ddp_gemm *gemm);

/* DDP_ERR_MEMORY: there is none to pack operands into, 1.1 MiB for each thread. */
enum ddp_status ddp_gemm(const struct ddp_gemm *gemm, void *stream);

/* The whole product on the calling thread, without the epilogue: for operations that cut their work
 * themselves. */
enum ddp_status ddp_gemm_serial(const struct ddp_gemm *gemm);

/* For few rows. Reads B once, A in float32: op(A) = A, op(B) transposed, beta 0; DDP_ERR_INVALID
 * for others. Sums have an order of their own: sixteen lanes over K. */
enum ddp_status ddp_gemm_rows(const struct ddp_gemm *gemm, void *stream);

/* ddp_gemm() by the code for an instruction set that the processor has. */
enum ddp_status ddp_gemm_on(const struct ddp_gemm *gemm, enum ddp_isa isa, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * C = op(A) op(B) + beta C, row-major, the product under every linear layer: operands are float32
 * or bf16, sums float32. The result is cut into a fixed grid of tiles of rows and columns; each
 * tile is one single-threaded product over the whole of K, so the bits do not depend on the number
 * of threads. */
#ifndef DDP_KERNELS_CPU_GEMM_H
#define DDP_KERNELS_CPU_GEMM_H

#include "ddp.h"

struct ddp_gemm {
    bool transpose_a, transpose_b;
    bool bf16;       /* the operands are uint16_t; else float */
    bool b_bf16;     /* B alone is uint16_t: its values are taken as float32. The same bits as if
                        they were handed in so, where a panel holds all of B or B is transposed */
    int64_t m, n, k; /* op(A) is (m,k), op(B) (k,n), C (m,n); any may be 0 (k = 0: C = beta C) */
    const void *a;   /* (m,k), or (k,m) when transposed; leading dimension lda elements */
    const void *b;   /* (k,n), or (n,k) when transposed */
    float *c;        /* (m,n) */
    int64_t lda, ldb, ldc;
    float *panel; /* with b_bf16, where columns of op(B) are unpacked to, at least DDP_GEMM_COLUMNS
                     or all of them; not read by ddp_gemm_rows(), which unpacks as it goes */
    int64_t panel_count; /* elements */
    float beta;          /* 0: C is overwritten, NaN in it does not matter; 1: added to */
    /* Called after a tile of C is complete, by the thread that made it: rows [row, row+rows),
     * columns [column, column+columns). May be NULL. For bias and activation while the tile is in
     * cache. */
    void (*epilogue)(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *epilogue_arg;
};

#define DDP_GEMM_COLUMNS 384 /* of a tile, at most */

/* DDP_ERR_INVALID for negative sizes, short leading dimensions or NULL where elements are needed.
 * All functions below check this. */
enum ddp_status ddp_gemm_check(const struct ddp_gemm *gemm);

/* bf16 is slower than float32 where the processor has no instructions of its own for it: see
 * ddp_gemm_bf16_native() in onednn.h. */
enum ddp_status ddp_gemm(const struct ddp_gemm *gemm, void *stream);

/* The whole product at once on the calling thread, without the epilogue: for operations that cut
 * their work themselves. */
enum ddp_status ddp_gemm_serial(const struct ddp_gemm *gemm);

/* For few rows: a row of C has bits of its own, whatever the other rows and however many. Reads B
 * once, A in float32: op(A) = A, op(B) transposed, beta 0; DDP_ERR_INVALID for others. */
enum ddp_status ddp_gemm_rows(const struct ddp_gemm *gemm, void *stream);

/* The version without oneDNN, in every build; its bits are the same on every instruction set. */
enum ddp_status ddp_gemm_plain(const struct ddp_gemm *gemm, void *stream);

#endif

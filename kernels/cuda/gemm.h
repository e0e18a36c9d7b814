/* SPDX-License-Identifier: MIT
 *
 * Matrix products on a CUDA device, row-major: C = op(A) op(B) + beta C, with operands of float32,
 * bf16 or float16, float32 sums, and a C that is float32 or, with operands of bf16, bf16: rounded
 * once, at the end. cublasLt does them; it is asked for algorithms once for a shape, and one is
 * kept: the choice that was found by timing where there is one, else the first that works. A shape
 * gives the same bits every time. What cublasLt refuses is done by a plain kernel (gemm_plain.cu),
 * after a warning. */
#ifndef DDP_KERNELS_CUDA_GEMM_H
#define DDP_KERNELS_CUDA_GEMM_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_cuda_gemm {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    enum ddp_dtype type;   /* of A and B: DDP_F32, DDP_BF16 or DDP_F16 */
    const void *a;         /* (m,k), or (k,m) when transposed */
    const void *b;         /* (k,n), or (n,k) when transposed */
    enum ddp_dtype result; /* of C, bias and pre; DDP_BF16 with operands of it only */
    void *c;               /* (m,n) in and out */
    int64_t lda, ldb, ldc;
    bool add;         /* C += ...; else it is overwritten, NaN in it does not matter */
    const void *bias; /* (n) added to each row, or NULL */
    bool gelu;        /* then GELU, by tanh, if cublasLt can */
    void *pre;        /* (m,n), rows ldc apart: what GELU took; NULL: not needed */
};

/* *activated (may be NULL without gelu): whether C is after that; if not, it is as if not asked
 * for, and `pre` is untouched. */
enum ddp_status ddp_cuda_gemm(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                              bool *activated);

/* The same of operands that span less than 2^31 elements; and by the plain kernel alone, without
 * GELU. */
enum ddp_status ddp_cuda_gemm_whole(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                                    bool *activated);
/* By cublasLt alone, without GELU. *done: false where it has no algorithm that works. */
enum ddp_status ddp_cuda_gemm_library(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                                      bool *done);
enum ddp_status ddp_cuda_gemm_plain(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda);

/* For few rows: float32, without pre and GELU, op(A) = A, op(B) transposed, their rows k apart, C
 * overwritten. A row's bits do not depend on the other rows, or on how many there are. */
enum ddp_status ddp_cuda_gemm_rows(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda);

/* Whether DDP_CUDA_PLAIN=1 makes this device use plain kernels instead of faster ones. */
bool ddp_cuda_gemm_is_plain(struct ddp_cuda *cuda);

/* Choosing algorithms by timing, as struct ddp_device_ops has it. Not with DDP_CUDA_TUNE=0 and
 * DDP_CUDA_PLAIN=1. While the device tunes, products of cublasLt are not computed but listed, or
 * listed and timed; ddp_cuda_gemm_tune() returns how many without a choice have been met since it
 * was last called. */
enum ddp_cuda_tuning { DDP_CUDA_TUNING_OFF, DDP_CUDA_TUNING_LIST, DDP_CUDA_TUNING_TIME };
bool ddp_cuda_gemm_tunes(struct ddp_cuda *cuda);
int ddp_cuda_gemm_tune(struct ddp_cuda *cuda, enum ddp_cuda_tuning tuning);
enum ddp_status ddp_cuda_gemm_import(struct ddp_cuda *cuda, const char *text, bool replace,
                                     size_t *damaged);
enum ddp_status ddp_cuda_gemm_export(struct ddp_cuda *cuda, char **text);

/* Frees what the products of this device have kept in cuda->plans; when the device is closed. */
void ddp_cuda_gemm_forget(struct ddp_cuda *cuda);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * Products of any size, by cublasLt where it can. Its kernels may count elements in 32 bits, so
 * operands that span more are cut: where the rows of C span too many, or those of an A that is not
 * transposed, into blocks of these rows, whose sums are what they were; where what spans too many
 * has k rows, as both operands of a weight's gradient do, k is cut, and the parts are added up in
 * float32 in the order of k. The cuts depend on the shape alone. */
#include "config.h"

#include "kernels/cuda/gemm.h"

#include "core/log.h"

#include <stdatomic.h>
#include <stdlib.h>

#define LIMIT (INT64_C(1) << 31) /* elements */

/* Rows of a part; all of them where they fit. */
static int64_t part_of(int64_t rows, int64_t stride, int64_t most)
{
    const int64_t even = 128; /* keeps the alignment, and suits the library's tiles */
    if (stride == 0 || rows <= (most - 1) / stride)
        return rows;
    const int64_t fit = (most - 1) / stride;
    return fit < 1 ? 1 : fit < even ? fit : fit - fit % even;
}

static void *element(const void *array, enum ddp_dtype type, int64_t at)
{
    return array ? (char *)(uintptr_t)array + at * (type == DDP_F32 ? 4 : 2) : NULL;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* `rows` of C from `row` on, and of their sums `depth` products from `at` on. No activation: it
 * would have to be done in all parts or in none. */
static struct ddp_cuda_gemm cut(const struct ddp_cuda_gemm *gemm, int64_t row, int64_t rows,
                                int64_t at, int64_t depth)
{
    struct ddp_cuda_gemm part = *gemm;
    part.m = rows < gemm->m - row ? rows : gemm->m - row;
    part.k = depth < gemm->k - at ? depth : gemm->k - at;
    part.a = element(gemm->a, gemm->type,
                     gemm->transpose_a ? at * gemm->lda + row : row * gemm->lda + at);
    part.b = element(gemm->b, gemm->type, gemm->transpose_b ? at : at * gemm->ldb);
    part.c = element(gemm->c, gemm->result, row * gemm->ldc);
    part.add = gemm->add || at > 0;
    part.bias = at > 0 ? NULL : gemm->bias;
    part.gelu = false;
    part.pre = NULL;
    return part;
}

static void warn_large(const struct ddp_cuda_gemm *gemm, const struct ddp_cuda *cuda)
{
    static atomic_bool warned;
    if (!atomic_exchange(&warned, true))
        ddp_log(DDP_LOG_WARNING,
                "GPU %d: the matrices of a product of %lld x %lld x %lld are too large for "
                "cublasLt: it is computed by a plain kernel, which is slower",
                cuda->index, (long long)gemm->m, (long long)gemm->n, (long long)gemm->k);
}

static int64_t limit(void)
{
#ifdef DDP_CUDASIM
    const char *lower = getenv("DDP_CUDASIM_SPAN");
    if (lower)
        return strtoll(lower, NULL, 10);
#endif
    return LIMIT;
}

static enum ddp_status parts(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                             bool *activated)
{
    const int64_t most = limit();
    const int64_t down = larger(gemm->ldc, gemm->transpose_a ? 0 : gemm->lda);
    const int64_t deep =
        larger(gemm->transpose_a ? gemm->lda : 0, gemm->transpose_b ? 0 : gemm->ldb);
    const int64_t rows = part_of(gemm->m, down, most), depth = part_of(gemm->k, deep, most);
    const bool columns = gemm->transpose_b && part_of(gemm->n, gemm->ldb, most) < gemm->n;
    enum ddp_status status = DDP_OK;
    if (rows == gemm->m && depth == gemm->k && !columns)
        return ddp_cuda_gemm_whole(gemm, cuda, activated);
    if (columns || (depth < gemm->k && gemm->result != DDP_F32)) { /* each part would be rounded */
        warn_large(gemm, cuda);
        return ddp_cuda_gemm_plain(gemm, cuda);
    }
    for (int64_t row = 0; status == DDP_OK && row < gemm->m; row += rows)
        for (int64_t at = 0; status == DDP_OK && at < gemm->k; at += depth) {
            const struct ddp_cuda_gemm part = cut(gemm, row, rows, at, depth);
            status = ddp_cuda_gemm_whole(&part, cuda, NULL);
        }
    return status;
}

enum ddp_status ddp_cuda_gemm(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                              bool *activated)
{
    const bool small = gemm->m == 0 || gemm->n == 0 || gemm->k == 0; /* nothing for a library */
    if (activated)
        *activated = false;
    const enum ddp_status status = small || ddp_cuda_gemm_is_plain(cuda)
                                       ? ddp_cuda_gemm_plain(gemm, cuda)
                                       : parts(gemm, cuda, activated);
    return status ? status : ddp_cuda_launched(cuda, "matrix product");
}

/* SPDX-License-Identifier: MIT
 *
 * The product of few rows with a large transposed matrix, C = A B^T + bias in float32, bound by the
 * bytes of B. A warp has one row of B, read once for every ROWS rows of A, and the order of its sum
 * is the same for each of them. */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/reduce.h"

#define ROWS  4
#define WARPS (DDP_BLOCK / DDP_WARP)

struct few_rows {
    int64_t m, n, k, ldc;
    const float *a, *b, *bias;
    float *c;
};

/* Rows behind the last are the last once more: all rows go through the same instructions. */
template <int W> static __global__ void __launch_bounds__(DDP_BLOCK) rows_kernel(struct few_rows p)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
    const int64_t column = (int64_t)blockIdx.x * WARPS + (int)threadIdx.x / DDP_WARP;
    if (column >= p.n)
        return;
    const float *b = p.b + column * p.k;
    for (int64_t row = 0; row < p.m; row += ROWS) {
        const float *a[ROWS];
        float sums[ROWS] = {};
        for (int r = 0; r < ROWS; r++)
            a[r] = p.a + (row + r < p.m ? row + r : p.m - 1) * p.k;
#pragma unroll 4
        for (int64_t at = lane * W; at < p.k; at += DDP_WARP * W) {
            const ddp_pack<float, W> right = ddp_read<W>(b + at);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const ddp_pack<float, W> left = ddp_read<W>(a[r] + at);
#pragma unroll
                for (int i = 0; i < W; i++)
                    sums[r] = ddp_fused(left.at[i], right.at[i], sums[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float sum = ddp_warp_reduce<DDP_SUM>(sums[r]);
            if (lane == 0 && row + r < p.m)
                p.c[(row + r) * p.ldc + column] = p.bias ? sum + p.bias[column] : sum;
        }
    }
}

extern "C" enum ddp_status ddp_cuda_gemm_rows(const struct ddp_cuda_gemm *gemm,
                                              struct ddp_cuda *cuda)
{
    struct few_rows p;
    p.m = gemm->m;
    p.n = gemm->n;
    p.k = gemm->k;
    p.ldc = gemm->ldc;
    p.a = (const float *)gemm->a;
    p.b = (const float *)gemm->b;
    p.bias = (const float *)gemm->bias;
    p.c = (float *)gemm->c;
    if (p.k % 4 == 0 && ddp_aligned(p.a) && ddp_aligned(p.b))
        DDP_LAUNCH(rows_kernel<4>, ddp_cuda_blocks(p.n, WARPS), DDP_BLOCK, 0, cuda->stream, p);
    else
        DDP_LAUNCH(rows_kernel<1>, ddp_cuda_blocks(p.n, WARPS), DDP_BLOCK, 0, cuda->stream, p);
    return ddp_cuda_launched(cuda, "linear");
}

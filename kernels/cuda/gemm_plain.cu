/* SPDX-License-Identifier: MIT
 *
 * A matrix product for every shape, stride and alignment: what cublasLt refuses, and all products
 * with DDP_CUDA_PLAIN=1. Blocks of 64 x 64 results by 256 threads of 4 x 4; tiles of 16 columns of
 * op(A) and rows of op(B) in shared memory, converted to float32. Bound by shared memory, at about
 * a quarter of the float32 peak: a way out, not the way. k is never split, so the order of a sum is
 * that of k. */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ptx.h"

#define TILE    64
#define DEPTH   16
#define THREADS 256
#define OWN     4 /* rows and columns of a thread */

struct product {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column, ldc; /* strides of op(A) and op(B) */
    void *c;                                       /* of the template's type, as is the bias */
    const void *bias;
    bool add;
};

/* rows x DEPTH of a matrix, depth major; zeros outside. Rows of the tile begin two banks apart, so
 * that threads that read a row's depths write them without conflicts. */
struct tile {
    float at[DEPTH][TILE + 2];
};

template <typename T>
static __device__ void load_tile(struct tile *tile, const T *from, int64_t row, int64_t rows,
                                 int64_t row_stride, int64_t depth, int64_t depths,
                                 int64_t depth_stride)
{
    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        /* neighbouring threads read neighbouring memory, however the matrix is laid out */
        const int r = row_stride == 1 ? i % TILE : i / DEPTH;
        const int d = row_stride == 1 ? i / TILE : i % DEPTH;
        const bool inside = row + r < rows && depth + d < depths;
        tile->at[d][r] =
            inside ? ddp_cuda_f32_of(from[(row + r) * row_stride + (depth + d) * depth_stride]) : 0;
    }
}

template <typename C>
static __device__ void store(const struct product *p, int64_t row, int64_t column, float value)
{
    if (row >= p->m || column >= p->n)
        return;
    C *c = (C *)p->c + row * p->ldc + column;
    if (p->bias)
        value += ddp_cuda_f32_of(((const C *)p->bias)[column]);
    ddp_cuda_round_to(c, p->add ? ddp_cuda_f32_of(*c) + value : value);
}

template <typename T, typename C>
static __global__ void __launch_bounds__(THREADS)
    product_kernel(struct product p, const T *a, const T *b)
{
    __shared__ struct tile rows, columns;
    const int64_t blocks = (p.n + TILE - 1) / TILE;
    const int64_t row = blockIdx.x / blocks * TILE, column = blockIdx.x % blocks * TILE;
    const int down = (int)threadIdx.x / 16, across = (int)threadIdx.x % 16;
    float sums[OWN][OWN] = {};
    for (int64_t depth = 0; depth < p.k; depth += DEPTH) {
        load_tile(&rows, a, row, p.m, p.a_row, depth, p.k, p.a_column);
        load_tile(&columns, b, column, p.n, p.b_column, depth, p.k, p.b_row);
        __syncthreads();
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < OWN; i++)
                for (int j = 0; j < OWN; j++)
                    sums[i][j] = ddp_fused(rows.at[d][down + 16 * i],
                                           columns.at[d][across + 16 * j], sums[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++)
            store<C>(&p, row + down + 16 * i, column + across + 16 * j, sums[i][j]);
}

extern "C" enum ddp_status ddp_cuda_gemm_plain(const struct ddp_cuda_gemm *gemm,
                                               struct ddp_cuda *cuda)
{
    if (gemm->m == 0 || gemm->n == 0)
        return DDP_OK;
    struct product p;
    p.m = gemm->m;
    p.n = gemm->n;
    p.k = gemm->k;
    p.a_row = gemm->transpose_a ? 1 : gemm->lda;
    p.a_column = gemm->transpose_a ? gemm->lda : 1;
    p.b_row = gemm->transpose_b ? 1 : gemm->ldb;
    p.b_column = gemm->transpose_b ? gemm->ldb : 1;
    p.ldc = gemm->ldc;
    p.c = gemm->c;
    p.bias = gemm->bias;
    p.add = gemm->add;
    const unsigned blocks = ddp_cuda_blocks(p.m, TILE) * ddp_cuda_blocks(p.n, TILE);
    if (gemm->type == DDP_BF16 && gemm->result == DDP_BF16)
        DDP_LAUNCH((product_kernel<uint16_t, uint16_t>), blocks, THREADS, 0, cuda->stream, p,
                   (const uint16_t *)gemm->a, (const uint16_t *)gemm->b);
    else if (gemm->type == DDP_BF16)
        DDP_LAUNCH((product_kernel<uint16_t, float>), blocks, THREADS, 0, cuda->stream, p,
                   (const uint16_t *)gemm->a, (const uint16_t *)gemm->b);
    else if (gemm->type == DDP_F16)
        DDP_LAUNCH((product_kernel<ddp_half, float>), blocks, THREADS, 0, cuda->stream, p,
                   (const ddp_half *)gemm->a, (const ddp_half *)gemm->b);
    else
        DDP_LAUNCH((product_kernel<float, float>), blocks, THREADS, 0, cuda->stream, p,
                   (const float *)gemm->a, (const float *)gemm->b);
    return ddp_cuda_launched(cuda, "matrix product");
}

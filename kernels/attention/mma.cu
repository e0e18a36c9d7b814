/* SPDX-License-Identifier: MIT
 *
 * Causal attention on tensor cores; see attention_cuda.h. The same three kernels as in
 * attention.cu, which is their plain twin: a block of four warps keeps the rows of one head that
 * its results belong to, and the rows of the other kind that meet them below the diagonal pass by,
 * copied to shared memory while those before them are multiplied.
 *
 * A warp owns 16 rows (forward 32 of up to 64 features) with all their columns: scores come out of
 * one product in the registers that the next one takes them from, maxima and sums are those of four
 * neighbouring lanes, and nothing but the operands is in shared memory. Its rows of eight elements
 * are permuted by the row, so that no eight that are read together meet in a bank.
 *
 * Bound by the tensor cores as mma.sync reaches them, two thirds of their peak on Hopper, and by
 * shared memory, from which 16 rows take an operand for each product (forward half as often). Keys
 * and queries pass by once for each 128 queries or 64 keys, which the second-level cache bears. */
#include "kernels/attention/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ptx.h"

#include <math.h>

#define WARPS   4
#define THREADS (WARPS * DDP_WARP)
#define LOG2_E  1.44269504f
#define LN_2    0.69314718f

/* How heads of up to D features are cut: 48 KiB of shared memory in each kernel. */
template <int D> struct mma_cut {
    static constexpr int tiles = D <= 64 ? 2 : 1; /* of 16 queries of a warp, forward */
    static constexpr int queries = WARPS * 16 * tiles;
    static constexpr int rows = WARPS * 16;        /* backward */
    static constexpr int step = D <= 64 ? 64 : 32; /* keys that pass by, forward */
    static constexpr int back = D <= 64 ? 64 : 16; /* rows that pass by, backward */
};

/* --- operands ------------------------------------------------------------------------------- */

/* A tile of rows x D elements, in chunks of eight. */
template <int D> static __device__ inline int place(int row, int chunk)
{
    return row * D + 8 * (chunk ^ (D >= 64 ? row & 7 : row >> 1 & 3));
}

/* Rows [row, row + ROWS) of `from`, with zeros for what is not there. */
template <int D, int ROWS>
static __device__ inline void copy_tile(const struct ddp_heads *g, struct ddp_copies *copies,
                                        uint16_t *tile, const uint16_t *from, int64_t stride,
                                        int64_t row)
{
    for (int i = (int)threadIdx.x; i < ROWS * D / 8; i += THREADS) {
        const int r = i / (D / 8), chunk = i % (D / 8);
        const bool there = row + r < g->length && 8 * chunk < g->size;
        ddp_copy(copies, tile + place<D>(r, chunk),
                 there ? from + (row + r) * stride + 8 * chunk : from, there);
    }
}

/* 16 rows from `row` on by columns 16 step .. 16 step + 15. */
template <int D>
static __device__ inline void load_left(unsigned (&a)[4], const uint16_t *tile, int row, int step)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
    ddp_mma_load(a, tile + place<D>(row + lane % 16, 2 * step + lane / 16));
}

/* sums (16 M, 8 N) += a (16 M rows of columns 16 step ..) times 8 N rows of a tile, over columns.
 */
template <int D, int M, int N>
static __device__ inline void times_rows(float (&sums)[M][N][4], const unsigned (&a)[M][4],
                                         const uint16_t *tile, int step)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        unsigned b[4];
        ddp_mma_load(b, tile + place<D>(8 * n + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < M; m++) {
            ddp_mma(sums[m][n], a[m], b[0], b[1]);
            ddp_mma(sums[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

/* sums (16 M, D) += columns 16 step .. of left, rounded, times rows 16 step .. of a tile. */
template <int D, int M, int N>
static __device__ inline void times_columns(float (&sums)[M][D / 8][4],
                                            const float (&left)[M][N][4], const uint16_t *tile,
                                            int step)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
    unsigned a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) /* the registers of a result are those of an operand */
            a[m][i] = ddp_cuda_bf16_pair(left[m][2 * step + i / 2][i % 2 * 2],
                                         left[m][2 * step + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        unsigned b[4];
        ddp_mma_load_transposed(b, tile + place<D>(16 * step + lane % 16, n + lane / 16));
#pragma unroll
        for (int m = 0; m < M; m++) {
            ddp_mma(sums[m][n], a[m], b[0], b[1]);
            ddp_mma(sums[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

template <int M, int N> static __device__ inline void clear(float (&sums)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
            sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
}

/* Two rows of a lane's results, eight apart, times their factors. Eight columns of a row are
 * written by four neighbouring lanes at once. */
template <int D>
static __device__ inline void store_tile(const struct ddp_heads *g, uint16_t *to, int64_t stride,
                                         int64_t row, const float (&sums)[D / 8][4], float low,
                                         float high, bool add)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t at = row + lane / 4 + 8 * i;
        if (at >= g->length)
            continue;
        const float factor = i ? high : low;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            if (8 * n >= g->size)
                break;
            uint16_t *pair = to + at * stride + 8 * n + lane % 4 * 2;
            const ddp_pack<float, 2> values = {
                {sums[n][2 * i] * factor, sums[n][2 * i + 1] * factor}};
            ddp_put(pair, values, add);
        }
    }
}

/* Over the four lanes of a row. */
static __device__ inline float quad_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(DDP_FULL_MASK, value, 1));
    return fmaxf(value, __shfl_xor_sync(DDP_FULL_MASK, value, 2));
}

static __device__ inline float quad_sum(float value)
{
    value += __shfl_xor_sync(DDP_FULL_MASK, value, 1);
    return value + __shfl_xor_sync(DDP_FULL_MASK, value, 2);
}

/* --- forward -------------------------------------------------------------------------------- */

/* The softmax of 16 rows of a warp so far: a lane has two of them, eight apart. Logarithms and
 * exponentials are to base 2, which the device has. */
struct softmax {
    float max[2], sum[2]; /* sum: of this lane's columns */
};

/* Scores, times the scale, become exponentials below the new maximum, and y is brought to it. NaN
 * in a score is in the sum afterwards: no maximum shows it. */
template <int D, int N>
static __device__ inline void take_in(struct softmax *softmax, float (&y)[D / 8][4],
                                      float (&scores)[N][4], float scale, int64_t query,
                                      int64_t key)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
    const bool whole = key + 8 * N <= query + 1; /* all below the diagonal */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int left = (int)(query - key) + lane / 4 + 8 * i - lane % 4 * 2; /* keys it sees */
        float max = softmax->max[i], sum = 0;
        if (!whole)
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    scores[n][2 * i + j] = 8 * n + j <= left ? scores[n][2 * i + j] : -INFINITY;
#pragma unroll
        for (int n = 0; n < N; n++)
            max = fmaxf(max, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
        max = quad_max(max);
        const float below = max * scale;
        const float old = softmax->max[i] == max ? 1 : exp2f(softmax->max[i] * scale - below);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float *score = &scores[n][2 * i + j];
                *score = exp2f(*score * scale - below);
                sum += *score;
            }
        softmax->max[i] = max;
        softmax->sum[i] = softmax->sum[i] * old + sum;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            y[n][2 * i] *= old;
            y[n][2 * i + 1] *= old;
        }
    }
}

template <int D>
static __device__ inline void finish_queries(const struct ddp_heads *g, const struct ddp_head *head,
                                             struct softmax *softmax, const float (&sums)[D / 8][4],
                                             int64_t query, uint16_t *y, float *lse)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t at = query + lane / 4 + 8 * i;
        softmax->sum[i] = quad_sum(softmax->sum[i]);
        if (lse && lane % 4 == 0 && at < g->length)
            lse[head->lse + at] = softmax->max[i] * g->scale + log2f(softmax->sum[i]) * LN_2;
    }
    store_tile<D>(g, y + head->y, head->y_stride, query, sums, 1 / softmax->sum[0],
                  1 / softmax->sum[1], false);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    mma_forward_kernel(struct ddp_heads g, const uint16_t *qkv, uint16_t *y, float *lse)
{
    constexpr int rows = mma_cut<D>::queries, step = mma_cut<D>::step, tiles = mma_cut<D>::tiles;
    __shared__ __align__(16) uint16_t queries[rows * D], keys[2][step * D], values[2][step * D];
    const struct ddp_head head = ddp_head_of(&g, g.first + blockIdx.x / g.blocks);
    /* the longest rows first, so that none is left over at the end */
    const int64_t first = (g.blocks - 1 - blockIdx.x % g.blocks) * rows;
    const int64_t end = first + rows < g.length ? first + rows : g.length;
    const int own = (int)threadIdx.x / DDP_WARP * 16 * tiles; /* the warp's first in the block */
    const uint16_t *q = qkv + head.qkv, *k = q + head.y_stride, *v = k + head.y_stride;
    struct ddp_copies copies = {};
    struct softmax softmax[tiles];
    unsigned left[D / 16][tiles][4];
    float sums[tiles][D / 8][4];
    clear(sums);
    for (int m = 0; m < tiles; m++) {
        softmax[m].max[0] = softmax[m].max[1] = -INFINITY;
        softmax[m].sum[0] = softmax[m].sum[1] = 0;
    }
    copy_tile<D, rows>(&g, &copies, queries, q, head.stride, first);
    copy_tile<D, step>(&g, &copies, keys[0], k, head.stride, 0);
    copy_tile<D, step>(&g, &copies, values[0], v, head.stride, 0);
    for (int64_t key = 0, buffer = 0; key < end; key += step, buffer ^= 1) {
        ddp_copies_wait(&copies);
        __syncthreads(); /* this tile is there, and nobody reads the one before */
        if (key + step < end) {
            copy_tile<D, step>(&g, &copies, keys[buffer ^ 1], k, head.stride, key + step);
            copy_tile<D, step>(&g, &copies, values[buffer ^ 1], v, head.stride, key + step);
        }
        if (key == 0)
#pragma unroll
            for (int s = 0; s < D / 16; s++)
#pragma unroll
                for (int m = 0; m < tiles; m++)
                    load_left<D>(left[s][m], queries, own + 16 * m, s);
        if (key >= first + own + 16 * tiles)
            continue; /* above the diagonal for all of the warp's */
        float scores[tiles][step / 8][4];
        clear(scores);
#pragma unroll
        for (int s = 0; s < D / 16; s++)
            times_rows<D>(scores, left[s], keys[buffer], s);
#pragma unroll
        for (int m = 0; m < tiles; m++)
            take_in<D>(&softmax[m], sums[m], scores[m], g.scale * LOG2_E, first + own + 16 * m,
                       key);
#pragma unroll
        for (int s = 0; s < step / 16; s++)
            times_columns<D>(sums, scores, values[buffer], s);
    }
#pragma unroll
    for (int m = 0; m < tiles; m++)
        finish_queries<D>(&g, &head, &softmax[m], sums[m], first + own + 16 * m, y, lse);
}

/* --- backward ------------------------------------------------------------------------------- */

/* p and dp: 16 rows of two tiles of the block, from row `own` on, times all rows of two others. */
template <int D, int N>
static __device__ inline void make_products(float (&p)[1][N][4], const uint16_t *left,
                                            const uint16_t *right, float (&dp)[1][N][4],
                                            const uint16_t *dleft, const uint16_t *dright, int own)
{
    clear(p);
    clear(dp);
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
        unsigned rows[1][4];
        load_left<D>(rows[0], left, own, s);
        times_rows<D>(p, rows, right, s);
        load_left<D>(rows[0], dleft, own, s);
        times_rows<D>(dp, rows, dright, s);
    }
}

/* Scores become probabilities, and what comes to them through dy and the values, the gradient
 * before the scale. `lse` to base 2. */
static __device__ inline void gradient_of(float *score, float *gradient, bool seen, float scale,
                                          float lse, float mean)
{
    *score = seen ? exp2f(*score * scale - lse) : 0;
    *gradient = seen ? *score * (*gradient - mean) : 0;
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    mma_keys_kernel(struct ddp_heads g, struct ddp_attention_gradient b)
{
    constexpr int rows = mma_cut<D>::rows, step = mma_cut<D>::back;
    __shared__ __align__(16) uint16_t keys[rows * D], values[rows * D];
    __shared__ __align__(16) uint16_t queries[2][step * D], dys[2][step * D];
    const int64_t local = blockIdx.x / g.blocks; /* the head in this launch */
    const struct ddp_head head = ddp_head_of(&g, g.first + local);
    const int64_t first = blockIdx.x % g.blocks * rows;
    const int lane = (int)threadIdx.x % DDP_WARP, own = (int)threadIdx.x / DDP_WARP * 16;
    const uint16_t *q = (const uint16_t *)b.qkv + head.qkv, *dy = (const uint16_t *)b.dy + head.y;
    const uint16_t *k = q + head.y_stride, *v = k + head.y_stride;
    struct ddp_copies copies = {};
    float dk[1][D / 8][4], dv[1][D / 8][4];
    clear(dk);
    clear(dv);
    copy_tile<D, rows>(&g, &copies, keys, k, head.stride, first);
    copy_tile<D, rows>(&g, &copies, values, v, head.stride, first);
    copy_tile<D, step>(&g, &copies, queries[0], q, head.stride, first);
    copy_tile<D, step>(&g, &copies, dys[0], dy, head.y_stride, first);
    for (int64_t query = first, buffer = 0; query < g.length; query += step, buffer ^= 1) {
        ddp_copies_wait(&copies);
        __syncthreads();
        if (query + step < g.length) {
            copy_tile<D, step>(&g, &copies, queries[buffer ^ 1], q, head.stride, query + step);
            copy_tile<D, step>(&g, &copies, dys[buffer ^ 1], dy, head.y_stride, query + step);
        }
        if (query + step <= first + own)
            continue;                                /* above the diagonal for all of the warp's */
        float p[1][step / 8][4], dp[1][step / 8][4]; /* (keys, queries) */
        make_products<D>(p, keys, queries[buffer], dp, values, dys[buffer], own);
#pragma unroll
        for (int n = 0; n < step / 8; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int64_t at = query + 8 * n + lane % 4 * 2 + j;
                const bool there = at < g.length;
                const float lse = there ? b.lse[head.lse + at] * LOG2_E : 0;
                const float mean = there ? b.mean[local * g.length + at] : 0;
#pragma unroll
                for (int i = 0; i < 2; i++)
                    gradient_of(&p[0][n][2 * i + j], &dp[0][n][2 * i + j],
                                there && first + own + lane / 4 + 8 * i <= at, g.scale * LOG2_E,
                                lse, mean);
            }
#pragma unroll
        for (int s = 0; s < step / 16; s++) {
            times_columns<D>(dv, p, dys[buffer], s);
            times_columns<D>(dk, dp, queries[buffer], s);
        }
    }
    uint16_t *to = (uint16_t *)b.dqkv + head.qkv + head.y_stride;
    store_tile<D>(&g, to, head.stride, first + own, dk[0], g.scale, g.scale, b.add);
    store_tile<D>(&g, to + head.y_stride, head.stride, first + own, dv[0], 1, 1, b.add);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    mma_queries_kernel(struct ddp_heads g, struct ddp_attention_gradient b)
{
    constexpr int rows = mma_cut<D>::rows, step = mma_cut<D>::back;
    __shared__ __align__(16) uint16_t queries[rows * D], dys[rows * D];
    __shared__ __align__(16) uint16_t keys[2][step * D], values[2][step * D];
    const int64_t local = blockIdx.x / g.blocks;
    const struct ddp_head head = ddp_head_of(&g, g.first + local);
    const int64_t first = (g.blocks - 1 - blockIdx.x % g.blocks) * rows;
    const int64_t end = first + rows < g.length ? first + rows : g.length;
    const int lane = (int)threadIdx.x % DDP_WARP, own = (int)threadIdx.x / DDP_WARP * 16;
    const uint16_t *q = (const uint16_t *)b.qkv + head.qkv, *dy = (const uint16_t *)b.dy + head.y;
    const uint16_t *k = q + head.y_stride, *v = k + head.y_stride;
    struct ddp_copies copies = {};
    float dq[1][D / 8][4], lse[2], mean[2];
    clear(dq);
    for (int i = 0; i < 2; i++) {
        const int64_t at = first + own + lane / 4 + 8 * i;
        lse[i] = at < g.length ? b.lse[head.lse + at] * LOG2_E : 0;
        mean[i] = at < g.length ? b.mean[local * g.length + at] : 0;
    }
    copy_tile<D, rows>(&g, &copies, queries, q, head.stride, first);
    copy_tile<D, rows>(&g, &copies, dys, dy, head.y_stride, first);
    copy_tile<D, step>(&g, &copies, keys[0], k, head.stride, 0);
    copy_tile<D, step>(&g, &copies, values[0], v, head.stride, 0);
    for (int64_t key = 0, buffer = 0; key < end; key += step, buffer ^= 1) {
        ddp_copies_wait(&copies);
        __syncthreads();
        if (key + step < end) {
            copy_tile<D, step>(&g, &copies, keys[buffer ^ 1], k, head.stride, key + step);
            copy_tile<D, step>(&g, &copies, values[buffer ^ 1], v, head.stride, key + step);
        }
        if (key >= first + own + 16)
            continue;                                /* above the diagonal for all of the warp's */
        float p[1][step / 8][4], dp[1][step / 8][4]; /* (queries, keys) */
        make_products<D>(p, queries, keys[buffer], dp, dys, values[buffer], own);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t at = first + own + lane / 4 + 8 * i;
            const int64_t left = at < g.length ? at - key - lane % 4 * 2 : -1;
#pragma unroll
            for (int n = 0; n < step / 8; n++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    gradient_of(&p[0][n][2 * i + j], &dp[0][n][2 * i + j], 8 * n + j <= left,
                                g.scale * LOG2_E, lse[i], mean[i]);
        }
#pragma unroll
        for (int s = 0; s < step / 16; s++)
            times_columns<D>(dq, dp, keys[buffer], s);
    }
    store_tile<D>(&g, (uint16_t *)b.dqkv + head.qkv, head.stride, first + own, dq[0], g.scale,
                  g.scale, b.add);
}

/* --- entries -------------------------------------------------------------------------------- */

template <int D>
static void forward(struct ddp_heads g, const struct ddp_attention_forward *args,
                    struct ddp_cuda *cuda)
{
    g.blocks = (g.length + mma_cut<D>::queries - 1) / mma_cut<D>::queries;
    DDP_LAUNCH(mma_forward_kernel<D>, (unsigned)(g.count * g.blocks), THREADS, 0, cuda->stream, g,
               (const uint16_t *)args->qkv, (uint16_t *)args->y, args->lse);
}

template <int D>
static void backward(struct ddp_heads g, const struct ddp_attention_gradient *b,
                     struct ddp_cuda *cuda)
{
    g.blocks = (g.length + mma_cut<D>::rows - 1) / mma_cut<D>::rows;
    const unsigned blocks = (unsigned)(g.count * g.blocks);
    DDP_LAUNCH(mma_keys_kernel<D>, blocks, THREADS, 0, cuda->stream, g, *b);
    DDP_LAUNCH(mma_queries_kernel<D>, blocks, THREADS, 0, cuda->stream, g, *b);
}

/* Compiled for the device, or for an older one, as PTX that the driver then made code of? */
static bool was_compiled_for_mma(const struct ddp_cuda *cuda, const void *kernel)
{
    struct cudaFuncAttributes attributes = {};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess && attributes.ptxVersion >= DDP_MMA_CAPABILITY &&
        attributes.binaryVersion >= DDP_MMA_CAPABILITY)
        return true;
    (void)cudaGetLastError();
    static bool told;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        ddp_log(DDP_LOG_WARNING,
                "attention leaves the tensor cores unused and is slow: this build has no code for "
                "compute capability %d.%d: configure with "
                "NVCC_GENCODE=-gencode=arch=compute_%d,code=sm_%d and build again",
                cuda->capability / 10, cuda->capability % 10, cuda->capability, cuda->capability);
    return false;
}

bool ddp_cuda_has_mma_code(struct ddp_cuda *cuda)
{
    static const void *const kernels[] = {
        (const void *)mma_forward_kernel<32>,  (const void *)mma_keys_kernel<32>,
        (const void *)mma_queries_kernel<32>,  (const void *)mma_forward_kernel<64>,
        (const void *)mma_keys_kernel<64>,     (const void *)mma_queries_kernel<64>,
        (const void *)mma_forward_kernel<128>, (const void *)mma_keys_kernel<128>,
        (const void *)mma_queries_kernel<128>};
    if (cuda->mma_code == 0) {
        bool all = cuda->capability >= DDP_MMA_CAPABILITY;
        for (size_t i = 0; all && i < sizeof kernels / sizeof *kernels; i++)
            all = was_compiled_for_mma(cuda, kernels[i]);
        cuda->mma_code = all ? 1 : -1;
    }
    return cuda->mma_code > 0;
}

bool ddp_cuda_attention_has_mma(struct ddp_cuda *cuda, enum ddp_dtype dtype, int64_t size,
                                const void *qkv, const void *y, const void *other)
{
    return dtype == DDP_BF16 && size <= 128 && size % 8 == 0 && ddp_aligned(qkv) &&
           ddp_aligned(y) && ddp_aligned(other) && !ddp_cuda_gemm_is_plain(cuda) &&
           ddp_cuda_has_mma_code(cuda);
}

void ddp_cuda_attention_mma_forward(struct ddp_heads g, const struct ddp_attention_forward *args,
                                    struct ddp_cuda *cuda)
{
    if (g.size <= 32)
        forward<32>(g, args, cuda);
    else if (g.size <= 64)
        forward<64>(g, args, cuda);
    else
        forward<128>(g, args, cuda);
}

void ddp_cuda_attention_mma_backward(struct ddp_heads g, const struct ddp_attention_gradient *b,
                                     struct ddp_cuda *cuda)
{
    if (g.size <= 32)
        backward<32>(g, b, cuda);
    else if (g.size <= 64)
        backward<64>(g, b, cuda);
    else
        backward<128>(g, b, cuda);
}

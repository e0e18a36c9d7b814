/* SPDX-License-Identifier: MIT
 *
 * Causal attention on tensor cores; see cuda.h. The same three kernels as in attention.cu, which is
 * their plain twin: a block of four warps owns the rows of one head that its results belong to, and
 * the rows of the other kind that see them or that they see pass by, copied to shared memory
 * while those before them are multiplied.
 *
 * A warp owns 32 rows (16 of more than 64 features), held as operands in its registers, with all
 * their columns: scores come out of one product in the registers that the next one takes them from,
 * maxima and sums are those of four neighbouring lanes, and only what passes by is in shared
 * memory. Rows of eight elements are permuted there by the row, so that no eight that are read
 * together meet in a bank. Only tiles on the diagonal, at the end, and where windows or documents
 * begin look at what is to be left out.
 *
 * Bound by the tensor cores as mma.sync reaches them, two thirds of their peak on Hopper (6.3
 * cycles a product of 16 x 8 x 16): of 64 features, there are five instructions to a product
 * forward, and 3.5 backward, of which one is issued a cycle; and shared memory gives four products
 * an operand in four cycles. Backward makes the scores twice, in a kernel for dk and dv and one for
 * dq: seven products instead of five, since a dq that all key blocks add to needs either atomics,
 * whose order changes bits, or its float32 sums in memory for each of them, whose traffic costs
 * more than the two products.
 *
 * T is the type in memory. Rows of float32 become operands of float16 on their way to shared
 * memory, which only loads can do: a block waits for those of the next tile before it multiplies,
 * where rows of bf16 are copied aside. For Turing, which knows neither bf16 nor such copies. */
#include "kernels/attention/cuda_tiles.h"

#include "kernels/cuda/gemm.h"

#include <math.h>

#define PART   16 /* of the rows that pass by, multiplied at once going back */
#define LOG2_E 1.44269504f
#define LN_2   0.69314718f

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
                                      float (&scores)[N][4], float scale)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float max = softmax->max[i], sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
            max = fmaxf(max, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
        max = quad_max(max);
        const float below = max == -INFINITY ? 0 : max * scale; /* no key yet: zeros, not NaN */
        const float old =
            softmax->max[i] == max ? 1 : ddp_fast_exp2(softmax->max[i] * scale - below);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float *score = &scores[n][2 * i + j];
                *score = ddp_fast_exp2(*score * scale - below);
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

template <int D, typename T>
static __device__ inline void finish_queries(const struct ddp_heads *g, const struct ddp_head *head,
                                             struct softmax *softmax, const float (&sums)[D / 8][4],
                                             int query, T *y, float *lse)
{
    const int lane = lane_of();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = query + lane / 4 + 8 * i;
        softmax->sum[i] = quad_sum(softmax->sum[i]);
        if (lse && lane % 4 == 0 && at < g->length)
            lse[head->lse + at] = softmax->max[i] * g->scale + log2f(softmax->sum[i]) * LN_2;
    }
    store_tile<D>(g, y + head->y, head->y_stride, query, sums, 1 / softmax->sum[0],
                  1 / softmax->sum[1], false);
}

/* Arrays of forward. */
struct ddp_attention_tiles {
    const void *q, *k, *v;
    void *y;
    float *lse;
};

/* What bounds the keys of queries, in shared memory: registers are full. */
struct bounds {
    int64_t row;     /* of the documents */
    int open[WARPS]; /* from this key on all queries of the warp see what is before them */
};

/* By the first threads, of a block whose queries begin with `first`, `rows` to a warp. */
static __device__ inline void note_bounds(struct bounds *bounds, const struct ddp_heads *g,
                                          int64_t row, int first, int rows)
{
    const int warp = (int)threadIdx.x, last = first + (warp + 1) * rows - 1;
    bounds->row = row;
    bounds->open[warp] = g->bounded ? ddp_first_seen(g, row, last) : 0;
}

static __device__ inline unsigned warp_again(void)
{
    return ddp_again(threadIdx.x) / DDP_WARP;
}

/* f(m, n, i) for the scores of keys, from `key` on, that come before the first ones of queries,
 * from `query` on. */
template <int M, int N, typename F>
static __device__ inline void for_before(const struct ddp_heads *g, int64_t row, int query, int key,
                                         F f)
{
    const int lane = (int)(ddp_again(threadIdx.x) % DDP_WARP);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = query + 16 * m + lane / 4 + i / 2 * 8;
            const int first = ddp_first_seen(g, row, at) - key - lane % 4 * 2 - i % 2;
#pragma unroll
            for (int n = 0; n < N; n++)
                if (8 * n < first)
                    f(m, n, i);
        }
}

template <int D, typename T>
static __global__ void __launch_bounds__(THREADS, 2)
    mma_forward_kernel(struct ddp_heads g, struct ddp_attention_tiles a)
{
    constexpr int rows = mma_cut<D>::rows, step = mma_cut<D>::step, tiles = mma_cut<D>::tiles;
    /* keys and values, twice; the queries first, where the second of these come */
    __shared__ __align__(256) uint16_t memory[mma_cut<D>::room];
    __shared__ struct bounds bounds;
    const struct ddp_head head = ddp_head_of(&g, g.first + blockIdx.x / g.blocks);
    const int length = (int)g.length;
    /* the longest rows first, so that none is left over at the end */
    const int first = (int)(g.blocks - 1 - blockIdx.x % g.blocks) * rows;
    const int end = first + rows < length ? first + rows : length;
    const int lane = lane_of();
    const int query = first + warp_of() * 16 * tiles; /* the warp's first */
    const int begin = g.bounded ? ddp_first_seen(&g, head.row, first) / step * step : 0;
    if (threadIdx.x < WARPS)
        note_bounds(&bounds, &g, head.row, first, 16 * tiles);
    const T *q = (const T *)a.q + head.q, *k = (const T *)a.k + head.k;
    const T *v = (const T *)a.v + head.v;
    struct ddp_copies copies = {};
    struct softmax softmax[tiles];
    unsigned own[D / 16][tiles][4];
    float sums[tiles][D / 8][4];
    clear(sums);
    for (int m = 0; m < tiles; m++) {
        softmax[m].max[0] = softmax[m].max[1] = -INFINITY;
        softmax[m].sum[0] = softmax[m].sum[1] = 0;
    }
    copy_tile<D, rows>(&g, &copies, memory + 2 * step * D, q, g.q_stride, first);
    copy_tile<D, step>(&g, &copies, memory, k, g.k_stride, begin);
    copy_tile<D, step>(&g, &copies, memory + step * D, v, g.v_stride, begin);
    ddp_copies_wait(&copies);
    __syncthreads();
    load_own<D>(own, memory + 2 * step * D);
    for (int key = begin, buffer = 0; key < end; key += step, buffer ^= 1) {
        const uint16_t *keys = memory + buffer * 2 * step * D, *values = keys + step * D;
        ddp_copies_wait(&copies);
        __syncthreads(); /* this tile is there, and nobody reads the one before */
        if (key + step < end) {
            uint16_t *next = memory + (buffer ^ 1) * 2 * step * D;
            copy_tile<D, step>(&g, &copies, next, k, g.k_stride, key + step);
            copy_tile<D, step>(&g, &copies, next + step * D, v, g.v_stride, key + step);
        }
        if (key >= query + 16 * tiles)
            continue; /* above the diagonal for all of the warp's */
        float scores[tiles][step / 8][4];
        clear(scores);
#pragma unroll
        for (int s = 0; s < D / 16; s++)
            times_rows<D, T>(scores, own[s], right_of<D>(keys), s);
        /* keys of the lane, from its first on, that its first query sees */
        const int seen = query + lane / 4 - key - lane % 4 * 2;
        if (key + step > query + 1)
            for_results<tiles, step / 8>([&](int m, int n, int i) {
                if (8 * n + i % 2 > seen + 16 * m + i / 2 * 8)
                    scores[m][n][i] = -INFINITY;
            });
        if (key < bounds.open[warp_again()])
            for_before<tiles, step / 8>(&g, bounds.row, query, key,
                                        [&](int m, int n, int i) { scores[m][n][i] = -INFINITY; });
#pragma unroll
        for (int m = 0; m < tiles; m++)
            take_in<D>(&softmax[m], sums[m], scores[m], g.log2_scale);
#pragma unroll
        for (int s = 0; s < step / 16; s++)
            times_columns<D, T>(sums, scores, left_of<D>(values), s);
    }
    const struct ddp_head to =
        ddp_head_of(&g, g.first + ddp_again(blockIdx.x) / (unsigned)g.blocks);
#pragma unroll
    for (int m = 0; m < tiles; m++)
        finish_queries<D>(&g, &to, &softmax[m], sums[m], query + 16 * m, (T *)a.y, a.lse);
}

/* --- backward ------------------------------------------------------------------------------- */

/* p and dp += what a warp owns times rows of two tiles. */
template <int D, typename T, int M, int N>
static __device__ inline void add_products(float (&p)[M][N][4], const unsigned (&own)[D / 16][M][4],
                                           ddp_shared right, float (&dp)[M][N][4],
                                           const unsigned (&down)[D / 16][M][4], ddp_shared dright)
{
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
        times_rows<D, T>(p, own[s], right, s);
        times_rows<D, T>(dp, down[s], dright, s);
    }
}

/* What is not seen, before it becomes a probability and a gradient of 0. */
static __device__ inline void hide(float *score, float *gradient)
{
    *score = -INFINITY;
    *gradient = 0;
}

/* Of keys from `key` on and queries from `query` on: what the diagonal and the end leave out. */
template <int M, int N>
static __device__ inline void hide_later(const struct ddp_heads *g, int query, int key,
                                         float (&p)[M][N][4], float (&dp)[M][N][4])
{
    const int own = (int)(ddp_again(threadIdx.x) % DDP_WARP);
    /* the lane's first query, from its first key and from the end */
    const int seen = query + own % 4 * 2 - key - own / 4;
    const int left = (int)g->length - query - own % 4 * 2;
    for_results<M, N>([&](int m, int n, int i) {
        if (8 * n + i % 2 + seen < 16 * m + i / 2 * 8 || 8 * n + i % 2 >= left)
            hide(&p[m][n][i], &dp[m][n][i]);
    });
}

/* ... and what windows and documents do: keys before a query's first one. */
template <int M, int N>
static __device__ inline void hide_from_others(const struct ddp_heads *g, int64_t row, int query,
                                               int key, float (&p)[M][N][4], float (&dp)[M][N][4])
{
    if (ddp_first_seen(g, row, query + 8 * N - 1) <= key)
        return;
    const int own = (int)(ddp_again(threadIdx.x) % DDP_WARP);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int first =
                ddp_first_seen(g, row, query + own % 4 * 2 + 8 * n + j) - key - own / 4;
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = j; i < 4; i += 2)
                    if (16 * m + i / 2 * 8 < first)
                        hide(&p[m][n][i], &dp[m][n][i]);
        }
}

/* A score becomes a probability, and what came to it through dy and the values, less the mean, the
 * gradient before the scale. `lse` to base 2. */
static __device__ inline void gradient_of(float *score, float *gradient, float scale, float lse)
{
    *score = ddp_fast_exp2(*score * scale - lse);
    *gradient *= *score;
}

/* Of the queries from `row` on that pass by, thread i gets lse, to base 2, of query i, thread
 * step + i the mean, negative. */
template <int D>
static __device__ inline float
column_of(const struct ddp_heads *g, const struct ddp_attention_gradient *b, int64_t local, int row)
{
    const unsigned thread = ddp_again(threadIdx.x), step = mma_cut<D>::step;
    const int at = row + (int)(thread % step);
    if (at >= g->length)
        return 0;
    const unsigned head = ddp_again((unsigned)local);
    return thread < step ? b->lse[(g->first + head) * g->length + at] * LOG2_E
                         : -b->mean[head * g->length + at];
}

template <int D, typename T>
static __global__ void __launch_bounds__(THREADS, 2)
    mma_keys_kernel(struct ddp_heads g, struct ddp_attention_gradient b)
{
    constexpr int rows = mma_cut<D>::rows, step = mma_cut<D>::step, tiles = mma_cut<D>::tiles;
    /* queries and dy, twice; keys and values first */
    __shared__ __align__(256) uint16_t memory[mma_cut<D>::room];
    __shared__ struct bounds bounds;
    __shared__ __align__(16) float columns[2][THREADS];    /* lse and mean */
    const int64_t local = blockIdx.x / g.blocks * g.group; /* the first head in this launch */
    const struct ddp_head to = ddp_head_of(&g, g.first + local);
    const int length = (int)g.length;
    const int first = (int)(blockIdx.x % g.blocks) * rows, lane = lane_of();
    const int end = g.bounded ? ddp_end_of_seers(&g, to.row, first + rows - 1) : length;
    const int key = first + warp_of() * 16 * tiles; /* the warp's first */
    if (threadIdx.x == 0)
        bounds.row = to.row;
    struct ddp_copies copies = {};
    unsigned keys[D / 16][tiles][4], values[D / 16][tiles][4];
    float dk[tiles][D / 8][4], dv[tiles][D / 8][4];
    copy_tile<D, rows>(&g, &copies, memory, (const T *)b.k + to.k, g.k_stride, first);
    copy_tile<D, rows>(&g, &copies, memory + rows * D, (const T *)b.v + to.v, g.v_stride, first);
    ddp_copies_wait(&copies);
    __syncthreads();
    load_own<D>(keys, memory);
    load_own<D>(values, memory + rows * D);
    clear(dk);
    clear(dv);
#pragma unroll 1
    for (int h = 0; h < (int)g.group; h++) {
        const struct ddp_head head = ddp_head_of(&g, g.first + local + h);
        const T *q = (const T *)b.q + head.q, *dy = (const T *)b.dy + head.y;
        __syncthreads(); /* nobody reads what is there */
        copy_tile<D, step>(&g, &copies, memory, q, g.q_stride, first);
        copy_tile<D, step>(&g, &copies, memory + step * D, dy, head.y_stride, first);
        columns[0][threadIdx.x] = column_of<D>(&g, &b, local + h, first);
        for (int query = first, buffer = 0; query < end; query += step, buffer ^= 1) {
            const uint16_t *queries = memory + buffer * 2 * step * D, *dys = queries + step * D;
            ddp_copies_wait(&copies);
            __syncthreads();
            if (query + step < end) {
                uint16_t *next = memory + (buffer ^ 1) * 2 * step * D;
                copy_tile<D, step>(&g, &copies, next, q, g.q_stride, query + step);
                copy_tile<D, step>(&g, &copies, next + step * D, dy, head.y_stride, query + step);
            }
            const float later = column_of<D>(&g, &b, local + h, query + step);
#pragma unroll 1
            for (int at = 0; at < step && query + at < end; at += PART) {
                if (query + at + PART <= key)
                    continue; /* above the diagonal for all of the warp's */
                const float *lse = columns[buffer] + at + lane % 4 * 2, *mean = lse + step;
                float p[tiles][PART / 8][4], dp[tiles][PART / 8][4]; /* (keys, queries) */
                clear(p);
                for_results<tiles, PART / 8>(
                    [&](int m, int n, int i) { dp[m][n][i] = mean[8 * n + i % 2]; });
                add_products<D, T>(p, keys, right_of<D>(queries + at * D), dp, values,
                                   right_of<D>(dys + at * D));
                if (query + at < key + 16 * tiles - 1 || query + at + PART > length)
                    hide_later(&g, query + at, key, p, dp);
                if (g.bounded)
                    hide_from_others(&g, bounds.row, query + at, key, p, dp);
                for_results<tiles, PART / 8>([&](int m, int n, int i) {
                    gradient_of(&p[m][n][i], &dp[m][n][i], g.log2_scale, lse[8 * n + i % 2]);
                });
                times_columns<D, T>(dv, p, left_of<D>(dys + at * D), 0);
                times_columns<D, T>(dk, dp, left_of<D>(queries + at * D), 0);
            }
            columns[buffer ^ 1][ddp_again(threadIdx.x)] = later;
        }
    }
#pragma unroll
    for (int m = 0; m < tiles; m++) {
        if (b.dk)
            store_tile<D>(&g, (T *)b.dk + to.k, g.k_stride, key + 16 * m, dk[m], g.scale, g.scale,
                          b.add_k);
        if (b.dv)
            store_tile<D>(&g, (T *)b.dv + to.v, g.v_stride, key + 16 * m, dv[m], 1, 1, b.add_v);
    }
}

template <int D, typename T>
static __global__ void __launch_bounds__(THREADS, 2)
    mma_queries_kernel(struct ddp_heads g, struct ddp_attention_gradient b)
{
    constexpr int rows = mma_cut<D>::rows, step = mma_cut<D>::step, tiles = mma_cut<D>::tiles;
    /* keys and values, twice; queries and dy first */
    __shared__ __align__(256) uint16_t memory[mma_cut<D>::room];
    __shared__ struct bounds bounds;
    const int64_t local = blockIdx.x / g.blocks;
    const struct ddp_head head = ddp_head_of(&g, g.first + local);
    const int length = (int)g.length;
    const int first = (int)(g.blocks - 1 - blockIdx.x % g.blocks) * rows;
    const int end = first + rows < length ? first + rows : length;
    const int lane = lane_of();
    const int query = first + warp_of() * 16 * tiles; /* the warp's first */
    const int begin = g.bounded ? ddp_first_seen(&g, head.row, first) / step * step : 0;
    if (threadIdx.x < WARPS)
        note_bounds(&bounds, &g, head.row, first, 16 * tiles);
    const T *q = (const T *)b.q + head.q, *dy = (const T *)b.dy + head.y;
    const T *k = (const T *)b.k + head.k, *v = (const T *)b.v + head.v;
    struct ddp_copies copies = {};
    unsigned queries[D / 16][tiles][4], dys[D / 16][tiles][4];
    float dq[tiles][D / 8][4], lse[tiles][2], mean[tiles][2];
    copy_tile<D, rows>(&g, &copies, memory, q, g.q_stride, first);
    copy_tile<D, rows>(&g, &copies, memory + rows * D, dy, head.y_stride, first);
    ddp_copies_wait(&copies);
    __syncthreads();
    load_own<D>(queries, memory);
    load_own<D>(dys, memory + rows * D);
    __syncthreads();
    clear(dq);
#pragma unroll
    for (int m = 0; m < tiles; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = query + 16 * m + lane / 4 + 8 * i;
            lse[m][i] = at < length ? b.lse[head.lse + at] * LOG2_E : 0;
            mean[m][i] = at < length ? -b.mean[local * g.length + at] : 0;
        }
    copy_tile<D, step>(&g, &copies, memory, k, g.k_stride, begin);
    copy_tile<D, step>(&g, &copies, memory + step * D, v, g.v_stride, begin);
    for (int key = begin, buffer = 0; key < end; key += step, buffer ^= 1) {
        const uint16_t *keys = memory + buffer * 2 * step * D, *values = keys + step * D;
        ddp_copies_wait(&copies);
        __syncthreads();
        if (key + step < end) {
            uint16_t *next = memory + (buffer ^ 1) * 2 * step * D;
            copy_tile<D, step>(&g, &copies, next, k, g.k_stride, key + step);
            copy_tile<D, step>(&g, &copies, next + step * D, v, g.v_stride, key + step);
        }
#pragma unroll 1
        for (int at = 0; at < step && key + at < query + 16 * tiles; at += PART) {
            float p[tiles][PART / 8][4], dp[tiles][PART / 8][4]; /* (queries, keys) */
            clear(p);
            for_results<tiles, PART / 8>(
                [&](int m, int n, int i) { dp[m][n][i] = mean[m][i / 2]; });
            add_products<D, T>(p, queries, right_of<D>(keys + at * D), dp, dys,
                               right_of<D>(values + at * D));
            const int seen = query + lane / 4 - key - at - lane % 4 * 2;
            if (key + at + PART > query + 1)
                for_results<tiles, PART / 8>([&](int m, int n, int i) {
                    if (8 * n + i % 2 > seen + 16 * m + i / 2 * 8)
                        hide(&p[m][n][i], &dp[m][n][i]);
                });
            if (key + at < bounds.open[warp_again()])
                for_before<tiles, PART / 8>(
                    &g, bounds.row, query, key + at,
                    [&](int m, int n, int i) { hide(&p[m][n][i], &dp[m][n][i]); });
            for_results<tiles, PART / 8>([&](int m, int n, int i) {
                gradient_of(&p[m][n][i], &dp[m][n][i], g.log2_scale, lse[m][i / 2]);
            });
            times_columns<D, T>(dq, dp, left_of<D>(keys + at * D), 0);
        }
    }
#pragma unroll
    for (int m = 0; m < tiles; m++)
        store_tile<D>(&g, (T *)b.dq + head.q, g.q_stride, query + 16 * m, dq[m], g.scale, g.scale,
                      b.add_q);
}

/* --- entries -------------------------------------------------------------------------------- */

template <int D, typename T>
static void forward(struct ddp_heads g, const struct ddp_attention_forward *args,
                    struct ddp_cuda *cuda)
{
    g.blocks = (g.length + mma_cut<D>::rows - 1) / mma_cut<D>::rows;
    const struct ddp_attention_tiles a = {args->q, args->k, args->v, args->y, args->lse};
    DDP_LAUNCH((mma_forward_kernel<D, T>), (unsigned)(g.count * g.blocks), THREADS, 0, cuda->stream,
               g, a);
}

template <int D, typename T>
static void backward(struct ddp_heads g, const struct ddp_attention_gradient *b,
                     struct ddp_cuda *cuda)
{
    g.blocks = (g.length + mma_cut<D>::rows - 1) / mma_cut<D>::rows;
    const unsigned blocks = (unsigned)(g.count * g.blocks);
    if (b->dq) /* first, as in attention.cu */
        DDP_LAUNCH((mma_queries_kernel<D, T>), blocks, THREADS, 0, cuda->stream, g, *b);
    if (b->dk || b->dv)
        DDP_LAUNCH((mma_keys_kernel<D, T>), blocks / (unsigned)g.group, THREADS, 0, cuda->stream, g,
                   *b);
}

/* The capability that a kernel's code was compiled for: for the device, or for an older one, as PTX
 * that the driver then made code of. */
static int capability_of(const void *kernel)
{
    struct cudaFuncAttributes attributes = {};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    (void)cudaGetLastError();
    return error != cudaSuccess                               ? 1
           : attributes.ptxVersion < attributes.binaryVersion ? attributes.ptxVersion
                                                              : attributes.binaryVersion;
}

static void tell(const struct ddp_cuda *cuda)
{
    static bool told;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        ddp_log(DDP_LOG_WARNING,
                "attention leaves the tensor cores unused and is slow: this build has no code for "
                "compute capability %d.%d: configure with "
                "NVCC_GENCODE=-gencode=arch=compute_%d,code=sm_%d and build again",
                cuda->capability / 10, cuda->capability % 10, cuda->capability, cuda->capability);
}

bool ddp_cuda_has_mma_code(struct ddp_cuda *cuda, enum ddp_dtype type)
{
    /* one of each pass: all are of this file */
    static const void *const kernels[] = {(const void *)mma_forward_kernel<64, float>,
                                          (const void *)mma_keys_kernel<64, float>,
                                          (const void *)mma_queries_kernel<64, float>,
                                          (const void *)mma_forward_kernel<64, uint16_t>,
                                          (const void *)mma_keys_kernel<64, uint16_t>,
                                          (const void *)mma_queries_kernel<64, uint16_t>};
    const int needed = type == DDP_F16 ? DDP_MMA_F16_CAPABILITY : DDP_MMA_CAPABILITY;
    if (cuda->capability < needed)
        return false;
    if (cuda->mma_code == 0) {
        cuda->mma_code = cuda->capability;
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
            const int code = capability_of(kernels[i]);
            cuda->mma_code = code < cuda->mma_code ? code : cuda->mma_code;
        }
    }
    if (cuda->mma_code < needed)
        tell(cuda);
    return cuda->mma_code >= needed;
}

bool ddp_cuda_attention_has_mma(struct ddp_cuda *cuda, const struct ddp_attention_shape *s)
{
    return (s->dtype == DDP_BF16 || s->f16) && s->head_size <= 128 && s->head_size % 8 == 0 &&
           !ddp_cuda_gemm_is_plain(cuda) &&
           ddp_cuda_has_mma_code(cuda, s->dtype == DDP_BF16 ? DDP_BF16 : DDP_F16);
}

template <typename T>
static void forward_of(const struct ddp_heads *g, const struct ddp_attention_forward *args,
                       struct ddp_cuda *cuda)
{
    if (g->size <= 32)
        forward<32, T>(*g, args, cuda);
    else if (g->size <= 64)
        forward<64, T>(*g, args, cuda);
    else
        forward<128, T>(*g, args, cuda);
}

void ddp_cuda_attention_mma_forward(struct ddp_heads g, const struct ddp_attention_forward *args,
                                    struct ddp_cuda *cuda)
{
    DDP_BY_DTYPE(args->shape.dtype, forward_of, &g, args, cuda);
}

template <typename T>
static void backward_of(const struct ddp_heads *g, const struct ddp_attention_gradient *b,
                        struct ddp_cuda *cuda)
{
    if (g->size <= 32)
        backward<32, T>(*g, b, cuda);
    else if (g->size <= 64)
        backward<64, T>(*g, b, cuda);
    else
        backward<128, T>(*g, b, cuda);
}

void ddp_cuda_attention_mma_backward(struct ddp_heads g, const struct ddp_attention_gradient *b,
                                     enum ddp_dtype dtype, struct ddp_cuda *cuda)
{
    DDP_BY_DTYPE(dtype, backward_of, &g, b, cuda);
}

/* SPDX-License-Identifier: MIT
 *
 * What mma.cu multiplies: tiles of rows of one head in shared memory, as operands of ptx.h, and
 * results in the registers of a warp. T is the type in memory: uint16_t, which is bf16 everywhere,
 * or float, whose operands are float16. */
#ifndef DDP_KERNELS_ATTENTION_CUDA_TILES_H
#define DDP_KERNELS_ATTENTION_CUDA_TILES_H

#include "kernels/attention/cuda.h"
#include "kernels/cuda/ptx.h"

#define WARPS   4
#define THREADS (WARPS * DDP_WARP)

template <typename T> struct mma_operand {
    typedef uint16_t type;
};
template <> struct mma_operand<float> {
    typedef ddp_half type;
};

/* How heads of up to D features are cut. The memory that a warp's own rows come through is then
 * free for those that pass by. */
template <int D> struct mma_cut {
    static constexpr int tiles = D <= 64 ? 2 : 1;   /* of 16 rows that a warp owns */
    static constexpr int rows = WARPS * 16 * tiles; /* that a block owns */
    static constexpr int step = D <= 64 ? 64 : 32;  /* that pass by at once */
    static constexpr int room = 4 * step * D;       /* elements: two tiles of two kinds of rows */
};

/* All elements of a lane's results: f(m, n, i) for element i of the 16 x 8 results (m, n). It is in
 * row lane / 4 + i / 2 * 8, column lane % 4 * 2 + i % 2. */
template <int M, int N, typename F> static __device__ inline void for_results(F f)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                f(m, n, i);
}

/* The warp's index, which the compiler then knows to be the same for its lanes. */
static __device__ inline int warp_of(void)
{
    return __shfl_sync(DDP_FULL_MASK, (int)(threadIdx.x / DDP_WARP), 0);
}

static __device__ inline int lane_of(void)
{
    return (int)(threadIdx.x % DDP_WARP);
}

/* A tile of rows x D elements, in chunks of eight. In a tile that begins at a multiple of its rows'
 * size, eight rows more are a sum, and 16 s features more an exclusive or of the address. */
template <int D> static __device__ inline int place(int row, int chunk)
{
    return row * D + 8 * (chunk ^ (D >= 64 ? row & 7 : row >> 1 & 3));
}

/* The row of 16 bytes that a lane gives for 16 x 16 elements at the begin of a tile: of a left
 * operand or a transposed right one, and of a right one. */
template <int D> static __device__ inline ddp_shared left_of(const uint16_t *tile)
{
    const int lane = lane_of();
    return ddp_shared_of(tile + place<D>(lane % 16, lane / 16));
}

template <int D> static __device__ inline ddp_shared right_of(const uint16_t *tile)
{
    const int lane = lane_of();
    return ddp_shared_of(tile + place<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
}

/* ROWS rows from `row` on become a tile, with zeros for what is not there. */
template <int D, int ROWS, typename T>
static __device__ inline void copy_tile(const struct ddp_heads *g, struct ddp_copies *copies,
                                        uint16_t *tile, const T *from, int64_t row_stride, int row)
{
    constexpr int width = ddp_width<T>, rows = THREADS / (D / width); /* at once */
    const unsigned thread = ddp_again(threadIdx.x);
    const int own = (int)(thread / (D / width)), first = (int)(thread % (D / width)) * width;
    const int left = first < g->size ? (int)g->length - row - own : 0;
    const unsigned stride = (unsigned)row_stride; /* products of it have 64 bits at once */
    const T *mine = from + (uint64_t)(unsigned)(row + own) * stride + first;
    uint16_t *to = tile + place<D>(own, first / 8) + first % 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += rows) {
        uint16_t *place_of = to + i * D;
        if constexpr (rows % 8 != 0)
            place_of = tile + place<D>(own + i, first / 8) + first % 8;
        ddp_copy(copies, place_of, mine + i * stride, i < left);
    }
}

/* The rows of a warp from a tile, as operands. */
template <int D, int M>
static __device__ inline void load_own(unsigned (&a)[D / 16][M][4], const uint16_t *tile)
{
    const ddp_shared own = left_of<D>(tile + warp_of() * 16 * M * D);
#pragma unroll
    for (int s = 0; s < D / 16; s++)
#pragma unroll
        for (int m = 0; m < M; m++)
            ddp_mma_load(a[s][m], (own ^ 32 * s) + 32 * m * D);
}

/* sums (16 M, 8 N) += a (16 M rows) times 8 N rows of a tile, over 16 features from 16 s on.
 * `right`: right_of() the tile. */
template <int D, typename T, int M, int N>
static __device__ inline void times_rows(float (&sums)[M][N][4], const unsigned (&a)[M][4],
                                         ddp_shared right, int s)
{
    typedef typename mma_operand<T>::type E;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        unsigned b[4];
        ddp_mma_load(b, (right ^ 32 * s) + 16 * n * D);
#pragma unroll
        for (int m = 0; m < M; m++) {
            ddp_mma<E>(sums[m][n], a[m], b[0], b[1]);
            ddp_mma<E>(sums[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

/* sums (16 M, D) += columns 16 s .. of left, rounded, times 16 rows, from 16 s on, of a tile.
 * `rows`: left_of() the tile. */
template <int D, typename T, int M, int N>
static __device__ inline void times_columns(float (&sums)[M][D / 8][4],
                                            const float (&left)[M][N][4], ddp_shared rows, int s)
{
    typedef typename mma_operand<T>::type E;
    unsigned a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) /* the registers of a result are those of an operand */
            a[m][i] = ddp_mma_pair<E>(left[m][2 * s + i / 2][i % 2 * 2],
                                      left[m][2 * s + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        unsigned b[4];
        ddp_mma_load_transposed(b, (rows ^ 16 * n) + 32 * s * D);
#pragma unroll
        for (int m = 0; m < M; m++) {
            ddp_mma<E>(sums[m][n], a[m], b[0], b[1]);
            ddp_mma<E>(sums[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

template <int M, int N> static __device__ inline void clear(float (&sums)[M][N][4])
{
    for_results<M, N>([&](int m, int n, int i) { sums[m][n][i] = 0; });
}

/* Two rows of a lane's results, eight apart, times their factors. Eight columns of a row are
 * written by four neighbouring lanes at once. */
template <int D, typename T>
static __device__ inline void store_tile(const struct ddp_heads *g, T *to, int64_t stride, int row,
                                         const float (&sums)[D / 8][4], float low, float high,
                                         bool add)
{
    const int lane = lane_of();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = row + lane / 4 + 8 * i;
        if (at >= g->length)
            continue;
        const float factor = i ? high : low;
        T *pair = to + at * stride + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            if (8 * n >= g->size)
                break;
            const ddp_pack<float, 2> values = {
                {sums[n][2 * i] * factor, sums[n][2 * i + 1] * factor}};
            ddp_put(pair + 8 * n, values, add);
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

#endif

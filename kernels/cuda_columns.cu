/* SPDX-License-Identifier: MIT
 *
 * See cuda_columns.h. Bound by memory: each array is read or written once, in accesses of 16 bytes.
 * Sums over rows: the rows are cut into at most 1024 pieces, by the shape alone; the eight threads
 * of a column add every eighth row of their piece, then each other, and a second kernel adds the
 * pieces, all in one order. */
#include "kernels/cuda_columns.h"

#include "kernels/cuda_round.h"

#define ACROSS     32   /* threads over columns */
#define DOWN       8    /* over rows */
#define MOST       1024 /* blocks */
#define PIECE_ROWS 64   /* at least */

/* --- activations ---------------------------------------------------------------------------- */

template <int ACTIVATION> static __device__ inline float activated(float z)
{
    if (ACTIVATION == DDP_ACTIVATION_RELU)
        return z < 0 ? 0 : z; /* not fmaxf(): NaN must stay NaN */
    if (ACTIVATION == DDP_ACTIVATION_GELU)
        return 0.5f * z * (1 + erff(z * 0.70710678f));
    if (ACTIVATION == DDP_ACTIVATION_GELU_TANH)
        return 0.5f * z * (1 + tanhf(0.79788456f * (z + 0.044715f * z * z * z)));
    return z;
}

/* The gradient before the activation; `kept` is y for ReLU, else what the activation took. */
template <int ACTIVATION> static __device__ inline float deactivated(float dy, float kept)
{
    if (ACTIVATION == DDP_ACTIVATION_RELU)
        return kept > 0 ? dy : 0;
    if (ACTIVATION == DDP_ACTIVATION_GELU)
        return dy * (0.5f * (1 + erff(kept * 0.70710678f)) +
                     kept * 0.39894228f * expf(-0.5f * kept * kept));
    if (ACTIVATION == DDP_ACTIVATION_GELU_TANH) {
        const float square = kept * kept;
        const float t = tanhf(0.79788456f * (kept + 0.044715f * kept * square));
        return dy * (0.5f * (1 + t) +
                     0.5f * kept * (1 - t * t) * 0.79788456f * (1 + 0.134145f * square));
    }
    return dy;
}

template <int ACTIVATION, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    activate_kernel(int64_t packs, float *y, float *pre)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at >= packs * W)
        return;
    ddp_pack<float, W> z = ddp_load<float, W>(y + at);
    if (pre)
        ddp_store(pre + at, z);
    for (int i = 0; i < W; i++)
        z.at[i] = activated<ACTIVATION>(z.at[i]);
    ddp_store(y + at, z);
}

template <int ACTIVATION>
static void activate(float *y, float *pre, int64_t count, struct ddp_cuda *cuda)
{
    const bool wide = ddp_aligned(y) && ddp_aligned(pre);
    const int64_t packs = wide ? count / 4 : 0, rest = count - packs * 4;
    if (packs > 0)
        DDP_LAUNCH((activate_kernel<ACTIVATION, 4>), ddp_cuda_blocks(packs, DDP_BLOCK), DDP_BLOCK,
                   0, cuda->stream, packs, y, pre);
    if (rest > 0)
        DDP_LAUNCH((activate_kernel<ACTIVATION, 1>), ddp_cuda_blocks(rest, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, rest, y + packs * 4, pre ? pre + packs * 4 : pre);
}

extern "C" enum ddp_status ddp_cuda_activate(float *y, float *pre, int64_t count,
                                             enum ddp_activation activation, struct ddp_cuda *cuda)
{
    switch (activation) {
    case DDP_ACTIVATION_NONE:
        break;
    case DDP_ACTIVATION_RELU:
        activate<DDP_ACTIVATION_RELU>(y, NULL, count, cuda);
        break;
    case DDP_ACTIVATION_GELU:
        activate<DDP_ACTIVATION_GELU>(y, pre, count, cuda);
        break;
    case DDP_ACTIVATION_GELU_TANH:
        activate<DDP_ACTIVATION_GELU_TANH>(y, pre, count, cuda);
        break;
    }
    return ddp_cuda_launched(cuda, "activation");
}

/* --- gradients and their sums ----------------------------------------------------------------- */

struct pass {
    int64_t rows, columns;
    int64_t tiles, pieces, piece; /* of columns; of rows, and the rows of one */
    const float *dy, *kept;
    float *dz;
    uint16_t *dz_bf16;
    float *partial; /* (pieces, columns) */
};

template <int ACTIVATION, int W>
static __device__ void one_row(const struct pass *p, int64_t at, float *sums)
{
    ddp_pack<float, W> gradient = ddp_load<float, W>(p->dy + at);
    if (ACTIVATION != DDP_ACTIVATION_NONE) {
        const ddp_pack<float, W> kept = ddp_load<float, W>(p->kept + at);
        for (int i = 0; i < W; i++)
            gradient.at[i] = deactivated<ACTIVATION>(gradient.at[i], kept.at[i]);
    }
    if (p->dz)
        ddp_store(p->dz + at, gradient);
    if (p->dz_bf16) {
        ddp_pack<uint16_t, W> rounded;
        for (int i = 0; i < W; i++)
            rounded.at[i] = ddp_cuda_bf16_of(gradient.at[i]);
        ddp_store(p->dz_bf16 + at, rounded);
    }
    for (int i = 0; i < W; i++)
        sums[i] += gradient.at[i];
}

template <int ACTIVATION, int W>
static __global__ void __launch_bounds__(ACROSS *DOWN) columns_kernel(struct pass p)
{
    __shared__ float all[DOWN][ACROSS * W];
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t piece = blockIdx.x / p.tiles;
    const int64_t column = (blockIdx.x % p.tiles * ACROSS + across) * W;
    const int64_t end = p.piece * (piece + 1) < p.rows ? p.piece * (piece + 1) : p.rows;
    float sums[W] = {};
    if (column < p.columns)
        for (int64_t row = p.piece * piece + down; row < end; row += DOWN)
            one_row<ACTIVATION, W>(&p, row * p.columns + column, sums);
    if (!p.partial)
        return;
    for (int i = 0; i < W; i++)
        all[down][across * W + i] = sums[i];
    __syncthreads();
    if (down != 0 || column >= p.columns)
        return;
    for (int i = 0; i < W; i++) {
        float sum = 0;
        for (int d = 0; d < DOWN; d++)
            sum += all[d][across * W + i];
        p.partial[piece * p.columns + column + i] = sum;
    }
}

/* A block adds the pieces of 32 columns. */
static __global__ void __launch_bounds__(ACROSS *DOWN)
    finish_kernel(int64_t columns, int64_t pieces, const float *partial, float *sums, bool add)
{
    __shared__ float all[DOWN][ACROSS];
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t column = (int64_t)blockIdx.x * ACROSS + across;
    float sum = 0;
    if (column < columns)
        for (int64_t piece = down; piece < pieces; piece += DOWN)
            sum += partial[piece * columns + column];
    all[down][across] = sum;
    __syncthreads();
    if (down != 0 || column >= columns)
        return;
    for (int d = 1; d < DOWN; d++)
        sum += all[d][across];
    sums[column] = add ? sums[column] + sum : sum;
}

/* By the shape alone: the order of a sum follows. */
static void cut(struct pass *p, int W)
{
    p->tiles = (p->columns + ACROSS * W - 1) / (ACROSS * W);
    const int64_t most = p->tiles < MOST ? MOST / p->tiles : 1;
    const int64_t wanted = (p->rows + PIECE_ROWS - 1) / PIECE_ROWS;
    p->piece = (p->rows + most - 1) / most;
    if (wanted < most)
        p->piece = PIECE_ROWS;
    p->pieces = (p->rows + p->piece - 1) / p->piece;
}

template <int ACTIVATION, int W> static void run(struct pass *p, struct ddp_cuda *cuda)
{
    cut(p, W);
    DDP_LAUNCH((columns_kernel<ACTIVATION, W>), (unsigned)(p->tiles * p->pieces), ACROSS * DOWN, 0,
               cuda->stream, *p);
}

template <int ACTIVATION> static void run_wide_or_not(struct pass *p, struct ddp_cuda *cuda)
{
    const bool wide = p->columns % 4 == 0 && ddp_aligned(p->dy) && ddp_aligned(p->kept) &&
                      ddp_aligned(p->dz) && ddp_aligned(p->dz_bf16);
    if (wide)
        run<ACTIVATION, 4>(p, cuda);
    else
        run<ACTIVATION, 1>(p, cuda);
}

extern "C" enum ddp_status ddp_cuda_columns(const struct ddp_cuda_columns *args,
                                            struct ddp_cuda *cuda)
{
    if (args->columns == 0)
        return DDP_OK;
    /* at most 1024 tiles' sums, or one of each column */
    if (args->sums && (size_t)args->columns > DDP_CUDA_SPARE_BYTES / sizeof(float))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "sums of %lld columns: CUDA has at most %lld",
                        (long long)args->columns,
                        (long long)(DDP_CUDA_SPARE_BYTES / sizeof(float)));
    struct pass p = {};
    p.rows = args->rows;
    p.columns = args->columns;
    p.dy = args->dy;
    p.kept = args->activation == DDP_ACTIVATION_NONE ? NULL : args->kept;
    p.dz = args->dz;
    p.dz_bf16 = args->dz_bf16;
    p.partial = args->sums ? (float *)ddp_cuda_spare(cuda) : NULL;
    if (args->rows > 0)
        switch (args->activation) {
        case DDP_ACTIVATION_NONE:
            run_wide_or_not<DDP_ACTIVATION_NONE>(&p, cuda);
            break;
        case DDP_ACTIVATION_RELU:
            run_wide_or_not<DDP_ACTIVATION_RELU>(&p, cuda);
            break;
        case DDP_ACTIVATION_GELU:
            run_wide_or_not<DDP_ACTIVATION_GELU>(&p, cuda);
            break;
        case DDP_ACTIVATION_GELU_TANH:
            run_wide_or_not<DDP_ACTIVATION_GELU_TANH>(&p, cuda);
            break;
        }
    if (args->sums)
        DDP_LAUNCH(finish_kernel, ddp_cuda_blocks(p.columns, ACROSS), ACROSS * DOWN, 0,
                   cuda->stream, p.columns, p.pieces, p.partial, args->sums, args->add);
    return ddp_cuda_launched(cuda, "gradient of a layer");
}

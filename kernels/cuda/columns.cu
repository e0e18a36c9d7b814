/* SPDX-License-Identifier: MIT
 *
 * See columns.h. Bound by memory: each array is read or written once, in accesses of 16 bytes.
 * Sums over rows: the rows are cut into at most 1024 pieces, by the shape alone; the eight threads
 * of a column add every eighth row of their piece, then each other, and a second kernel adds the
 * pieces, all in one order. */
#include "kernels/cuda/columns.h"

#define ACROSS     32   /* threads over columns */
#define DOWN       8    /* over rows */
#define MOST       1024 /* blocks */
#define PIECE_ROWS 64   /* at least */
#define AHEAD      4    /* rows that a thread reads before it stores one */

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

template <int ACTIVATION, int W, typename T>
static __global__ void __launch_bounds__(DDP_BLOCK) activate_kernel(int64_t packs, T *y, T *pre)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at >= packs * W)
        return;
    ddp_pack<float, W> z = ddp_read<W>(y + at);
    if (pre)
        ddp_write<W>(pre + at, z);
    for (int i = 0; i < W; i++)
        z.at[i] = activated<ACTIVATION>(z.at[i]);
    ddp_write<W>(y + at, z);
}

template <int ACTIVATION, typename T>
static void activate(T *y, T *pre, int64_t count, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    const int64_t packs = ddp_aligned(y) && ddp_aligned(pre) ? count / W : 0;
    const int64_t rest = count - packs * W;
    if (packs > 0)
        DDP_LAUNCH((activate_kernel<ACTIVATION, W, T>), ddp_cuda_blocks(packs, DDP_BLOCK),
                   DDP_BLOCK, 0, cuda->stream, packs, y, pre);
    if (rest > 0)
        DDP_LAUNCH((activate_kernel<ACTIVATION, 1, T>), ddp_cuda_blocks(rest, DDP_BLOCK), DDP_BLOCK,
                   0, cuda->stream, rest, y + packs * W, pre ? pre + packs * W : pre);
}

template <typename T>
static void activate_by(enum ddp_activation activation, T *y, T *pre, int64_t count,
                        struct ddp_cuda *cuda)
{
    switch (activation) {
    case DDP_ACTIVATION_NONE:
        break;
    case DDP_ACTIVATION_RELU:
        activate<DDP_ACTIVATION_RELU>(y, (T *)NULL, count, cuda);
        break;
    case DDP_ACTIVATION_GELU:
        activate<DDP_ACTIVATION_GELU>(y, pre, count, cuda);
        break;
    case DDP_ACTIVATION_GELU_TANH:
        activate<DDP_ACTIVATION_GELU_TANH>(y, pre, count, cuda);
        break;
    }
}

extern "C" enum ddp_status ddp_cuda_activate(void *y, void *pre, int64_t count,
                                             enum ddp_activation activation, enum ddp_dtype dtype,
                                             struct ddp_cuda *cuda)
{
    if (dtype == DDP_BF16)
        activate_by(activation, (uint16_t *)y, (uint16_t *)pre, count, cuda);
    else
        activate_by(activation, (float *)y, (float *)pre, count, cuda);
    return ddp_cuda_launched(cuda, "activation");
}

/* --- gradients and their sums ----------------------------------------------------------------- */

struct columns_pass {
    int64_t rows, columns, stride;
    int64_t tiles, pieces, piece; /* of columns; of rows, and the rows of one */
    const void *dy, *kept;
    void *dz;
    uint16_t *dz_bf16;
    float *partial; /* (pieces, columns) */
};

/* What one thread has of a row. */
template <int W> struct row_part {
    ddp_pack<float, W> dy, kept;
};

template <int ACTIVATION, int W, typename T>
static __device__ inline void read_part(const struct columns_pass *p, int64_t at,
                                        struct row_part<W> *part)
{
    part->dy = ddp_read<W>((const T *)p->dy + at);
    if (ACTIVATION != DDP_ACTIVATION_NONE)
        part->kept = ddp_read<W>((const T *)p->kept + at);
}

template <int ACTIVATION, int W, typename T>
static __device__ inline void finish_part(const struct columns_pass *p, int64_t at,
                                          struct row_part<W> *part, float *sums)
{
    if (ACTIVATION != DDP_ACTIVATION_NONE)
        for (int i = 0; i < W; i++)
            part->dy.at[i] = deactivated<ACTIVATION>(part->dy.at[i], part->kept.at[i]);
    if (p->dz)
        ddp_write<W>((T *)p->dz + at, part->dy);
    if (p->dz_bf16)
        ddp_write<W>(p->dz_bf16 + at, part->dy);
    for (int i = 0; i < W; i++)
        sums[i] += part->dy.at[i];
}

template <int ACTIVATION, int W, typename T>
static __global__ void __launch_bounds__(ACROSS *DOWN) columns_kernel(struct columns_pass p)
{
    __shared__ float all[DOWN][ACROSS * W];
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t piece = blockIdx.x / p.tiles;
    const int64_t column = (blockIdx.x % p.tiles * ACROSS + across) * W;
    const int64_t end = p.piece * (piece + 1) < p.rows ? p.piece * (piece + 1) : p.rows;
    float sums[W] = {};
    for (int64_t row = p.piece * piece + down; column < p.columns && row < end;
         row += DOWN * AHEAD) {
        struct row_part<W> parts[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i * DOWN < end)
                read_part<ACTIVATION, W, T>(&p, (row + i * DOWN) * p.stride + column, &parts[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i * DOWN < end)
                finish_part<ACTIVATION, W, T>(&p, (row + i * DOWN) * p.stride + column, &parts[i],
                                              sums);
    }
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
static void cut(struct columns_pass *p, int W)
{
    p->tiles = (p->columns + ACROSS * W - 1) / (ACROSS * W);
    const int64_t most = p->tiles < MOST ? MOST / p->tiles : 1;
    const int64_t wanted = (p->rows + PIECE_ROWS - 1) / PIECE_ROWS;
    p->piece = (p->rows + most - 1) / most;
    if (wanted < most)
        p->piece = PIECE_ROWS;
    p->pieces = (p->rows + p->piece - 1) / p->piece;
}

template <int ACTIVATION, int W, typename T>
static void run(struct columns_pass *p, struct ddp_cuda *cuda)
{
    cut(p, W);
    DDP_LAUNCH((columns_kernel<ACTIVATION, W, T>), (unsigned)(p->tiles * p->pieces), ACROSS * DOWN,
               0, cuda->stream, *p);
}

template <int ACTIVATION, typename T>
static void run_wide_or_not(struct columns_pass *p, struct ddp_cuda *cuda)
{
    const bool wide = p->columns % ddp_width<T> == 0 && p->stride % ddp_width<T> == 0 &&
                      ddp_aligned(p->dy) && ddp_aligned(p->kept) && ddp_aligned(p->dz) &&
                      ddp_aligned(p->dz_bf16);
    if (wide)
        run<ACTIVATION, ddp_width<T>, T>(p, cuda);
    else
        run<ACTIVATION, 1, T>(p, cuda);
}

template <typename T>
static void run_by(enum ddp_activation activation, struct columns_pass *p, struct ddp_cuda *cuda)
{
    switch (activation) {
    case DDP_ACTIVATION_NONE:
        return run_wide_or_not<DDP_ACTIVATION_NONE, T>(p, cuda);
    case DDP_ACTIVATION_RELU:
        return run_wide_or_not<DDP_ACTIVATION_RELU, T>(p, cuda);
    case DDP_ACTIVATION_GELU:
        return run_wide_or_not<DDP_ACTIVATION_GELU, T>(p, cuda);
    case DDP_ACTIVATION_GELU_TANH:
        return run_wide_or_not<DDP_ACTIVATION_GELU_TANH, T>(p, cuda);
    }
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
    struct columns_pass p = {};
    p.rows = args->rows;
    p.columns = args->columns;
    p.stride = args->stride > 0 ? args->stride : args->columns;
    p.dy = args->dy;
    p.kept = args->activation == DDP_ACTIVATION_NONE ? NULL : args->kept;
    p.dz = args->dz;
    p.dz_bf16 = args->dz_bf16;
    p.partial = args->sums ? (float *)ddp_cuda_spare(cuda) : NULL;
    if (args->rows > 0 && args->dtype == DDP_BF16)
        run_by<uint16_t>(args->activation, &p, cuda);
    else if (args->rows > 0)
        run_by<float>(args->activation, &p, cuda);
    if (args->sums)
        DDP_LAUNCH(finish_kernel, ddp_cuda_blocks(p.columns, ACROSS), ACROSS * DOWN, 0,
                   cuda->stream, p.columns, p.pieces, p.partial, args->sums, args->add);
    return ddp_cuda_launched(cuda, "gradient of a layer");
}

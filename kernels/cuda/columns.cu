/* SPDX-License-Identifier: MIT
 *
 * See columns.h. Bound by memory: each array is read or written once, in accesses of 16 bytes.
 * Sums over rows: the rows are cut into at most 792 pieces, by the shape alone; the eight threads
 * of a column add every eighth row of their piece, then each other, and a second kernel adds the
 * pieces, all in one order. */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/ptx.h"

#define ACROSS     32  /* threads over columns */
#define DOWN       8   /* over rows */
#define MOST       792 /* blocks: six for each of the 132 multiprocessors of an H200 */
#define PIECE_ROWS 64  /* at least */
#define AHEAD      4   /* rows that a thread reads before it stores one */

/* --- activations ---------------------------------------------------------------------------- */

template <int ACTIVATION> static __device__ inline float exactly_activated(float z)
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
template <int ACTIVATION> static __device__ inline float exactly_deactivated(float dy, float kept)
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

/* GELU for bf16: y is z times `share`, the derivative `share` plus `slope`. They take two
 * instructions of the special function unit and a few products; the exact ones are bound by
 * arithmetic. Of all numbers that bf16 has, y is off by 6e-6 of itself, and the derivative by 2e-6
 * and by 0.03 units of its last place in bf16. */
struct gelu_factors {
    float share, slope;
};

/* (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)). The instruction tanh.approx would not do: where tanh is
 * near -1, its error of 2^-11 is larger than the derivative. */
static __device__ inline gelu_factors gelu_tanh_factors(float z)
{
    const float square = z * z;
    const float e = ddp_fast_exp2(z * (-2.3022082f - 0.10294324f * square));
    const float share = ddp_fast_reciprocal(1 + e);
    return {share, share * (1 - share) * z * (1.5957691f + 0.21406445f * square)};
}

/* The normal distribution: e^(-z^2 / 2) P(1 / (1 + 0.36 |z|)) below 0, P fitted for the least
 * relative error, which is 7e-7. */
static __device__ inline gelu_factors gelu_factors_of(float z)
{
    const float e = ddp_fast_exp2(-0.72134752f * z * z);
    const float t = ddp_fast_reciprocal(1 + 0.36f * fabsf(z));
    float tail = 0.047526950f;
    tail = tail * t - 0.18137566f;
    tail = tail * t + 0.18314743f;
    tail = tail * t + 0.025037406f;
    tail = tail * t + 0.14027242f;
    tail = tail * t + 0.14167117f;
    tail = tail * t + 0.14372026f;
    tail = tail * t * e;
    return {z < 0 ? tail : 1 - tail, 0.39894228f * e * z};
}

template <int ACTIVATION, typename T> static __device__ inline float activated(float z)
{
    if constexpr (sizeof(T) == sizeof(float))
        return exactly_activated<ACTIVATION>(z);
    if constexpr (ACTIVATION == DDP_ACTIVATION_GELU)
        return z * gelu_factors_of(z).share;
    if constexpr (ACTIVATION == DDP_ACTIVATION_GELU_TANH)
        return z * gelu_tanh_factors(z).share;
    return exactly_activated<ACTIVATION>(z);
}

template <int ACTIVATION, typename T>
static __device__ inline float deactivated(float dy, float kept)
{
    gelu_factors factors = {0, 0};
    if constexpr (sizeof(T) == sizeof(float))
        return exactly_deactivated<ACTIVATION>(dy, kept);
    if constexpr (ACTIVATION == DDP_ACTIVATION_GELU)
        factors = gelu_factors_of(kept);
    else if constexpr (ACTIVATION == DDP_ACTIVATION_GELU_TANH)
        factors = gelu_tanh_factors(kept);
    else
        return exactly_deactivated<ACTIVATION>(dy, kept);
    return dy * (factors.share + factors.slope);
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
        z.at[i] = activated<ACTIVATION, T>(z.at[i]);
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
    int64_t rows, columns;
    int64_t tiles, pieces, piece; /* of columns; of rows, and the rows of one */
    const void *dy, *kept;
    void *dz;
    void *dz_16;
    bool f16;       /* or bf16 */
    float *partial; /* (pieces, columns) */
};

/* What one thread has of a row. */
template <int W, typename T> struct row_part {
    ddp_raw<T, W> dy, kept;
};

template <int ACTIVATION, int W, typename T>
static __device__ inline void read_part(const struct columns_pass *p, int64_t at,
                                        row_part<W, T> *part)
{
    part->dy = ddp_read_raw<W>((const T *)p->dy + at);
    if (ACTIVATION != DDP_ACTIVATION_NONE)
        part->kept = ddp_read_raw<W>((const T *)p->kept + at);
}

template <int ACTIVATION, int W, typename T>
static __device__ inline void finish_part(const struct columns_pass *p, int64_t at,
                                          const row_part<W, T> &part, float *sums)
{
    ddp_pack<float, W> dz = ddp_widened(part.dy);
    if constexpr (ACTIVATION != DDP_ACTIVATION_NONE) {
        const ddp_pack<float, W> kept = ddp_widened(part.kept);
        for (int i = 0; i < W; i++)
            dz.at[i] = deactivated<ACTIVATION, T>(dz.at[i], kept.at[i]);
    }
    if (p->dz)
        ddp_write<W>((T *)p->dz + at, dz);
    if (sizeof(T) == sizeof(float) && p->dz_16 && p->f16)
        ddp_write<W>((ddp_half *)p->dz_16 + at, dz);
    else if (sizeof(T) == sizeof(float) && p->dz_16)
        ddp_write<W>((uint16_t *)p->dz_16 + at, dz);
    for (int i = 0; i < W; i++)
        sums[i] += dz.at[i];
}

template <int ACTIVATION, int W, typename T>
static __global__ void __launch_bounds__(ACROSS *DOWN, sizeof(T) == 2 ? 3 : 2)
    columns_kernel(struct columns_pass p)
{
    __shared__ float all[DOWN][W][ACROSS];
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t piece = blockIdx.x / p.tiles;
    const int64_t column = (blockIdx.x % p.tiles * ACROSS + across) * W;
    const int64_t end = p.piece * (piece + 1) < p.rows ? p.piece * (piece + 1) : p.rows;
    float sums[W] = {};
    for (int64_t row = p.piece * piece + down; column < p.columns && row < end;
         row += DOWN * AHEAD) {
        row_part<W, T> parts[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i * DOWN < end)
                read_part<ACTIVATION, W, T>(&p, (row + i * DOWN) * p.columns + column, &parts[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i * DOWN < end)
                finish_part<ACTIVATION, W, T>(&p, (row + i * DOWN) * p.columns + column, parts[i],
                                              sums);
    }
    if (!p.partial)
        return;
    for (int i = 0; i < W; i++)
        all[down][i][across] = sums[i];
    __syncthreads();
    if (down != 0 || column >= p.columns)
        return;
    ddp_pack<float, W> total = {};
    for (int i = 0; i < W; i++)
        for (int d = 0; d < DOWN; d++)
            total.at[i] += all[d][i][across];
    ddp_write<W>(p.partial + piece * p.columns + column, total);
}

/* A block adds the pieces of 32 columns, by 32 threads a column: the blocks are few. */
static __global__ void __launch_bounds__(ACROSS *ACROSS)
    finish_kernel(int64_t columns, int64_t pieces, const float *partial, float *sums, bool add)
{
    __shared__ float all[ACROSS][ACROSS];
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t column = (int64_t)blockIdx.x * ACROSS + across;
    float sum = 0;
    if (column < columns)
#pragma unroll 8
        for (int64_t piece = down; piece < pieces; piece += ACROSS)
            sum += partial[piece * columns + column];
    all[down][across] = sum;
    __syncthreads();
    if (down != 0 || column >= columns)
        return;
    for (int d = 1; d < ACROSS; d++)
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
    const bool wide = p->columns % ddp_width<T> == 0 && ddp_aligned(p->dy) &&
                      ddp_aligned(p->kept) && ddp_aligned(p->dz) && ddp_aligned(p->dz_16);
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
    /* at most 792 tiles' sums, or one of each column */
    if (args->sums && (size_t)args->columns > DDP_CUDA_SPARE_BYTES / sizeof(float))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "sums of %lld columns: CUDA has at most %lld",
                        (long long)args->columns,
                        (long long)(DDP_CUDA_SPARE_BYTES / sizeof(float)));
    struct columns_pass p = {};
    p.rows = args->rows;
    p.columns = args->columns;
    p.dy = args->dy;
    p.kept = args->activation == DDP_ACTIVATION_NONE ? NULL : args->kept;
    p.dz = args->dz;
    p.dz_16 = args->dz_16;
    p.f16 = args->type == DDP_F16;
    p.partial = args->sums ? (float *)ddp_cuda_spare(cuda) : NULL;
    if (args->rows > 0 && args->dtype == DDP_BF16)
        run_by<uint16_t>(args->activation, &p, cuda);
    else if (args->rows > 0)
        run_by<float>(args->activation, &p, cuda);
    if (args->sums)
        DDP_LAUNCH(finish_kernel, ddp_cuda_blocks(p.columns, ACROSS), ACROSS * ACROSS, 0,
                   cuda->stream, p.columns, p.pieces, p.partial, args->sums, args->add);
    return ddp_cuda_launched(cuda, "gradient of a layer");
}

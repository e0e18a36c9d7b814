/* SPDX-License-Identifier: MIT
 *
 * Layer norm on a GPU, also of a sum; see layer_norm.h, and layer_norm_backward.cu. A team of
 * threads, a warp or a block of 256, has a row, and keeps it in registers where rows are whole
 * packs of 16 bytes and not too long. Bound: 8 bytes an element, 16 with the sum; half of that in
 * bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/layer_norm.h"

#define WARPS_OF_BLOCK (DDP_BLOCK / DDP_WARP)

/* Packs of a thread, for rows of so many columns, where a team has one pack each of so many. */
#define PACKS_OF(columns, pack) (((columns) + (pack)-1) / (pack))

/* x: a, or a + b. */
struct layer_norm_rows {
    int64_t rows, features;
    float eps;
    bool rms;
    const void *a, *b; /* b NULL: none */
    const float *gamma, *beta;
    void *sum, *y; /* sum: where x goes, rounded; not without b */
    float *statistics;
};

static __device__ inline float normalized(const struct layer_norm_rows &args, float x, float mean,
                                          float rstd, int64_t column)
{
    float value = (x - mean) * rstd;
    value = args.gamma ? value * args.gamma[column] : value;
    return args.beta ? value + args.beta[column] : value;
}

static __device__ inline void put_statistics(const struct layer_norm_rows &args, int64_t row,
                                             float mean, float rstd)
{
    if (args.statistics) {
        args.statistics[2 * row] = mean;
        args.statistics[2 * row + 1] = rstd;
    }
}

/* Neighbours first. */
template <int W> static __device__ inline float sum_of(ddp_pack<float, W> pack)
{
    for (int step = 1; step < W; step *= 2)
        for (int i = 0; i < W; i += 2 * step)
            pack.at[i] += pack.at[i + step];
    return pack.at[0];
}

template <int W>
static __device__ inline ddp_pack<float, W> normalized_pack(const struct layer_norm_rows &args,
                                                            ddp_pack<float, W> x, float mean,
                                                            float rstd, int64_t column)
{
    ddp_pack<float, W> gamma = ddp_pack_of<W>(1), beta = ddp_pack_of<W>(0);
    if (args.gamma)
        gamma = ddp_read<W>(args.gamma + column);
    if (args.beta)
        beta = ddp_read<W>(args.beta + column);
    for (int i = 0; i < W; i++)
        x.at[i] = (x.at[i] - mean) * rstd * gamma.at[i] + beta.at[i];
    return x;
}

/* a + b, stored. What is read back where it is stored counts: backward gets that. */
template <typename T, int W>
static __device__ inline ddp_pack<float, W> put_sum(const struct layer_norm_rows &args, int64_t at,
                                                    ddp_pack<float, W> a,
                                                    const ddp_pack<float, W> &b)
{
    for (int i = 0; i < W; i++)
        a.at[i] = ddp_rounded<T>(a.at[i] + b.at[i]);
    ddp_write<W>((T *)args.sum + at, a);
    return a;
}

/* The packs that a thread has of a row: all loads are on their way before a sum is stored. */
template <typename T, int W, int TEAM, int PACKS>
static __device__ inline void take_row(const struct layer_norm_rows &args, int64_t row, int first,
                                       ddp_pack<float, W> (&x)[PACKS])
{
    const int64_t n = args.features;
    ddp_raw<T, W> a[PACKS], b[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (first + p * TEAM * W < n)
            a[p] = ddp_read_raw<W>((const T *)args.a + row * n + first + p * TEAM * W);
    if (args.b) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (first + p * TEAM * W < n)
                b[p] = ddp_read_raw<W>((const T *)args.b + row * n + first + p * TEAM * W);
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = first + p * TEAM * W;
        x[p] = ddp_pack_of<W>(0);
        if (column < n)
            x[p] = ddp_widened(a[p]);
        if (column < n && args.b)
            x[p] = put_sum<T, W>(args, row * n + column, x[p], ddp_widened(b[p]));
    }
}

/* Rows of at most COLUMNS, all aligned. */
template <typename T, int WARPS, int COLUMNS>
static __global__ void __launch_bounds__(DDP_BLOCK) forward(struct layer_norm_rows args)
{
    enum { W = ddp_width<T>, TEAM = WARPS * DDP_WARP, PACKS = PACKS_OF(COLUMNS, TEAM * W) };
    __shared__ float partial[DDP_WARPS_MAX];
    const int64_t row = (int64_t)blockIdx.x * (WARPS_OF_BLOCK / WARPS) + (int)threadIdx.x / TEAM;
    if (row >= args.rows)
        return;
    const int64_t n = args.features;
    const int first = (int)threadIdx.x % TEAM * W;
    ddp_pack<float, W> x[PACKS];
    float sum = 0, squares = 0;
    take_row<T, W, TEAM>(args, row, first, x);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (first + p * TEAM * W < n)
            sum += sum_of<W>(x[p]);
    const float mean = args.rms ? 0 : ddp_warps_reduce<WARPS, DDP_SUM>(sum, partial) / (float)n;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (first + p * TEAM * W < n)
            for (int i = 0; i < W; i++) {
                const float off = x[p].at[i] - mean;
                squares += off * off;
            }
    const float rstd =
        1 / sqrtf(ddp_warps_reduce<WARPS, DDP_SUM>(squares, partial) / (float)n + args.eps);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = first + p * TEAM * W;
        if (column < n)
            ddp_write<W>((T *)args.y + row * n + column,
                         normalized_pack<W>(args, x[p], mean, rstd, column));
    }
    if (first == 0)
        put_statistics(args, row, mean, rstd);
}

/* Rows of any length and alignment, read three times, the second and third from the cache. */
template <typename T, int WARPS>
static __global__ void __launch_bounds__(DDP_BLOCK) forward_any(struct layer_norm_rows args)
{
    enum { TEAM = WARPS * DDP_WARP };
    __shared__ float partial[DDP_WARPS_MAX];
    const int64_t row = (int64_t)blockIdx.x * (WARPS_OF_BLOCK / WARPS) + (int)threadIdx.x / TEAM;
    if (row >= args.rows)
        return;
    const int64_t n = args.features;
    const T *x = (const T *)(args.b ? args.sum : args.a) + row * n; /* each thread reads its own */
    const int first = (int)threadIdx.x % TEAM;
    float sum = 0, squares = 0;
    for (int64_t i = first; i < n; i += TEAM) {
        ddp_pack<float, 1> value = ddp_read<1>((const T *)args.a + row * n + i);
        if (args.b)
            value = put_sum<T, 1>(args, row * n + i, value,
                                  ddp_read<1>((const T *)args.b + row * n + i));
        sum += value.at[0];
    }
    const float mean = args.rms ? 0 : ddp_warps_reduce<WARPS, DDP_SUM>(sum, partial) / (float)n;
    for (int64_t i = first; i < n; i += TEAM) {
        const float off = ddp_read_one(x + i) - mean;
        squares += off * off;
    }
    const float rstd =
        1 / sqrtf(ddp_warps_reduce<WARPS, DDP_SUM>(squares, partial) / (float)n + args.eps);
    for (int64_t i = first; i < n; i += TEAM)
        ddp_write_one((T *)args.y + row * n + i,
                      normalized(args, ddp_read_one(x + i), mean, rstd, i));
    if (first == 0)
        put_statistics(args, row, mean, rstd);
}

template <typename T, int WARPS, int COLUMNS>
static void launch_forward(const struct layer_norm_rows &rows, struct ddp_cuda *cuda)
{
    DDP_LAUNCH((forward<T, WARPS, COLUMNS>), ddp_cuda_blocks(rows.rows, WARPS_OF_BLOCK / WARPS),
               DDP_BLOCK, 0, cuda->stream, rows);
}

template <typename T>
static void launch_forward_any(const struct layer_norm_rows &rows, struct ddp_cuda *cuda)
{
    if (rows.features <= 1024)
        DDP_LAUNCH((forward_any<T, 1>), ddp_cuda_blocks(rows.rows, WARPS_OF_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, rows);
    else
        DDP_LAUNCH((forward_any<T, 8>), (unsigned)rows.rows, DDP_BLOCK, 0, cuda->stream, rows);
}

template <typename T>
static void choose_forward(const struct layer_norm_rows &rows, struct ddp_cuda *cuda)
{
    const int64_t n = rows.features;
    if (n % ddp_width<T> != 0 || n > 8192 || !ddp_aligned(rows.a) || !ddp_aligned(rows.b) ||
        !ddp_aligned(rows.sum) || !ddp_aligned(rows.y) || !ddp_aligned(rows.gamma) ||
        !ddp_aligned(rows.beta))
        launch_forward_any<T>(rows, cuda);
    else if (n <= 128)
        launch_forward<T, 1, 128>(rows, cuda);
    else if (n <= 256)
        launch_forward<T, 1, 256>(rows, cuda);
    else if (n <= 512)
        launch_forward<T, 1, 512>(rows, cuda);
    else if (n <= 768)
        launch_forward<T, 1, 768>(rows, cuda);
    else if (n <= 1024)
        launch_forward<T, 1, 1024>(rows, cuda);
    else if (n <= 2048)
        launch_forward<T, 8, 2048>(rows, cuda);
    else if (n <= 4096)
        launch_forward<T, 8, 4096>(rows, cuda);
    else
        launch_forward<T, 8, 8192>(rows, cuda);
}

static enum ddp_status run_forward(const char *name, const struct layer_norm_rows &rows,
                                   enum ddp_dtype dtype, struct ddp_cuda *cuda)
{
    enum ddp_status status = ddp_layer_norm_check_beta(name, rows.rms, rows.beta);
    if (status == DDP_OK)
        status =
            ddp_layer_norm_check(name, rows.rows, rows.features, rows.eps, rows.a && rows.y, dtype);
    if (status || rows.rows == 0 || rows.features == 0)
        return status;
    DDP_BY_DTYPE(dtype, choose_forward, rows, cuda);
    return ddp_cuda_launched(cuda, name);
}

extern "C" enum ddp_status ddp_cuda_layer_norm_forward(const struct ddp_layer_norm_forward *args,
                                                       void *stream)
{
    const struct layer_norm_rows rows = {args->rows, args->features, args->eps,       args->rms,
                                         args->x,    NULL,           args->gamma,     args->beta,
                                         NULL,       args->y,        args->statistics};
    return run_forward("layer norm", rows, args->dtype, (struct ddp_cuda *)stream);
}

extern "C" enum ddp_status
ddp_cuda_add_layer_norm_forward(const struct ddp_add_layer_norm_forward *args, void *stream)
{
    const struct layer_norm_rows rows = {args->rows, args->features, args->eps,       args->rms,
                                         args->a,    args->b,        args->gamma,     args->beta,
                                         args->sum,  args->y,        args->statistics};
    if (args->rows > 0 && args->features > 0 && (!args->b || !args->sum))
        return ddp_fail(DDP_ERR_INVALID, "sum and layer norm: b or the sum is NULL");
    return run_forward("sum and layer norm", rows, args->dtype, (struct ddp_cuda *)stream);
}

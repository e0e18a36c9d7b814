/* SPDX-License-Identifier: MIT
 *
 * Layer norm on a GPU, also of a sum; see layer_norm.h. A team of threads, a warp or a block of
 * 256, has a row, and keeps it in registers where rows are whole packs of 16 bytes and not too
 * long. Backward goes over fixed blocks of rows; each adds its rows up for gamma and beta in
 * registers, and a second kernel adds the blocks. Bound: 8 bytes an element forward, 16 with the
 * sum, 12 backward (16 accumulating); half of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/layer_norm.h"

#define WARPS_OF_BLOCK (DDP_BLOCK / DDP_WARP)
#define ROW_BLOCKS     512                                              /* of backward, at most */
#define ROWS_OF_BLOCK  16                                               /* at least */
#define MOST_FEATURES  (DDP_CUDA_WORKSPACE_BYTES / (2 * sizeof(float))) /* one block's sums */
#define ACROSS         32 /* threads over columns, where a kernel adds rows up */

/* Packs of a thread, for rows of so many columns, where a team has one pack each of so many. */
#define PACKS_OF(columns, pack) (((columns) + (pack)-1) / (pack))

/* --- forward -------------------------------------------------------------------------------- */

/* x: a, or a + b. */
struct layer_norm_rows {
    int64_t rows, features;
    float eps;
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

template <int W> static __device__ inline ddp_pack<float, W> pack_of(float value)
{
    ddp_pack<float, W> pack;
    for (int i = 0; i < W; i++)
        pack.at[i] = value;
    return pack;
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
    ddp_pack<float, W> gamma = pack_of<W>(1), beta = pack_of<W>(0);
    if (args.gamma)
        gamma = ddp_read<W>(args.gamma + column);
    if (args.beta)
        beta = ddp_read<W>(args.beta + column);
    for (int i = 0; i < W; i++)
        x.at[i] = (x.at[i] - mean) * rstd * gamma.at[i] + beta.at[i];
    return x;
}

/* W elements of x. The sum is what is read back where it is stored: backward gets that. */
template <typename T, int W>
static __device__ inline ddp_pack<float, W> x_at(const struct layer_norm_rows &args, int64_t at)
{
    ddp_pack<float, W> x = ddp_read<W>((const T *)args.a + at);
    if (!args.b)
        return x;
    const ddp_pack<float, W> other = ddp_read<W>((const T *)args.b + at);
    for (int i = 0; i < W; i++)
        x.at[i] = ddp_rounded<T>(x.at[i] + other.at[i]);
    ddp_write<W>((T *)args.sum + at, x);
    return x;
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
    ddp_pack<float, W> x[PACKS] = {};
    float sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = first + p * TEAM * W;
        if (column < n)
            x[p] = x_at<T, W>(args, row * n + column);
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (first + p * TEAM * W < n)
            sum += sum_of<W>(x[p]);
    const float mean = ddp_warps_reduce<WARPS, DDP_SUM>(sum, partial) / (float)n;
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
    for (int64_t i = first; i < n; i += TEAM)
        sum += x_at<T, 1>(args, row * n + i).at[0];
    const float mean = ddp_warps_reduce<WARPS, DDP_SUM>(sum, partial) / (float)n;
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
    const enum ddp_status status =
        ddp_layer_norm_check(name, rows.rows, rows.features, rows.eps, rows.a && rows.y, dtype);
    if (status || rows.rows == 0 || rows.features == 0)
        return status;
    DDP_BY_DTYPE(dtype, choose_forward, rows, cuda);
    return ddp_cuda_launched(cuda, name);
}

extern "C" enum ddp_status ddp_cuda_layer_norm_forward(const struct ddp_layer_norm_forward *args,
                                                       void *stream)
{
    const struct layer_norm_rows rows = {args->rows, args->features,  args->eps,  args->x,
                                         NULL,       args->gamma,     args->beta, NULL,
                                         args->y,    args->statistics};
    return run_forward("layer norm", rows, args->dtype, (struct ddp_cuda *)stream);
}

extern "C" enum ddp_status
ddp_cuda_add_layer_norm_forward(const struct ddp_add_layer_norm_forward *args, void *stream)
{
    const struct layer_norm_rows rows = {args->rows, args->features,  args->eps,  args->a,
                                         args->b,    args->gamma,     args->beta, args->sum,
                                         args->y,    args->statistics};
    if (args->rows > 0 && args->features > 0 && (!args->b || !args->sum))
        return ddp_fail(DDP_ERR_INVALID, "sum and layer norm: b or the sum is NULL");
    return run_forward("sum and layer norm", rows, args->dtype, (struct ddp_cuda *)stream);
}

/* --- backward ------------------------------------------------------------------------------- */

struct layer_norm_pass {
    struct ddp_layer_norm_backward args;
    int64_t size;   /* rows of a block */
    float *partial; /* (blocks,2,C): sums for gamma, then for beta; NULL: not wanted */
};

struct means {
    float g, gx; /* of dy gamma, and of that times xhat, over a row */
};

static __device__ inline float dx_of(float g, float xhat, struct means means, float rstd)
{
    return (g - means.g - xhat * means.gx) * rstd;
}

/* Of the packs that a thread has of a row: xhat in place of x, and the row's means. */
template <int W, int WARPS, int PACKS>
static __device__ inline struct means
row_means(const struct ddp_layer_norm_backward &args, ddp_pack<float, W> (&x)[PACKS],
          const ddp_pack<float, W> (&dy)[PACKS], int first, float mean, float rstd, float *partial)
{
    enum { TEAM = WARPS * DDP_WARP };
    struct means sums = {0, 0};
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = first + p * TEAM * W;
        ddp_pack<float, W> gamma = pack_of<W>(1);
        if (column >= args.features)
            continue;
        if (args.gamma)
            gamma = ddp_read<W>(args.gamma + column);
        for (int i = 0; i < W; i++) {
            x[p].at[i] = (x[p].at[i] - mean) * rstd;
            const float g = dy[p].at[i] * gamma.at[i];
            sums.g += g;
            sums.gx += g * x[p].at[i];
        }
    }
    if (args.dx) {
        sums.g = ddp_warps_reduce<WARPS, DDP_SUM>(sums.g, partial) / (float)args.features;
        sums.gx = ddp_warps_reduce<WARPS, DDP_SUM>(sums.gx, partial) / (float)args.features;
    }
    return sums;
}

template <typename T, int W>
static __device__ inline void put_dx(const struct ddp_layer_norm_backward &args, int64_t row,
                                     int column, ddp_pack<float, W> xhat, ddp_pack<float, W> dy,
                                     struct means means, float rstd)
{
    ddp_pack<float, W> gamma = pack_of<W>(1);
    if (args.gamma)
        gamma = ddp_read<W>(args.gamma + column);
    T *to = (T *)args.dx + row * args.features + column;
    for (int i = 0; i < W; i++)
        dy.at[i] = dx_of(dy.at[i] * gamma.at[i], xhat.at[i], means, rstd);
    ddp_put(to, dy, args.accumulate_dx);
}

/* Adds the sums of a block's teams up, first to last, and writes them. */
template <int W, int WARPS, int PACKS>
static __device__ inline void put_sums(const struct layer_norm_pass &pass,
                                       const ddp_pack<float, W> (&dgamma)[PACKS],
                                       const ddp_pack<float, W> (&dbeta)[PACKS], int first)
{
    enum { TEAM = WARPS * DDP_WARP, TEAMS = WARPS_OF_BLOCK / WARPS };
    __shared__ ddp_pack<float, W> sums[2][PACKS][TEAM];
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int turn = 0; turn < TEAMS; turn++) {
        if (team == turn)
            for (int p = 0; p < PACKS; p++) {
                ddp_pack<float, W> gamma = dgamma[p], beta = dbeta[p];
                for (int i = 0; i < W && turn > 0; i++) {
                    gamma.at[i] = sums[0][p][lane].at[i] + gamma.at[i];
                    beta.at[i] = sums[1][p][lane].at[i] + beta.at[i];
                }
                sums[0][p][lane] = gamma;
                sums[1][p][lane] = beta;
            }
        __syncthreads();
    }
    const int64_t n = pass.args.features;
    float *to = pass.partial + (int64_t)blockIdx.x * 2 * n;
    if (team == 0)
        for (int p = 0; p < PACKS; p++) {
            const int column = first + p * TEAM * W;
            if (column < n) {
                ddp_write<W>(to + column, sums[0][p][lane]);
                ddp_write<W>(to + n + column, sums[1][p][lane]);
            }
        }
}

template <typename T, int WARPS, int COLUMNS>
static __global__ void __launch_bounds__(DDP_BLOCK) backward(struct layer_norm_pass pass)
{
    enum { W = ddp_width<T>, TEAM = WARPS * DDP_WARP, TEAMS = WARPS_OF_BLOCK / WARPS };
    enum { PACKS = PACKS_OF(COLUMNS, TEAM * W) };
    __shared__ float partial[DDP_WARPS_MAX];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t n = args.features, begin = (int64_t)blockIdx.x * pass.size;
    const int64_t end = args.rows - begin < pass.size ? args.rows : begin + pass.size;
    const int first = (int)threadIdx.x % TEAM * W;
    ddp_pack<float, W> dgamma[PACKS], dbeta[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        dgamma[p] = dbeta[p] = pack_of<W>(0);
    for (int64_t row = begin + (int)threadIdx.x / TEAM; row < end; row += TEAMS) {
        const float mean = args.statistics[2 * row], rstd = args.statistics[2 * row + 1];
        ddp_pack<float, W> x[PACKS] = {}, dy[PACKS] = {};
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int column = first + p * TEAM * W;
            if (column < n) {
                x[p] = ddp_read<W>((const T *)args.x + row * n + column);
                dy[p] = ddp_read<W>((const T *)args.dy + row * n + column);
            }
        }
        const struct means means =
            row_means<W, WARPS, PACKS>(args, x, dy, first, mean, rstd, partial);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int column = first + p * TEAM * W;
            if (column >= n)
                continue;
            for (int i = 0; i < W; i++) {
                dgamma[p].at[i] += dy[p].at[i] * x[p].at[i];
                dbeta[p].at[i] += dy[p].at[i];
            }
            if (args.dx)
                put_dx<T, W>(args, row, column, x[p], dy[p], means, rstd);
        }
    }
    if (pass.partial)
        put_sums<W, WARPS, PACKS>(pass, dgamma, dbeta, first);
}

/* dx for rows of any length and alignment. */
template <typename T, int WARPS>
static __global__ void __launch_bounds__(DDP_BLOCK) backward_any(struct layer_norm_pass pass)
{
    enum { TEAM = WARPS * DDP_WARP };
    __shared__ float partial[DDP_WARPS_MAX];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t row = (int64_t)blockIdx.x * (WARPS_OF_BLOCK / WARPS) + (int)threadIdx.x / TEAM;
    if (row >= args.rows)
        return;
    const int64_t n = args.features;
    const T *x = (const T *)args.x + row * n, *dy = (const T *)args.dy + row * n;
    const float mean = args.statistics[2 * row], rstd = args.statistics[2 * row + 1];
    struct means means = {0, 0};
    for (int64_t i = (int)threadIdx.x % TEAM; i < n; i += TEAM) {
        const float g = ddp_read_one(dy + i) * (args.gamma ? args.gamma[i] : 1);
        means.g += g;
        means.gx += g * ((ddp_read_one(x + i) - mean) * rstd);
    }
    means.g = ddp_warps_reduce<WARPS, DDP_SUM>(means.g, partial) / (float)n;
    means.gx = ddp_warps_reduce<WARPS, DDP_SUM>(means.gx, partial) / (float)n;
    for (int64_t i = (int)threadIdx.x % TEAM; i < n; i += TEAM) {
        const float g = ddp_read_one(dy + i) * (args.gamma ? args.gamma[i] : 1);
        const float value = dx_of(g, (ddp_read_one(x + i) - mean) * rstd, means, rstd);
        ddp_put_one((T *)args.dx + row * n + i, value, args.accumulate_dx);
    }
}

/* The sums of a block of rows, for any alignment: 32 columns by 8 threads of every eighth row. */
template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK) columns_any(struct layer_norm_pass pass)
{
    enum { DOWN = DDP_BLOCK / ACROSS };
    __shared__ float sums[2][DOWN][ACROSS];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t n = args.features, begin = (int64_t)blockIdx.y * pass.size;
    const int64_t end = args.rows - begin < pass.size ? args.rows : begin + pass.size;
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t column = (int64_t)blockIdx.x * ACROSS + across;
    float dgamma = 0, dbeta = 0;
    for (int64_t row = begin + down; row < end && column < n; row += DOWN) {
        const float dy = ddp_read_one((const T *)args.dy + row * n + column);
        const float off =
            ddp_read_one((const T *)args.x + row * n + column) - args.statistics[2 * row];
        dgamma += dy * (off * args.statistics[2 * row + 1]);
        dbeta += dy;
    }
    sums[0][down][across] = dgamma;
    sums[1][down][across] = dbeta;
    __syncthreads();
    if (down >= 2 || column >= n) /* one row of threads adds for gamma, one for beta */
        return;
    float sum = 0;
    for (int i = 0; i < DOWN; i++)
        sum += sums[down][i][across];
    pass.partial[((int64_t)blockIdx.y * 2 + down) * n + column] = sum;
}

/* Adds the blocks' sums, for gamma (blockIdx.y 0) or beta: 32 columns by 32 threads of every 32nd
 * block, then these in order. */
static __global__ void __launch_bounds__(1024) add_blocks(struct layer_norm_pass pass, int blocks)
{
    enum { DOWN = 1024 / ACROSS };
    __shared__ float sums[DOWN][ACROSS];
    const int64_t n = pass.args.features;
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t column = (int64_t)blockIdx.x * ACROSS + across;
    float *out = blockIdx.y == 0 ? pass.args.dgamma : pass.args.dbeta;
    if (!out)
        return;
    float sum = 0;
#pragma unroll 4
    for (int block = down; block < blocks; block += DOWN)
        sum += column < n ? pass.partial[((int64_t)block * 2 + blockIdx.y) * n + column] : 0;
    sums[down][across] = sum;
    __syncthreads();
    if (down > 0 || column >= n)
        return;
    sum = 0;
    for (int i = 0; i < DOWN; i++)
        sum += sums[i][across];
    out[column] = pass.args.accumulate ? out[column] + sum : sum;
}

template <typename T>
static void launch_any(const struct layer_norm_pass &pass, unsigned blocks, struct ddp_cuda *cuda)
{
    const int64_t rows = pass.args.rows, n = pass.args.features;
    if (pass.partial)
        DDP_LAUNCH((columns_any<T>), dim3(ddp_cuda_blocks(n, ACROSS), blocks), DDP_BLOCK, 0,
                   cuda->stream, pass);
    if (!pass.args.dx)
        return;
    if (n <= 1024)
        DDP_LAUNCH((backward_any<T, 1>), ddp_cuda_blocks(rows, WARPS_OF_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, pass);
    else
        DDP_LAUNCH((backward_any<T, 8>), (unsigned)rows, DDP_BLOCK, 0, cuda->stream, pass);
}

template <typename T>
static void launch_rows(const struct layer_norm_pass &pass, unsigned blocks, struct ddp_cuda *cuda)
{
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t n = args.features;
    if (n % ddp_width<T> != 0 || n > 4096 || !ddp_aligned(args.x) || !ddp_aligned(args.dy) ||
        !ddp_aligned(args.dx) || !ddp_aligned(args.gamma))
        launch_any<T>(pass, blocks, cuda);
    else if (n <= 128)
        DDP_LAUNCH((backward<T, 1, 128>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 256)
        DDP_LAUNCH((backward<T, 1, 256>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 512)
        DDP_LAUNCH((backward<T, 1, 512>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 768)
        DDP_LAUNCH((backward<T, 1, 768>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 1024)
        DDP_LAUNCH((backward<T, 8, 1024>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 2048)
        DDP_LAUNCH((backward<T, 8, 2048>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((backward<T, 8, 4096>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
}

/* The blocks of rows; their sums fit into the workspace. It depends on the shape alone. */
static unsigned cut_rows(struct layer_norm_pass *pass)
{
    const int64_t rows = pass->args.rows;
    int64_t most = (int64_t)MOST_FEATURES / pass->args.features;
    most = most > ROW_BLOCKS ? ROW_BLOCKS : most < 1 ? 1 : most;
    pass->size = (rows + most - 1) / most;
    pass->size = pass->size < ROWS_OF_BLOCK ? ROWS_OF_BLOCK : pass->size;
    return ddp_cuda_blocks(rows, pass->size);
}

extern "C" enum ddp_status ddp_cuda_layer_norm_backward(const struct ddp_layer_norm_backward *args,
                                                        void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_layer_norm_check_backward(args);
    if (status || args->features == 0)
        return status;
    const bool sums = args->dgamma || args->dbeta;
    if (sums && args->features > (int64_t)MOST_FEATURES)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "layer norm backward: %lld features are more than %lld",
                        (long long)args->features, (long long)MOST_FEATURES);
    struct layer_norm_pass pass;
    pass.args = *args;
    pass.partial = sums ? (float *)cuda->workspace : NULL;
    const unsigned blocks = cut_rows(&pass);
    if (args->rows > 0 && (args->dx || sums) && args->dtype == DDP_BF16)
        launch_rows<uint16_t>(pass, blocks, cuda);
    else if (args->rows > 0 && (args->dx || sums))
        launch_rows<float>(pass, blocks, cuda);
    if (sums)
        DDP_LAUNCH(add_blocks, dim3(ddp_cuda_blocks(args->features, ACROSS), 2), 1024, 0,
                   cuda->stream, pass, (int)blocks);
    return ddp_cuda_launched(cuda, "layer norm backward");
}

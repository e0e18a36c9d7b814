/* SPDX-License-Identifier: MIT
 *
 * Layer norm on a GPU; see layer_norm.h. A team of threads, a warp or a block of 256, has a row,
 * and keeps it in registers where rows are whole packs of 16 bytes and not too long. Backward goes
 * over fixed blocks of rows; each adds its rows up for gamma and beta in registers, and a second
 * kernel adds the blocks. Bound: 8 bytes an element forward, 12 backward (16 accumulating). */
#include "kernels/cuda.h"
#include "kernels/cuda_reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/layer_norm.h"

#define WARPS_OF_BLOCK (DDP_BLOCK / DDP_WARP)
#define ROW_BLOCKS     512                                              /* of backward, at most */
#define ROWS_OF_BLOCK  16                                               /* at least */
#define MOST_FEATURES  (DDP_CUDA_WORKSPACE_BYTES / (2 * sizeof(float))) /* one block's sums */
#define ACROSS         32 /* threads over columns, where a kernel adds rows up */

typedef ddp_pack<float, 4> quad;

/* --- forward -------------------------------------------------------------------------------- */

static __device__ inline float normalized(const struct ddp_layer_norm_forward &args, float x,
                                          float mean, float rstd, int64_t column)
{
    float value = (x - mean) * rstd;
    value = args.gamma ? value * args.gamma[column] : value;
    return args.beta ? value + args.beta[column] : value;
}

static __device__ inline void put_statistics(const struct ddp_layer_norm_forward &args, int64_t row,
                                             float mean, float rstd)
{
    if (args.statistics) {
        args.statistics[2 * row] = mean;
        args.statistics[2 * row + 1] = rstd;
    }
}

static __device__ inline quad normalized_quad(const struct ddp_layer_norm_forward &args, quad x,
                                              float mean, float rstd, int64_t column)
{
    quad gamma = {{1, 1, 1, 1}}, beta = {{0, 0, 0, 0}};
    if (args.gamma)
        gamma = ddp_load<float, 4>(args.gamma + column);
    if (args.beta)
        beta = ddp_load<float, 4>(args.beta + column);
    for (int i = 0; i < 4; i++)
        x.at[i] = (x.at[i] - mean) * rstd * gamma.at[i] + beta.at[i];
    return x;
}

/* Rows of at most QUADS packs a thread, all aligned. */
template <int WARPS, int QUADS>
static __global__ void __launch_bounds__(DDP_BLOCK) forward(struct ddp_layer_norm_forward args)
{
    enum { TEAM = WARPS * DDP_WARP };
    __shared__ float partial[DDP_WARPS_MAX];
    const int64_t row = (int64_t)blockIdx.x * (WARPS_OF_BLOCK / WARPS) + (int)threadIdx.x / TEAM;
    if (row >= args.rows)
        return;
    const int64_t n = args.features;
    const float *from = (const float *)args.x + row * n;
    const int first = (int)threadIdx.x % TEAM * 4;
    quad x[QUADS] = {};
    float sum = 0, squares = 0;
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const int column = first + q * TEAM * 4;
        if (column < n)
            x[q] = ddp_load<float, 4>(from + column);
    }
#pragma unroll
    for (int q = 0; q < QUADS; q++)
        if (first + q * TEAM * 4 < n)
            sum += (x[q].at[0] + x[q].at[1]) + (x[q].at[2] + x[q].at[3]);
    const float mean = ddp_team_sum<WARPS>(sum, partial) / (float)n;
#pragma unroll
    for (int q = 0; q < QUADS; q++)
        if (first + q * TEAM * 4 < n)
            for (int i = 0; i < 4; i++) {
                const float off = x[q].at[i] - mean;
                squares += off * off;
            }
    const float rstd = 1 / sqrtf(ddp_team_sum<WARPS>(squares, partial) / (float)n + args.eps);
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const int column = first + q * TEAM * 4;
        if (column < n)
            ddp_store((float *)args.y + row * n + column,
                      normalized_quad(args, x[q], mean, rstd, column));
    }
    if (first == 0)
        put_statistics(args, row, mean, rstd);
}

/* Rows of any length and alignment, read three times, the second and third from the cache. */
template <int WARPS>
static __global__ void __launch_bounds__(DDP_BLOCK) forward_any(struct ddp_layer_norm_forward args)
{
    enum { TEAM = WARPS * DDP_WARP };
    __shared__ float partial[DDP_WARPS_MAX];
    const int64_t row = (int64_t)blockIdx.x * (WARPS_OF_BLOCK / WARPS) + (int)threadIdx.x / TEAM;
    if (row >= args.rows)
        return;
    const int64_t n = args.features;
    const float *x = (const float *)args.x + row * n;
    const int first = (int)threadIdx.x % TEAM;
    float sum = 0, squares = 0;
    for (int64_t i = first; i < n; i += TEAM)
        sum += x[i];
    const float mean = ddp_team_sum<WARPS>(sum, partial) / (float)n;
    for (int64_t i = first; i < n; i += TEAM)
        squares += (x[i] - mean) * (x[i] - mean);
    const float rstd = 1 / sqrtf(ddp_team_sum<WARPS>(squares, partial) / (float)n + args.eps);
    for (int64_t i = first; i < n; i += TEAM)
        ((float *)args.y)[row * n + i] = normalized(args, x[i], mean, rstd, i);
    if (first == 0)
        put_statistics(args, row, mean, rstd);
}

template <int WARPS, int QUADS>
static void launch_forward(const struct ddp_layer_norm_forward *args, struct ddp_cuda *cuda)
{
    DDP_LAUNCH((forward<WARPS, QUADS>), ddp_cuda_blocks(args->rows, WARPS_OF_BLOCK / WARPS),
               DDP_BLOCK, 0, cuda->stream, *args);
}

static void launch_forward_any(const struct ddp_layer_norm_forward *args, struct ddp_cuda *cuda)
{
    if (args->features <= 1024)
        DDP_LAUNCH((forward_any<1>), ddp_cuda_blocks(args->rows, WARPS_OF_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args);
    else
        DDP_LAUNCH((forward_any<8>), (unsigned)args->rows, DDP_BLOCK, 0, cuda->stream, *args);
}

static enum ddp_status check_shape(const char *name, int64_t rows, int64_t features, float eps)
{
    if (rows < 0 || features < 0)
        return ddp_fail(DDP_ERR_INVALID, "%s: negative size (%lld rows, %lld features)", name,
                        (long long)rows, (long long)features);
    if (!(eps >= 0))
        return ddp_fail(DDP_ERR_INVALID, "%s: eps %g is negative", name, (double)eps);
    return DDP_OK;
}

extern "C" enum ddp_status ddp_cuda_layer_norm_forward(const struct ddp_layer_norm_forward *args,
                                                       void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->features;
    enum ddp_status status = check_shape("layer norm", args->rows, n, args->eps);
    if (status || args->rows == 0 || n == 0)
        return status;
    if (!args->x || !args->y)
        return ddp_fail(DDP_ERR_INVALID, "layer norm: x or y is NULL");
    if (n % 4 != 0 || n > 8192 || !ddp_aligned(args->x) || !ddp_aligned(args->y) ||
        !ddp_aligned(args->gamma) || !ddp_aligned(args->beta))
        launch_forward_any(args, cuda);
    else if (n <= 128)
        launch_forward<1, 1>(args, cuda);
    else if (n <= 256)
        launch_forward<1, 2>(args, cuda);
    else if (n <= 512)
        launch_forward<1, 4>(args, cuda);
    else if (n <= 768)
        launch_forward<1, 6>(args, cuda);
    else if (n <= 1024)
        launch_forward<1, 8>(args, cuda);
    else if (n <= 2048)
        launch_forward<8, 2>(args, cuda);
    else if (n <= 4096)
        launch_forward<8, 4>(args, cuda);
    else
        launch_forward<8, 8>(args, cuda);
    return ddp_cuda_launched(cuda, "layer norm");
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
template <int WARPS, int QUADS>
static __device__ inline struct means row_means(const struct ddp_layer_norm_backward &args,
                                                quad (&x)[QUADS], const quad (&dy)[QUADS],
                                                int first, float mean, float rstd, float *partial)
{
    enum { TEAM = WARPS * DDP_WARP };
    struct means sums = {0, 0};
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const int column = first + q * TEAM * 4;
        quad gamma = {{1, 1, 1, 1}};
        if (column >= args.features)
            continue;
        if (args.gamma)
            gamma = ddp_load<float, 4>(args.gamma + column);
        for (int i = 0; i < 4; i++) {
            x[q].at[i] = (x[q].at[i] - mean) * rstd;
            const float g = dy[q].at[i] * gamma.at[i];
            sums.g += g;
            sums.gx += g * x[q].at[i];
        }
    }
    if (args.dx) {
        sums.g = ddp_team_sum<WARPS>(sums.g, partial) / (float)args.features;
        sums.gx = ddp_team_sum<WARPS>(sums.gx, partial) / (float)args.features;
    }
    return sums;
}

static __device__ inline void put_dx(const struct ddp_layer_norm_backward &args, int64_t row,
                                     int column, quad xhat, quad dy, struct means means, float rstd)
{
    quad gamma = {{1, 1, 1, 1}};
    if (args.gamma)
        gamma = ddp_load<float, 4>(args.gamma + column);
    float *to = (float *)args.dx + row * args.features + column;
    for (int i = 0; i < 4; i++)
        dy.at[i] = dx_of(dy.at[i] * gamma.at[i], xhat.at[i], means, rstd);
    if (args.accumulate_dx) {
        const quad old = ddp_load<float, 4>(to);
        for (int i = 0; i < 4; i++)
            dy.at[i] = old.at[i] + dy.at[i];
    }
    ddp_store(to, dy);
}

/* Adds the sums of a block's teams up, first to last, and writes them. */
template <int WARPS, int QUADS>
static __device__ inline void put_sums(const struct layer_norm_pass &pass,
                                       const quad (&dgamma)[QUADS], const quad (&dbeta)[QUADS],
                                       int first)
{
    enum { TEAM = WARPS * DDP_WARP, TEAMS = WARPS_OF_BLOCK / WARPS };
    __shared__ quad sums[2][QUADS][TEAM];
    const int team = (int)threadIdx.x / TEAM, lane = (int)threadIdx.x % TEAM;
    for (int turn = 0; turn < TEAMS; turn++) {
        if (team == turn)
            for (int q = 0; q < QUADS; q++) {
                quad gamma = dgamma[q], beta = dbeta[q];
                for (int i = 0; i < 4 && turn > 0; i++) {
                    gamma.at[i] = sums[0][q][lane].at[i] + gamma.at[i];
                    beta.at[i] = sums[1][q][lane].at[i] + beta.at[i];
                }
                sums[0][q][lane] = gamma;
                sums[1][q][lane] = beta;
            }
        __syncthreads();
    }
    const int64_t n = pass.args.features;
    float *to = pass.partial + (int64_t)blockIdx.x * 2 * n;
    if (team == 0)
        for (int q = 0; q < QUADS; q++) {
            const int column = first + q * TEAM * 4;
            if (column < n) {
                ddp_store(to + column, sums[0][q][lane]);
                ddp_store(to + n + column, sums[1][q][lane]);
            }
        }
}

template <int WARPS, int QUADS>
static __global__ void __launch_bounds__(DDP_BLOCK) backward(struct layer_norm_pass pass)
{
    enum { TEAM = WARPS * DDP_WARP, TEAMS = WARPS_OF_BLOCK / WARPS };
    __shared__ float partial[DDP_WARPS_MAX];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t n = args.features, begin = (int64_t)blockIdx.x * pass.size;
    const int64_t end = args.rows - begin < pass.size ? args.rows : begin + pass.size;
    const int first = (int)threadIdx.x % TEAM * 4;
    quad dgamma[QUADS], dbeta[QUADS];
#pragma unroll
    for (int q = 0; q < QUADS; q++)
        for (int i = 0; i < 4; i++)
            dgamma[q].at[i] = dbeta[q].at[i] = 0;
    for (int64_t row = begin + (int)threadIdx.x / TEAM; row < end; row += TEAMS) {
        const float mean = args.statistics[2 * row], rstd = args.statistics[2 * row + 1];
        quad x[QUADS] = {}, dy[QUADS] = {};
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            const int column = first + q * TEAM * 4;
            if (column < n) {
                x[q] = ddp_load<float, 4>((const float *)args.x + row * n + column);
                dy[q] = ddp_load<float, 4>((const float *)args.dy + row * n + column);
            }
        }
        const struct means means = row_means<WARPS, QUADS>(args, x, dy, first, mean, rstd, partial);
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            const int column = first + q * TEAM * 4;
            if (column >= n)
                continue;
            for (int i = 0; i < 4; i++) {
                dgamma[q].at[i] += dy[q].at[i] * x[q].at[i];
                dbeta[q].at[i] += dy[q].at[i];
            }
            if (args.dx)
                put_dx(args, row, column, x[q], dy[q], means, rstd);
        }
    }
    if (pass.partial)
        put_sums<WARPS, QUADS>(pass, dgamma, dbeta, first);
}

/* dx for rows of any length and alignment. */
template <int WARPS>
static __global__ void __launch_bounds__(DDP_BLOCK) backward_any(struct layer_norm_pass pass)
{
    enum { TEAM = WARPS * DDP_WARP };
    __shared__ float partial[DDP_WARPS_MAX];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t row = (int64_t)blockIdx.x * (WARPS_OF_BLOCK / WARPS) + (int)threadIdx.x / TEAM;
    if (row >= args.rows)
        return;
    const int64_t n = args.features;
    const float *x = (const float *)args.x + row * n, *dy = (const float *)args.dy + row * n;
    const float mean = args.statistics[2 * row], rstd = args.statistics[2 * row + 1];
    struct means means = {0, 0};
    for (int64_t i = (int)threadIdx.x % TEAM; i < n; i += TEAM) {
        const float g = args.gamma ? dy[i] * args.gamma[i] : dy[i];
        means.g += g;
        means.gx += g * ((x[i] - mean) * rstd);
    }
    means.g = ddp_team_sum<WARPS>(means.g, partial) / (float)n;
    means.gx = ddp_team_sum<WARPS>(means.gx, partial) / (float)n;
    for (int64_t i = (int)threadIdx.x % TEAM; i < n; i += TEAM) {
        const float g = args.gamma ? dy[i] * args.gamma[i] : dy[i];
        const float value = dx_of(g, (x[i] - mean) * rstd, means, rstd);
        float *to = &((float *)args.dx)[row * n + i];
        *to = args.accumulate_dx ? *to + value : value;
    }
}

/* The sums of a block of rows, for any alignment: 32 columns by 8 threads of every eighth row. */
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
        const float dy = ((const float *)args.dy)[row * n + column];
        const float off = ((const float *)args.x)[row * n + column] - args.statistics[2 * row];
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

static void launch_any(const struct layer_norm_pass &pass, unsigned blocks, struct ddp_cuda *cuda)
{
    const int64_t rows = pass.args.rows, n = pass.args.features;
    if (pass.partial)
        DDP_LAUNCH(columns_any, dim3(ddp_cuda_blocks(n, ACROSS), blocks), DDP_BLOCK, 0,
                   cuda->stream, pass);
    if (!pass.args.dx)
        return;
    if (n <= 1024)
        DDP_LAUNCH((backward_any<1>), ddp_cuda_blocks(rows, WARPS_OF_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, pass);
    else
        DDP_LAUNCH((backward_any<8>), (unsigned)rows, DDP_BLOCK, 0, cuda->stream, pass);
}

static void launch_rows(const struct layer_norm_pass &pass, unsigned blocks, struct ddp_cuda *cuda)
{
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t n = args.features;
    if (n % 4 != 0 || n > 4096 || !ddp_aligned(args.x) || !ddp_aligned(args.dy) ||
        !ddp_aligned(args.dx) || !ddp_aligned(args.gamma))
        launch_any(pass, blocks, cuda);
    else if (n <= 128)
        DDP_LAUNCH((backward<1, 1>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 256)
        DDP_LAUNCH((backward<1, 2>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 512)
        DDP_LAUNCH((backward<1, 4>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 768)
        DDP_LAUNCH((backward<1, 6>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 1024)
        DDP_LAUNCH((backward<8, 1>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 2048)
        DDP_LAUNCH((backward<8, 2>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((backward<8, 4>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
}

static enum ddp_status check_backward(const struct ddp_layer_norm_backward *args)
{
    enum ddp_status status = check_shape("layer norm backward", args->rows, args->features, 0);
    if (status)
        return status;
    const bool any = args->rows > 0 && args->features > 0;
    if (any && (!args->x || !args->statistics || !args->dy))
        return ddp_fail(DDP_ERR_INVALID, "layer norm backward: x, statistics or dy is NULL");
    if ((args->dgamma || args->dbeta) && args->features > (int64_t)MOST_FEATURES)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "layer norm backward: %lld features are more than %lld",
                        (long long)args->features, (long long)MOST_FEATURES);
    return DDP_OK;
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
    enum ddp_status status = check_backward(args);
    if (status || args->features == 0)
        return status;
    const bool sums = args->dgamma || args->dbeta;
    struct layer_norm_pass pass;
    pass.args = *args;
    pass.partial = sums ? (float *)cuda->workspace : NULL;
    const unsigned blocks = cut_rows(&pass);
    if (args->rows > 0 && (args->dx || sums))
        launch_rows(pass, blocks, cuda);
    if (sums)
        DDP_LAUNCH(add_blocks, dim3(ddp_cuda_blocks(args->features, ACROSS), 2), 1024, 0,
                   cuda->stream, pass, (int)blocks);
    return ddp_cuda_launched(cuda, "layer norm backward");
}

/* SPDX-License-Identifier: MIT
 *
 * Layer norm's gradients on a GPU; see layer_norm.h. Blocks have fixed parts of the rows, and each
 * leaves its sums for gamma and beta, which a second kernel adds up in one order. A row is read
 * once, and the next one is on its way while it is worked on. Bound: 12 bytes an element, 16
 * accumulating; half of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/layer_norm.h"

#define WARPS_OF_BLOCK (DDP_BLOCK / DDP_WARP)
#define ROW_BLOCKS     792 /* at most: six for each of the 132 multiprocessors of an H200 */
#define ROWS_OF_BLOCK  16  /* at least */
#define MOST_FEATURES  (DDP_CUDA_WORKSPACE_BYTES / (2 * sizeof(float))) /* one block's sums */
#define ACROSS         32 /* threads over columns, where a kernel adds rows up */

/* Packs of a thread, for rows of so many columns, where a team has one pack each of so many. */
#define PACKS_OF(columns, pack) (((columns) + (pack)-1) / (pack))

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

/* What a thread has of a row, on its way from memory. */
template <typename T, int PACKS> struct layer_norm_ahead {
    ddp_raw<T, ddp_width<T>> x[PACKS], dy[PACKS], old[PACKS]; /* old: of dx */
    float mean, rstd;
};

/* x and dy of a row, if there is one; nothing of what was in *ahead stays. */
template <int TEAM, typename T, int PACKS>
static __device__ inline void read_row(const struct ddp_layer_norm_backward &args, int64_t row,
                                       bool there, int first, layer_norm_ahead<T, PACKS> *ahead)
{
    constexpr int W = ddp_width<T>;
    const T *x = (const T *)args.x + row * args.features;
    const T *dy = (const T *)args.dy + row * args.features;
    ahead->mean = there ? args.statistics[2 * row] : 0;
    ahead->rstd = there ? args.statistics[2 * row + 1] : 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = first + p * TEAM * W;
        ahead->x[p] = ahead->dy[p] = {};
        if (there && column < (int)args.features) {
            ahead->x[p] = ddp_read_raw<W>(x + column);
            ahead->dy[p] = ddp_read_raw<W>(dy + column);
        }
    }
}

/* What is in dx, where it is added to. */
template <int TEAM, typename T, int PACKS>
static __device__ inline void read_old(const struct ddp_layer_norm_backward &args, int64_t row,
                                       int first, layer_norm_ahead<T, PACKS> *ahead)
{
    constexpr int W = ddp_width<T>;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = first + p * TEAM * W;
        ahead->old[p] = {};
        if (args.accumulate_dx && column < (int)args.features)
            ahead->old[p] = ddp_read_raw<W>((const T *)args.dx + row * args.features + column);
    }
}

template <int W>
static __device__ inline ddp_pack<float, W> gamma_at(const struct ddp_layer_norm_backward &args,
                                                     int column)
{
    return args.gamma ? ddp_read<W>(args.gamma + column) : ddp_pack_of<W>(1);
}

/* Adds a pack's part of what the means are made of; that of xhat is without rstd. */
template <typename T, int W>
static __device__ inline void add_to_means(const struct ddp_layer_norm_backward &args, int column,
                                           const ddp_raw<T, W> &raw_x, const ddp_raw<T, W> &raw_dy,
                                           float mean, struct means *sums)
{
    const ddp_pack<float, W> x = ddp_widened(raw_x), dy = ddp_widened(raw_dy);
    const ddp_pack<float, W> gamma = gamma_at<W>(args, column);
    for (int i = 0; i < W; i++) {
        const float g = dy.at[i] * gamma.at[i];
        sums->g += g;
        sums->gx += g * (x.at[i] - mean);
    }
}

template <typename T, int W>
static __device__ inline void put_dx(const struct ddp_layer_norm_backward &args, int64_t row,
                                     int column, const ddp_raw<T, W> &raw_x,
                                     const ddp_raw<T, W> &raw_dy, const ddp_raw<T, W> &raw_old,
                                     float mean, float rstd, struct means means)
{
    const ddp_pack<float, W> x = ddp_widened(raw_x), dy = ddp_widened(raw_dy);
    const ddp_pack<float, W> gamma = gamma_at<W>(args, column);
    ddp_pack<float, W> dx;
    /* dx_of(), with what is the same for a row worked out once */
    const float slope = rstd * rstd * means.gx, offset = rstd * means.g;
    for (int i = 0; i < W; i++)
        dx.at[i] = dy.at[i] * (gamma.at[i] * rstd) - (offset + (x.at[i] - mean) * slope);
    if (args.accumulate_dx) {
        const ddp_pack<float, W> old = ddp_widened(raw_old);
        for (int i = 0; i < W; i++)
            dx.at[i] = old.at[i] + dx.at[i];
    }
    ddp_write<W>((T *)args.dx + row * args.features + column, dx);
}

/* A warp's row: its means, the next row on its way, and dx. It stays in x[] and dy[], which are in
 * shared memory: read back from there, it takes no registers while the next one comes. */
template <typename T, int PACKS>
static __device__ inline void
do_row(const struct ddp_layer_norm_backward &args, int64_t row, int64_t end, int lane,
       ddp_raw<T, ddp_width<T>> *x, ddp_raw<T, ddp_width<T>> *dy, layer_norm_ahead<T, PACKS> *ahead)
{
    constexpr int W = ddp_width<T>;
    const float mean = ahead->mean, rstd = ahead->rstd;
    struct means means = {0, 0};
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int pack = p * DDP_WARP + lane;
        if (pack * W < (int)args.features) {
            x[pack] = ahead->x[p];
            dy[pack] = ahead->dy[p];
            add_to_means<T, W>(args, pack * W, ahead->x[p], ahead->dy[p], mean, &means);
        }
    }
    const int64_t next = row + WARPS_OF_BLOCK;
    read_row<DDP_WARP>(args, next, next < end, lane * W, ahead);
    if (!args.dx)
        return;
    means.g = args.rms ? 0 : ddp_warp_reduce<DDP_SUM>(means.g) / (float)args.features;
    means.gx = ddp_warp_reduce<DDP_SUM>(means.gx) * rstd / (float)args.features;
    read_old<DDP_WARP>(args, row, lane * W, ahead);
    __syncwarp(); /* what was left is not taken from registers again */
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int pack = p * DDP_WARP + lane;
        if (pack * W < (int)args.features)
            put_dx<T, W>(args, row, pack * W, x[pack], dy[pack], ahead->old[p], mean, rstd, means);
    }
}

/* Over the threads of a block; an RMS norm does not want that of g. The next call has other memory
 * for `partial`: the barrier of this one is behind the last use of its own. */
template <int WARPS>
static __device__ inline struct means means_of_block(struct means sums, struct means *partial,
                                                     int64_t n, bool rms)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
    sums.g = rms ? 0 : ddp_warp_reduce<DDP_SUM>(sums.g);
    sums.gx = ddp_warp_reduce<DDP_SUM>(sums.gx);
    if (lane == 0)
        partial[threadIdx.x / DDP_WARP] = sums;
    __syncthreads();
    sums = lane < WARPS ? partial[lane] : means{0, 0};
    return {rms ? 0 : ddp_warp_reduce<DDP_SUM>(sums.g) / (float)n,
            ddp_warp_reduce<DDP_SUM>(sums.gx) / (float)n};
}

/* The sums of a block's rows. */
template <int BLOCK, int W, int PACKS>
static __device__ inline void put_sums(const struct layer_norm_pass &pass,
                                       const ddp_pack<float, W> (&dgamma)[PACKS],
                                       const ddp_pack<float, W> (&dbeta)[PACKS])
{
    const int64_t n = pass.args.features;
    float *to = pass.partial + (int64_t)blockIdx.x * 2 * n;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int column = (p * BLOCK + (int)threadIdx.x) * W;
        if (column < n) {
            ddp_write<W>(to + column, dgamma[p]);
            if (!pass.args.rms)
                ddp_write<W>(to + n + column, dbeta[p]);
        }
    }
}

/* Bytes of a row up to which registers allow three blocks on a multiprocessor, else two. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define THREE_BLOCKS 1024
#else
#define THREE_BLOCKS 1536
#endif

/* Short rows: a warp has one, and leaves it in shared memory, where each thread adds its columns of
 * the block's eight rows. So the sums for gamma and beta take a few registers, and the next row is
 * on its way all the time. */
template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(DDP_BLOCK, COLUMNS * sizeof(T) > THREE_BLOCKS ? 2 : 3)
    backward_rows(struct layer_norm_pass pass)
{
    enum { W = ddp_width<T>, PACKS = PACKS_OF(COLUMNS, DDP_WARP * W) };
    enum { V = W / 2, OWN = PACKS_OF(COLUMNS, DDP_BLOCK * V) }; /* columns of a thread */
    __shared__ ddp_raw<T, W> rows[2][WARPS_OF_BLOCK][PACKS * DDP_WARP];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int n = (int)args.features;
    const int64_t begin = (int64_t)blockIdx.x * pass.size;
    const int64_t end = args.rows - begin < pass.size ? args.rows : begin + pass.size;
    const int warp = (int)threadIdx.x / DDP_WARP, lane = (int)threadIdx.x % DDP_WARP;
    ddp_pack<float, V> dgamma[OWN], dbeta[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++)
        dgamma[k] = dbeta[k] = ddp_pack_of<V>(0);
    layer_norm_ahead<T, PACKS> ahead;
    read_row<DDP_WARP>(args, begin + warp, begin + warp < end, lane * W, &ahead);
    for (int64_t base = begin; base < end; base += WARPS_OF_BLOCK) {
        const int64_t row = base + warp;
        if (row < end)
            do_row<T, PACKS>(args, row, end, lane, rows[0][warp], rows[1][warp], &ahead);
        if (!pass.partial)
            continue;
        __syncthreads();
#pragma unroll 4
        for (int w = 0; w < WARPS_OF_BLOCK; w++) {
            if (base + w >= end)
                break;
            const float mean = args.statistics[2 * (base + w)];
            const float rstd = args.statistics[2 * (base + w) + 1];
#pragma unroll
            for (int k = 0; k < OWN; k++) {
                const int column = (k * DDP_BLOCK + (int)threadIdx.x) * V;
                if (column >= n)
                    continue;
                const auto x = ddp_read<V>((const T *)rows[0][w] + column);
                const auto dy = ddp_read<V>((const T *)rows[1][w] + column);
                for (int i = 0; i < V; i++) {
                    dgamma[k].at[i] += dy.at[i] * ((x.at[i] - mean) * rstd);
                    dbeta[k].at[i] += dy.at[i];
                }
            }
        }
        __syncthreads();
    }
    if (pass.partial)
        put_sums<DDP_BLOCK, V, OWN>(pass, dgamma, dbeta);
}

/* Long rows: the block has one at a time, the next one on its way, and each thread adds up the
 * columns that it has. */
template <typename T, int BLOCK, int COLUMNS>
static __global__ void __launch_bounds__(BLOCK, 512 / BLOCK)
    backward_block(struct layer_norm_pass pass)
{
    enum { W = ddp_width<T>, PACKS = PACKS_OF(COLUMNS, BLOCK * W), WARPS = BLOCK / DDP_WARP };
    __shared__ struct means partial[2][WARPS];
    const struct ddp_layer_norm_backward &args = pass.args;
    const int n = (int)args.features;
    const int64_t begin = (int64_t)blockIdx.x * pass.size;
    const int64_t end = args.rows - begin < pass.size ? args.rows : begin + pass.size;
    const int first = (int)threadIdx.x * W;
    ddp_pack<float, W> dgamma[PACKS], dbeta[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        dgamma[p] = dbeta[p] = ddp_pack_of<W>(0);
    layer_norm_ahead<T, PACKS> ahead, now;
    read_row<BLOCK>(args, begin, true, first, &ahead);
    for (int64_t row = begin; row < end; row++) {
        now = ahead;
        read_row<BLOCK>(args, row + 1, row + 1 < end, first, &ahead);
        struct means sums = {0, 0};
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int column = first + p * BLOCK * W;
            if (column < n) {
                add_to_means<T, W>(args, column, now.x[p], now.dy[p], now.mean, &sums);
                const auto x = ddp_widened(now.x[p]), dy = ddp_widened(now.dy[p]);
                for (int i = 0; i < W; i++) {
                    dgamma[p].at[i] += dy.at[i] * ((x.at[i] - now.mean) * now.rstd);
                    dbeta[p].at[i] += dy.at[i];
                }
            }
        }
        if (!args.dx)
            continue;
        read_old<BLOCK>(args, row, first, &now);
        sums.gx *= now.rstd;
        const struct means means =
            means_of_block<WARPS>(sums, partial[(row - begin) % 2], n, args.rms);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int column = first + p * BLOCK * W;
            if (column < n)
                put_dx<T, W>(args, row, column, now.x[p], now.dy[p], now.old[p], now.mean, now.rstd,
                             means);
        }
    }
    if (pass.partial)
        put_sums<BLOCK, W, PACKS>(pass, dgamma, dbeta);
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
    means.g = args.rms ? 0 : ddp_warps_reduce<WARPS, DDP_SUM>(means.g, partial) / (float)n;
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
    if (column < n)
#pragma unroll 8
        for (int block = down; block < blocks; block += DOWN)
            sum += pass.partial[((int64_t)block * 2 + blockIdx.y) * n + column];
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

/* Between 512 and 1024 columns: rows of bf16 are still short. */
template <typename T>
static void launch_middle(const struct layer_norm_pass &pass, unsigned blocks,
                          struct ddp_cuda *cuda)
{
    if constexpr (sizeof(T) == sizeof(float))
        DDP_LAUNCH((backward_block<T, DDP_BLOCK, 1024>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (pass.args.features <= 768)
        DDP_LAUNCH((backward_rows<T, 768>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((backward_rows<T, 1024>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
}

template <typename T>
static void launch_rows(const struct layer_norm_pass &pass, unsigned blocks, struct ddp_cuda *cuda)
{
    const struct ddp_layer_norm_backward &args = pass.args;
    const int64_t n = args.features;
    if (n % ddp_width<T> != 0 || n > 4096 || !ddp_aligned(args.x) || !ddp_aligned(args.dy) ||
        !ddp_aligned(args.dx) || !ddp_aligned(args.gamma))
        launch_any<T>(pass, blocks, cuda);
    else if (n <= 256)
        DDP_LAUNCH((backward_rows<T, 256>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 512)
        DDP_LAUNCH((backward_rows<T, 512>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else if (n <= 1024)
        launch_middle<T>(pass, blocks, cuda);
    else if (n <= 2048)
        DDP_LAUNCH((backward_block<T, DDP_BLOCK, 2048>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((backward_block<T, 512, 4096>), blocks, 512, 0, cuda->stream, pass);
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

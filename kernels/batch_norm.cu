/* SPDX-License-Identifier: MIT
 *
 * Batch norm on a CUDA device; see batch_norm.h. Every pass reads each array once, 16 bytes of
 * a row's channels at a time, and is bound by memory. A thread stays with its channels, whose
 * numbers it keeps in registers, and goes down the rows.
 *
 * Sums are double precision from the first addition on. The rows are cut into at most 1024 pieces
 * by the shape alone; the threads of a channel add every so many rows of a piece, then each other,
 * and a second kernel adds the pieces, all in one order. */
#include "core/log.h"
#include "kernels/batch_norm.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"

#include <math.h>

#define MOST       1024 /* blocks of a pass */
#define ACROSS     16   /* threads over channels, at most */
#define PIECE_ROWS 64   /* of a piece, at least */

/* --- how rows and channels are cut ------------------------------------------------------------ */

struct grid {
    int64_t rows, channels;
    int64_t tiles, pieces, piece; /* of channels; of rows, and the rows of one */
    int across;                   /* threads over the channels of a tile */
    int down;                     /* over rows */
};

static struct grid grid_of(int64_t rows, int64_t channels, int W)
{
    struct grid g = {};
    const int64_t packs = (channels + W - 1) / W;
    g.rows = rows;
    g.channels = channels;
    g.across = packs < ACROSS ? (int)packs : ACROSS;
    g.down = DDP_BLOCK / g.across;
    g.tiles = (packs + g.across - 1) / g.across;
    const int64_t most = g.tiles < MOST ? MOST / g.tiles : 1;
    g.piece = (rows + most - 1) / most;
    g.piece = g.piece > PIECE_ROWS ? g.piece : PIECE_ROWS;
    g.pieces = (rows + g.piece - 1) / g.piece;
    return g;
}

/* What a thread has of it. */
struct part {
    int across, down;
    int64_t channel, begin, end, piece; /* rows [begin, end), every g.down-th */
    bool active;
};

static __device__ inline struct part part_of(const struct grid *g, int W)
{
    struct part part;
    part.across = (int)threadIdx.x % g->across;
    part.down = (int)threadIdx.x / g->across;
    part.piece = blockIdx.x / g->tiles;
    part.channel = (blockIdx.x % g->tiles * g->across + part.across) * W;
    part.begin = part.piece * g->piece + part.down;
    part.end = (part.piece + 1) * g->piece < g->rows ? (part.piece + 1) * g->piece : g->rows;
    part.active = part.down < g->down && part.channel < g->channels;
    return part;
}

/* --- the gradient through the activation ------------------------------------------------------ */

struct gradient {
    const void *x, *y, *dy;
    const float *gamma, *beta, *saved;
    bool relu, has_residual;
};

/* The numbers of a thread's channels. */
template <int W> struct channels {
    float mean[W], rstd[W], scale[W], beta[W];
};

template <int W>
static __device__ inline void read_channels(channels<W> *c, const struct gradient *g,
                                            int64_t channel, int64_t count)
{
    for (int i = 0; i < W; i++) {
        c->mean[i] = g->saved[channel + i];
        c->rstd[i] = g->saved[count + channel + i];
        c->scale[i] = c->rstd[i] * g->gamma[channel + i];
        c->beta[i] = g->beta[channel + i];
    }
}

/* dz; *value: x less its mean. Without a residual the sign of y is computed again, as the CPU does.
 */
template <typename T, int W>
static __device__ inline ddp_pack<float, W>
gradient_at(const struct gradient *g, const channels<W> *c, int64_t at, ddp_pack<float, W> *value)
{
    ddp_pack<float, W> dz = ddp_read<W>((const T *)g->dy + at), sign;
    *value = ddp_read<W>((const T *)g->x + at);
    if (g->relu && g->has_residual)
        sign = ddp_read<W>((const T *)g->y + at);
    for (int i = 0; i < W; i++) {
        value->at[i] -= c->mean[i];
        if (g->relu) {
            const float from =
                g->has_residual ? sign.at[i] : ddp_product(value->at[i], c->scale[i]) + c->beta[i];
            dz.at[i] = from > 0 ? dz.at[i] : 0;
        }
    }
    return dz;
}

/* --- sums ----------------------------------------------------------------------------------- */

/* The sums of a block's threads, to the piece's. */
template <int W>
static __device__ void finish_piece(const struct grid *g, const struct part *part,
                                    const double (&sums)[2][W], double *partial)
{
    __shared__ double all[W][DDP_BLOCK];
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < W; i++)
            all[i][threadIdx.x] = sums[half][i];
        __syncthreads();
        if (part->active && part->down == 0)
            for (int i = 0; i < W; i++) {
                double sum = 0;
                for (int d = 0; d < g->down; d++)
                    sum += all[i][d * g->across + part->across];
                partial[(part->piece * 2 + half) * g->channels + part->channel + i] = sum;
            }
        __syncthreads();
    }
}

template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    sums_kernel(struct grid g, const T *x, double *partial)
{
    const struct part part = part_of(&g, W);
    double sums[2][W] = {};
    for (int64_t row = part.begin; part.active && row < part.end; row += g.down) {
        const ddp_pack<float, W> pack = ddp_read<W>(x + row * g.channels + part.channel);
        for (int i = 0; i < W; i++) {
            const double value = (double)pack.at[i];
            sums[0][i] += value;
            sums[1][i] += value * value;
        }
    }
    finish_piece<W>(&g, &part, sums, partial);
}

template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    backward_sums_kernel(struct grid g, struct gradient gradient, double *partial)
{
    const struct part part = part_of(&g, W);
    double sums[2][W] = {};
    channels<W> c = {};
    if (part.active)
        read_channels<W>(&c, &gradient, part.channel, g.channels);
    for (int64_t row = part.begin; part.active && row < part.end; row += g.down) {
        ddp_pack<float, W> value;
        const ddp_pack<float, W> dz =
            gradient_at<T, W>(&gradient, &c, row * g.channels + part.channel, &value);
        for (int i = 0; i < W; i++) {
            sums[0][i] += (double)dz.at[i];
            sums[1][i] += (double)dz.at[i] * (double)value.at[i];
        }
    }
    for (int i = 0; i < W; i++)
        sums[1][i] *= (double)c.rstd[i];
    finish_piece<W>(&g, &part, sums, partial);
}

/* A block adds the pieces of 16 of the 2 C sums. */
static __global__ void __launch_bounds__(DDP_BLOCK)
    finish_kernel(int64_t count, int64_t pieces, const double *partial, double *sums)
{
    __shared__ double all[DDP_BLOCK];
    const int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    const int64_t at = (int64_t)blockIdx.x * ACROSS + across;
    double sum = 0;
    if (at < count)
        for (int64_t piece = down; piece < pieces; piece += DDP_BLOCK / ACROSS)
            sum += partial[piece * count + at];
    all[threadIdx.x] = sum;
    __syncthreads();
    if (down != 0 || at >= count)
        return;
    for (int d = 1; d < DDP_BLOCK / ACROSS; d++)
        sum += all[d * ACROSS + across];
    sums[at] = sum;
}

/* `partial`, in the spare memory: at most 1024 pieces over all channels, or one of each. */
static enum ddp_status check_room(const struct grid *g)
{
    if ((size_t)(g->pieces * 2 * g->channels) * sizeof(double) <= DDP_CUDA_SPARE_BYTES)
        return DDP_OK;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "batch norm: %lld channels are too many for CUDA",
                    (long long)g->channels);
}

static void finish(const struct grid *g, const double *partial, double *sums, struct ddp_cuda *cuda)
{
    const int64_t count = 2 * g->channels;
    DDP_LAUNCH(finish_kernel, ddp_cuda_blocks(count, ACROSS), DDP_BLOCK, 0, cuda->stream, count,
               g->pieces, partial, sums);
}

template <typename T>
static enum ddp_status sums(const struct ddp_batch_norm_sums *args, struct ddp_cuda *cuda)
{
    const T *x = (const T *)args->x;
    const bool wide = args->channels % ddp_width<T> == 0 && ddp_aligned(x);
    const struct grid g = grid_of(args->rows, args->channels, wide ? ddp_width<T> : 1);
    enum ddp_status status = check_room(&g);
    if (status)
        return status;
    double *partial = (double *)ddp_cuda_spare(cuda);
    const unsigned blocks = (unsigned)(g.tiles * g.pieces);
    if (blocks > 0 && wide)
        DDP_LAUNCH((sums_kernel<T, ddp_width<T>>), blocks, DDP_BLOCK, 0, cuda->stream, g, x,
                   partial);
    else if (blocks > 0)
        DDP_LAUNCH((sums_kernel<T, 1>), blocks, DDP_BLOCK, 0, cuda->stream, g, x, partial);
    finish(&g, partial, args->sums, cuda);
    return ddp_cuda_launched(cuda, "batch norm sums");
}

extern "C" enum ddp_status ddp_cuda_batch_norm_sums(const struct ddp_batch_norm_sums *args,
                                                    void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_sums(args);
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (status)
        return status;
    return DDP_BY_DTYPE(args->dtype, sums, args, cuda);
}

template <typename T>
static enum ddp_status backward_sums(const struct ddp_batch_norm_backward_sums *args,
                                     struct ddp_cuda *cuda)
{
    const struct gradient gradient = {args->x,
                                      args->y,
                                      args->dy,
                                      args->gamma,
                                      args->beta,
                                      args->saved,
                                      args->activation == DDP_ACTIVATION_RELU,
                                      args->has_residual};
    const bool wide = args->channels % ddp_width<T> == 0 && ddp_aligned(args->x) &&
                      ddp_aligned(args->dy) && ddp_aligned(args->y);
    const struct grid g = grid_of(args->rows, args->channels, wide ? ddp_width<T> : 1);
    enum ddp_status status = check_room(&g);
    if (status)
        return status;
    double *partial = (double *)ddp_cuda_spare(cuda);
    const unsigned blocks = (unsigned)(g.tiles * g.pieces);
    if (blocks > 0 && wide)
        DDP_LAUNCH((backward_sums_kernel<T, ddp_width<T>>), blocks, DDP_BLOCK, 0, cuda->stream, g,
                   gradient, partial);
    else if (blocks > 0)
        DDP_LAUNCH((backward_sums_kernel<T, 1>), blocks, DDP_BLOCK, 0, cuda->stream, g, gradient,
                   partial);
    finish(&g, partial, args->sums, cuda);
    return ddp_cuda_launched(cuda, "batch norm backward sums");
}

extern "C" enum ddp_status
ddp_cuda_batch_norm_backward_sums(const struct ddp_batch_norm_backward_sums *args, void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_backward_sums(args);
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (status)
        return status;
    return DDP_BY_DTYPE(args->dtype, backward_sums, args, cuda);
}

/* --- once for each channel -------------------------------------------------------------------- */

static __global__ void __launch_bounds__(DDP_BLOCK)
    statistics_kernel(struct ddp_batch_norm_forward a)
{
    const int64_t c = ddp_first_of_pack(1);
    if (c >= a.channels)
        return;
    const double mean = a.sums[c] / a.count;
    double variance = a.sums[a.channels + c] / a.count - mean * mean;
    if (variance < 0) /* rounding; NaN stays */
        variance = 0;
    a.saved[c] = (float)mean;
    a.saved[a.channels + c] = (float)(1 / sqrt(variance + (double)a.epsilon));
    if (a.stat_mean)
        a.stat_mean[c] = a.accumulate_stat ? a.stat_mean[c] + (float)mean : (float)mean;
    if (a.stat_var)
        a.stat_var[c] = a.accumulate_stat
                            ? a.stat_var[c] + (float)(variance * (a.count / (a.count - 1)))
                            : (float)(variance * (a.count / (a.count - 1)));
}

static __global__ void __launch_bounds__(DDP_BLOCK)
    parameters_kernel(struct ddp_batch_norm_backward a)
{
    const int64_t c = ddp_first_of_pack(1);
    if (c >= a.channels)
        return;
    if (a.dbeta)
        a.dbeta[c] = (a.accumulate ? a.dbeta[c] : 0) + (float)a.local_sums[c];
    if (a.dgamma)
        a.dgamma[c] = (a.accumulate ? a.dgamma[c] : 0) + (float)a.local_sums[a.channels + c];
}

/* --- rows ----------------------------------------------------------------------------------- */

template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    forward_kernel(struct grid g, struct ddp_batch_norm_forward a)
{
    const struct part part = part_of(&g, W);
    const bool relu = a.activation == DDP_ACTIVATION_RELU;
    float mean[W], scale[W], beta[W];
    if (!part.active)
        return;
    for (int i = 0; i < W; i++) {
        const int64_t c = part.channel + i;
        const float rstd = a.sums ? a.saved[g.channels + c]
                                  : (float)(1 / sqrt((double)a.running_var[c] + (double)a.epsilon));
        mean[i] = a.sums ? a.saved[c] : a.running_mean[c];
        scale[i] = rstd * a.gamma[c];
        beta[i] = a.beta[c];
    }
    for (int64_t row = part.begin; row < part.end; row += g.down) {
        const int64_t at = row * g.channels + part.channel;
        ddp_pack<float, W> value = ddp_read<W>((const T *)a.x + at), other = {};
        if (a.residual)
            other = ddp_read<W>((const T *)a.residual + at);
        for (int i = 0; i < W; i++) {
            /* rounded as in backward, which makes the sign of y again */
            float y = ddp_product(value.at[i] - mean[i], scale[i]) + beta[i];
            if (a.residual)
                y += other.at[i];
            value.at[i] = relu && y < 0 ? 0 : y; /* NaN stays */
        }
        ddp_write<W>((T *)a.y + at, value);
    }
}

template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    backward_kernel(struct grid g, struct gradient gradient, struct ddp_batch_norm_backward a)
{
    const struct part part = part_of(&g, W);
    channels<W> c;
    float centre[W], slope[W];
    if (!part.active)
        return;
    read_channels<W>(&c, &gradient, part.channel, g.channels);
    for (int i = 0; i < W; i++) {
        centre[i] = (float)(a.sums[part.channel + i] / a.count);
        slope[i] = (float)(a.sums[g.channels + part.channel + i] / a.count * (double)c.rstd[i]);
    }
    for (int64_t row = part.begin; row < part.end; row += g.down) {
        const int64_t at = row * g.channels + part.channel;
        ddp_pack<float, W> value;
        const ddp_pack<float, W> dz = gradient_at<T, W>(&gradient, &c, at, &value);
        if (a.dx) {
            for (int i = 0; i < W; i++)
                value.at[i] = (dz.at[i] - centre[i] - value.at[i] * slope[i]) * c.scale[i];
            ddp_put<T, W>((T *)a.dx + at, value, a.accumulate_dx);
        }
        if (a.dresidual && a.has_residual)
            ddp_put<T, W>((T *)a.dresidual + at, dz, a.accumulate_dresidual);
    }
}

template <typename T>
static void launch_forward(const struct ddp_batch_norm_forward *args, struct ddp_cuda *cuda)
{
    const bool wide = args->channels % ddp_width<T> == 0 && ddp_aligned(args->x) &&
                      ddp_aligned(args->y) && ddp_aligned(args->residual);
    const struct grid g = grid_of(args->rows, args->channels, wide ? ddp_width<T> : 1);
    const unsigned blocks = (unsigned)(g.tiles * g.pieces);
    if (blocks > 0 && wide)
        DDP_LAUNCH((forward_kernel<T, ddp_width<T>>), blocks, DDP_BLOCK, 0, cuda->stream, g, *args);
    else if (blocks > 0)
        DDP_LAUNCH((forward_kernel<T, 1>), blocks, DDP_BLOCK, 0, cuda->stream, g, *args);
}

extern "C" enum ddp_status ddp_cuda_batch_norm_forward(const struct ddp_batch_norm_forward *args,
                                                       void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_forward(args);
    if (status)
        return status;
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (args->sums)
        DDP_LAUNCH(statistics_kernel, ddp_cuda_blocks(args->channels, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args);
    DDP_BY_DTYPE(args->dtype, launch_forward, args, cuda);
    return ddp_cuda_launched(cuda, "batch norm");
}

template <typename T>
static void launch_backward(const struct ddp_batch_norm_backward *args, struct ddp_cuda *cuda)
{
    const struct gradient gradient = {args->x,
                                      args->y,
                                      args->dy,
                                      args->gamma,
                                      args->beta,
                                      args->saved,
                                      args->activation == DDP_ACTIVATION_RELU,
                                      args->has_residual};
    const bool wide = args->channels % ddp_width<T> == 0 && ddp_aligned(args->x) &&
                      ddp_aligned(args->dy) && ddp_aligned(args->y) && ddp_aligned(args->dx) &&
                      ddp_aligned(args->dresidual);
    const struct grid g = grid_of(args->rows, args->channels, wide ? ddp_width<T> : 1);
    const unsigned blocks = (unsigned)(g.tiles * g.pieces);
    const bool rows = blocks > 0 && (args->dx || (args->dresidual && args->has_residual));
    if (rows && wide)
        DDP_LAUNCH((backward_kernel<T, ddp_width<T>>), blocks, DDP_BLOCK, 0, cuda->stream, g,
                   gradient, *args);
    else if (rows)
        DDP_LAUNCH((backward_kernel<T, 1>), blocks, DDP_BLOCK, 0, cuda->stream, g, gradient, *args);
}

extern "C" enum ddp_status ddp_cuda_batch_norm_backward(const struct ddp_batch_norm_backward *args,
                                                        void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_backward(args);
    if (status)
        return status;
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (args->dgamma || args->dbeta)
        DDP_LAUNCH(parameters_kernel, ddp_cuda_blocks(args->channels, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args);
    DDP_BY_DTYPE(args->dtype, launch_backward, args, cuda);
    return ddp_cuda_launched(cuda, "batch norm backward");
}

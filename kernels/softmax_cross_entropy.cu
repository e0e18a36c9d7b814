/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy on a GPU; see softmax_cross_entropy.h. One kernel counts the rows that
 * count and looks for invalid labels. Then a team of threads, from a warp to a block of
 * 1024, has a row: one pass over it for the largest logit and the sum of the exponentials, a second
 * one for the gradient, which finds the row in the cache. Each row's loss goes to the workspace,
 * and one block adds these in one order. Bound: 8 bytes a logit with the gradient, 4 without; half
 * of that in bf16, whose exponentials are the special function unit's: exact ones would take as
 * long as the memory. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/softmax_cross_entropy.h"

#include <math.h>

#define CHUNK  131072 /* rows whose losses are in the workspace together */
#define AHEAD  4      /* packs of a thread whose loads are on their way together */
#define ADDERS 1024   /* threads that add losses, and that count labels */
#define CACHED 131072 /* bytes of a row of which the cache has two for each multiprocessor */

/* In the workspace; the losses are behind it. */
struct cross_entropy_sums {
    int64_t counted; /* rows whose label is a class */
    double loss;     /* of the chunks so far */
};

struct cross_entropy_pass {
    struct ddp_softmax_cross_entropy args;
    struct cross_entropy_sums *sums;
    double *losses;
    int64_t begin, end; /* rows of this chunk */
};

static __device__ inline bool is_class(const struct ddp_softmax_cross_entropy &args, int32_t label)
{
    return label >= 0 && label < args.classes;
}

static __global__ void __launch_bounds__(ADDERS)
    count_labels(struct cross_entropy_pass pass, struct ddp_cuda_fault *fault)
{
    __shared__ int64_t partial[DDP_WARPS_MAX];
    const struct ddp_softmax_cross_entropy &args = pass.args;
    int64_t counted = 0, bad = args.rows;
#pragma unroll 8
    for (int64_t row = threadIdx.x; row < args.rows; row += ADDERS) {
        const int32_t label = args.labels[row];
        counted += is_class(args, label);
        if (!is_class(args, label) && label != DDP_LABEL_NONE && row < bad)
            bad = row;
    }
    counted = ddp_warps_reduce<ADDERS / DDP_WARP, DDP_SUM>(counted, partial);
    bad = ddp_warps_reduce<ADDERS / DDP_WARP, DDP_MIN>(bad, partial);
    if (threadIdx.x > 0)
        return;
    pass.sums->counted = counted;
    pass.sums->loss = 0;
    if (bad < args.rows && fault->code == DDP_CUDA_FAULT_NONE) {
        fault->value = args.labels[bad];
        fault->limit = (int32_t)args.classes;
        fault->row = args.first_row + bad;
        fault->code = DDP_CUDA_FAULT_LABEL;
    }
}

/* What a row's sums are divided by: 0 when no row counts. */
static __device__ inline int64_t divisor_of(const struct cross_entropy_pass &pass)
{
    const int64_t counted = pass.sums->counted;
    return counted > 0 && pass.args.divisor > 0 ? pass.args.divisor : counted;
}

/* A row as a thread sees it: `head` single elements, then packs, then single ones again. */
template <typename T> struct cross_entropy_row {
    const T *x;
    T *d; /* NULL: not wanted */
    int n, head, packs;
    int width; /* n and what lies between two rows */
};

/* The largest logit so far, the sum of e^(x - largest), and where the largest stands. */
struct cross_entropy_state {
    float max, sum;
    int best; /* -1: none yet */
};

/* e^x for a logit of type T. */
template <typename T> static __device__ inline float exponential(float x)
{
    if constexpr (sizeof(T) == sizeof(float))
        return expf(x);
    return ddp_fast_exp2(x * 1.44269504f);
}

/* Takes a pack in, whose first number stands at `first`: one rescaling for all of it. */
template <typename T, bool PREDICT, int W>
static __device__ inline void take(struct cross_entropy_state *state, const ddp_pack<float, W> &x,
                                   int first)
{
    float max = state->max, sum = 0;
    for (int i = 0; i < W; i++) {
        if (PREDICT && (x.at[i] > max || (state->best < 0 && x.at[i] == max)))
            state->best = first + i;
        max = fmaxf(max, x.at[i]);
    }
    /* e^(-inf - -inf) would be NaN. */
    const float from = max == -INFINITY ? 0 : max;
    for (int i = 0; i < W; i++)
        sum += exponential<T>(x.at[i] - from);
    state->sum = state->sum * exponential<T>(state->max - from) + sum;
    state->max = max;
}

/* The packs of a thread from `p` on, as many as there are. */
template <typename T, int TEAM, int W>
static __device__ inline void read_ahead(const cross_entropy_row<T> &row, int p,
                                         ddp_raw<T, W> (&read)[AHEAD])
{
#pragma unroll
    for (int q = 0; q < AHEAD; q++)
        if (p + q * TEAM < row.packs)
            read[q] = ddp_read_raw<W>(row.x + row.head + W * (p + q * TEAM));
}

/* This thread's part of a row. */
template <typename T, int TEAM, bool PREDICT>
static __device__ inline struct cross_entropy_state state_of(const cross_entropy_row<T> &row,
                                                             int lane)
{
    constexpr int W = ddp_width<T>;
    struct cross_entropy_state state = {-INFINITY, 0, -1};
    if (lane < row.head)
        take<T, PREDICT>(&state, ddp_read<1>(row.x + lane), lane);
    for (int p = lane; p < row.packs; p += AHEAD * TEAM) {
        ddp_raw<T, W> read[AHEAD];
        read_ahead<T, TEAM>(row, p, read);
#pragma unroll
        for (int q = 0; q < AHEAD; q++)
            if (p + q * TEAM < row.packs)
                take<T, PREDICT>(&state, ddp_widened(read[q]), row.head + W * (p + q * TEAM));
    }
    for (int i = row.head + W * row.packs + lane; i < row.n; i += TEAM)
        take<T, PREDICT>(&state, ddp_read<1>(row.x + i), i);
    return state;
}

/* d = e^(x - max) * factor, elements as in state_of(): each thread reads what it overwrites, and
 * that before it writes, since d may be x. */
template <typename T, int TEAM>
static __device__ inline void put_gradient(const cross_entropy_row<T> &row, int lane, float max,
                                           float factor)
{
    constexpr int W = ddp_width<T>;
    if (lane < row.head)
        ddp_write_one(row.d + lane, exponential<T>(ddp_read_one(row.x + lane) - max) * factor);
    for (int p = lane; p < row.packs; p += AHEAD * TEAM) {
        ddp_raw<T, W> read[AHEAD];
        read_ahead<T, TEAM>(row, p, read);
#pragma unroll
        for (int q = 0; q < AHEAD; q++) {
            if (p + q * TEAM >= row.packs)
                break;
            ddp_pack<float, W> value = ddp_widened(read[q]);
            for (int i = 0; i < W; i++)
                value.at[i] = exponential<T>(value.at[i] - max) * factor;
            ddp_write<W>(row.d + row.head + W * (p + q * TEAM), value);
        }
    }
    for (int i = row.head + W * row.packs + lane; i < row.n; i += TEAM)
        ddp_write_one(row.d + i, exponential<T>(ddp_read_one(row.x + i) - max) * factor);
}

template <typename T>
static __device__ inline cross_entropy_row<T> row_of(const struct ddp_softmax_cross_entropy &a,
                                                     int64_t number)
{
    constexpr int W = ddp_width<T>;
    cross_entropy_row<T> row;
    row.n = (int)a.classes;
    row.width = (int)a.stride;
    row.x = (const T *)a.logits + number * a.stride;
    row.d = a.dlogits ? (T *)a.dlogits + number * a.stride : NULL;
    const int off = (int)(reinterpret_cast<uintptr_t>(row.x) / sizeof(T) % W);
    const int off_d = row.d ? (int)(reinterpret_cast<uintptr_t>(row.d) / sizeof(T) % W) : off;
    row.head = (W - off) % W;
    row.head = row.head < row.n ? row.head : row.n;
    row.packs = off == off_d ? (row.n - row.head) / W : 0;
    return row;
}

/* What lies behind a row, up to the next one. */
template <typename T, int TEAM>
static __device__ inline void clear_rest(const cross_entropy_row<T> &row, int lane)
{
    for (int i = row.n + lane; row.d && i < row.width; i += TEAM)
        row.d[i] = 0;
}

/* A row without a label: its prediction at most, and a gradient of zeros. */
template <typename T, int TEAM>
static __device__ inline void put_zeros(const cross_entropy_row<T> &row, int lane)
{
    constexpr int W = ddp_width<T>;
    if (!row.d)
        return;
    for (int p = lane; p < row.packs; p += TEAM)
        ddp_write<W>(row.d + row.head + W * p, ddp_pack_of<W>(0));
    for (int i = lane; i < row.n - W * row.packs; i += TEAM)
        row.d[i < row.head ? i : i + W * row.packs] = 0;
    clear_rest<T, TEAM>(row, lane);
}

/* A row with one label, whose largest logit is `max` and whose exponentials have the sum `sum`: its
 * loss and its gradient. */
template <typename T, int WARPS>
static __device__ inline void learn_label(const struct cross_entropy_pass &pass, int64_t number,
                                          const cross_entropy_row<T> &row, float own, float max,
                                          float sum)
{
    enum { TEAM = WARPS * DDP_WARP };
    const struct ddp_softmax_cross_entropy &args = pass.args;
    const int lane = (int)threadIdx.x % TEAM;
    if (lane == 0)
        pass.losses[number - pass.begin] = log((double)sum) - ((double)own - (double)max);
    if (!row.d)
        return;
    const float weight = args.row_weights ? args.row_weights[number] : 1.0f;
    const float mean = weight * ((args.dloss ? *args.dloss : 1.0f) / (float)divisor_of(pass));
    put_gradient<T, TEAM>(row, lane, max, mean / sum);
    clear_rest<T, TEAM>(row, lane);
    ddp_warps_barrier<WARPS>();
    if (lane == 0)
        ddp_write_one(row.d + args.labels[number], (exponential<T>(own - max) / sum - 1.0f) * mean);
}

/* The same of a row with soft labels, which a warp has: what is taken off the gradient differs from
 * class to class. */
template <typename T>
static __device__ inline void learn_soft_label(const struct cross_entropy_pass &pass,
                                               int64_t number, const cross_entropy_row<T> &row,
                                               float own, float max, float sum)
{
    const struct ddp_softmax_cross_entropy &args = pass.args;
    const int lane = (int)threadIdx.x % DDP_WARP;
    const int32_t label = args.labels[number];
    const int32_t found = args.labels[number > 0 ? number - 1 : args.rows - 1];
    const int32_t before = is_class(args, found) ? found : label;
    const float share = args.soft->share, smooth = args.soft->smooth;
    double all = 0;
    for (int i = lane; i < row.n; i += DDP_WARP)
        all += (double)ddp_read_one(row.x + i);
    all = ddp_warp_reduce<DDP_SUM>(all);
    const double mixed =
        (1 - (double)smooth) * ((double)share * (double)own +
                                (1 - (double)share) * (double)ddp_read_one(row.x + before)) +
        (double)smooth * (all / row.n);
    __syncwarp(); /* all have read the row, which is written over below */
    if (lane == 0)
        pass.losses[number - pass.begin] = log((double)sum) - (mixed - (double)max);
    const float mean = (args.dloss ? *args.dloss : 1.0f) / (float)divisor_of(pass);
    for (int i = lane; row.d && i < row.n; i += DDP_WARP) {
        const float target = smooth / (float)row.n + (i == label ? (1 - smooth) * share : 0) +
                             (i == before ? (1 - smooth) * (1 - share) : 0);
        const float p = exponential<T>(ddp_read_one(row.x + i) - max) / sum;
        ddp_write_one(row.d + i, (p - target) * mean);
    }
    clear_rest<T, DDP_WARP>(row, lane);
}

template <typename T, int WARPS, int BLOCK, bool PREDICT, bool SOFT>
static __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    rows_kernel(struct cross_entropy_pass pass)
{
    enum { TEAM = WARPS * DDP_WARP };
    __shared__ float partial[DDP_WARPS_MAX];
    __shared__ int places[DDP_WARPS_MAX];
    const struct ddp_softmax_cross_entropy &args = pass.args;
    const int lane = (int)threadIdx.x % TEAM;
    const int64_t number =
        pass.begin + (int64_t)blockIdx.x * (BLOCK / TEAM) + (int)threadIdx.x / TEAM;
    if (number >= pass.end)
        return;
    const cross_entropy_row<T> row = row_of<T>(args, number);
    const int32_t label = args.labels[number];
    const bool counts = is_class(args, label);
    if (lane == 0)
        pass.losses[number - pass.begin] = 0;
    if (!counts && !PREDICT) {
        put_zeros<T, TEAM>(row, lane);
        return;
    }
    const float own = counts ? ddp_read_one(row.x + label) : 0;
    struct cross_entropy_state state = state_of<T, TEAM, PREDICT>(row, lane);
    if (WARPS == 1)
        __syncwarp(); /* all have read the row and its label's number, which are written over below:
                         shuffles order no memory; more warps meet in the maximum */
    const float max = ddp_warps_reduce<WARPS, DDP_MAX>(state.max, partial);
    if (PREDICT) {
        const int place = state.best >= 0 && state.max == max ? state.best : row.n;
        const int best = ddp_warps_reduce<WARPS, DDP_MIN>(place, places);
        if (lane == 0)
            args.predictions[number] = best < row.n ? best : 0; /* a row of NaN */
    }
    if (!counts) {
        put_zeros<T, TEAM>(row, lane);
        return;
    }
    const float sum =
        ddp_warps_reduce<WARPS, DDP_SUM>(state.sum * exponential<T>(state.max - max), partial);
    if constexpr (SOFT)
        learn_soft_label<T>(pass, number, row, own, max, sum);
    else
        learn_label<T, WARPS>(pass, number, row, own, max, sum);
}

/* The losses of a chunk, in one tree; behind the last chunk the mean. */
static __global__ void __launch_bounds__(ADDERS) add_losses(struct cross_entropy_pass pass)
{
    __shared__ double partial[DDP_WARPS_MAX];
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < pass.end - pass.begin; i += ADDERS) {
        const double loss = pass.losses[i];
        sum += loss;
        if (pass.args.row_losses)
            pass.args.row_losses[pass.begin + i] = (float)loss;
    }
    sum = ddp_warps_reduce<ADDERS / DDP_WARP, DDP_SUM>(sum, partial);
    if (threadIdx.x > 0)
        return;
    sum += pass.sums->loss;
    pass.sums->loss = sum;
    if (pass.end < pass.args.rows)
        return;
    const int64_t divisor = divisor_of(pass);
    const float mean = divisor ? (float)(sum / (double)divisor) : 0;
    *pass.args.loss = pass.args.accumulate_loss ? *pass.args.loss + mean : mean;
    if (!pass.args.uncounted)
        return;
    const float uncounted = (float)(pass.args.rows - pass.sums->counted);
    *pass.args.uncounted = pass.args.accumulate_loss ? *pass.args.uncounted + uncounted : uncounted;
}

template <typename T, int WARPS, int BLOCK, bool SOFT>
static void launch_team(const struct cross_entropy_pass &pass, struct ddp_cuda *cuda)
{
    const unsigned blocks = ddp_cuda_blocks(pass.end - pass.begin, BLOCK / (WARPS * DDP_WARP));
    if (pass.args.predictions)
        DDP_LAUNCH((rows_kernel<T, WARPS, BLOCK, true, SOFT>), blocks, BLOCK, 0, cuda->stream,
                   pass);
    else
        DDP_LAUNCH((rows_kernel<T, WARPS, BLOCK, false, SOFT>), blocks, BLOCK, 0, cuda->stream,
                   pass);
}

template <typename T>
static void launch_rows(const struct cross_entropy_pass &pass, struct ddp_cuda *cuda)
{
    if (pass.begin == pass.end)
        return;
    if (pass.args.soft)
        launch_team<T, 1, DDP_BLOCK, true>(pass, cuda);
    else if (pass.args.classes <= 1024)
        launch_team<T, 1, DDP_BLOCK, false>(pass, cuda);
    else if (pass.args.classes <= 8192)
        launch_team<T, 8, DDP_BLOCK, false>(pass, cuda);
    else if (pass.args.classes * sizeof(T) <= CACHED)
        launch_team<T, 16, 512, false>(pass, cuda);
    else
        launch_team<T, 32, 1024, false>(pass, cuda);
}

extern "C" enum ddp_status
ddp_cuda_softmax_cross_entropy(const struct ddp_softmax_cross_entropy *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_softmax_cross_entropy_check(args);
    if (status)
        return status;
    struct cross_entropy_pass pass;
    pass.args = *args;
    pass.args.stride = ddp_softmax_cross_entropy_stride(args);
    pass.sums = (struct cross_entropy_sums *)cuda->workspace;
    pass.losses = (double *)(pass.sums + 1);
    pass.begin = pass.end = 0;
    DDP_LAUNCH(count_labels, 1, ADDERS, 0, cuda->stream, pass, cuda->fault);
    do {
        pass.begin = pass.end;
        pass.end = args->rows - pass.begin < CHUNK ? args->rows : pass.begin + CHUNK;
        DDP_BY_DTYPE(args->dtype, launch_rows, pass, cuda);
        DDP_LAUNCH(add_losses, 1, ADDERS, 0, cuda->stream, pass);
    } while (pass.end < args->rows);
    return ddp_cuda_launched(cuda, "softmax cross-entropy");
}

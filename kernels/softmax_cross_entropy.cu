/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy on a GPU; see softmax_cross_entropy.h. One kernel counts the rows that
 * count and looks for invalid labels. Then a team of threads, from a warp to a block of
 * 1024, has a row: one pass over it for the largest logit and the sum of the exponentials, a second
 * one for the gradient, which finds the row in the cache. Each row's loss goes to the workspace,
 * and one block adds these in one order. Bound: 8 bytes a logit with the gradient, 4 without; half
 * of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/softmax_cross_entropy.h"

#include <math.h>

#define CHUNK  131072 /* rows whose losses are in the workspace together */
#define AHEAD  16     /* logits of a thread whose loads are on their way together */
#define ADDERS 1024   /* threads that add losses, and that count labels */

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
        fault->row = bad;
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

/* Takes COUNT numbers in: packs of W that stand at `first`, first + STRIDE, ... */
template <int COUNT, int W, int STRIDE, bool PREDICT>
static __device__ inline void take(struct cross_entropy_state *state, const float (&x)[COUNT],
                                   int first)
{
    float max = state->max, sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (PREDICT && (x[i] > max || (state->best < 0 && x[i] == max)))
            state->best = first + i / W * STRIDE + i % W;
        max = fmaxf(max, x[i]);
    }
    /* e^(-inf - -inf) would be NaN. */
    const float from = max == -INFINITY ? 0 : max;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum += expf(x[i] - from);
    state->sum = state->sum * expf(state->max - from) + sum;
    state->max = max;
}

/* This thread's part of a row; several packs at a time: one rescaling for sixteen exponentials. */
template <typename T, int TEAM, bool PREDICT>
static __device__ inline struct cross_entropy_state state_of(const cross_entropy_row<T> &row,
                                                             int lane)
{
    constexpr int W = ddp_width<T>, PACKS = AHEAD / W;
    struct cross_entropy_state state = {-INFINITY, 0, -1};
    const T *packs = row.x + row.head;
    if (lane < row.head)
        take<1, 1, 0, PREDICT>(&state, {ddp_read_one(row.x + lane)}, lane);
    int p = lane;
    for (; p + (PACKS - 1) * TEAM < row.packs; p += PACKS * TEAM) {
        ddp_pack<float, W> read[PACKS];
        float x[AHEAD];
#pragma unroll
        for (int q = 0; q < PACKS; q++)
            read[q] = ddp_read<W>(packs + W * (p + q * TEAM));
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            x[i] = read[i / W].at[i % W];
        take<AHEAD, W, W * TEAM, PREDICT>(&state, x, row.head + W * p);
    }
    for (; p < row.packs; p += TEAM)
        take<W, W, 0, PREDICT>(&state, ddp_read<W>(packs + W * p).at, row.head + W * p);
    for (int i = row.head + W * row.packs + lane; i < row.n; i += TEAM)
        take<1, 1, 0, PREDICT>(&state, {ddp_read_one(row.x + i)}, i);
    return state;
}

/* d = e^(x - max) * factor, elements as in state_of(): each thread reads what it overwrites. */
template <typename T, int TEAM>
static __device__ inline void put_gradient(const cross_entropy_row<T> &row, int lane, float max,
                                           float factor)
{
    constexpr int W = ddp_width<T>;
    if (lane < row.head)
        ddp_write_one(row.d + lane, expf(ddp_read_one(row.x + lane) - max) * factor);
#pragma unroll 4
    for (int p = lane; p < row.packs; p += TEAM) {
        const int at = row.head + W * p;
        ddp_pack<float, W> value = ddp_read<W>(row.x + at);
        for (int i = 0; i < W; i++)
            value.at[i] = expf(value.at[i] - max) * factor;
        ddp_write<W>(row.d + at, value);
    }
    for (int i = row.head + W * row.packs + lane; i < row.n; i += TEAM)
        ddp_write_one(row.d + i, expf(ddp_read_one(row.x + i) - max) * factor);
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

/* From place `first` on: all of a row without a label, else what lies behind the row. */
template <typename T, int TEAM>
static __device__ inline void put_zeros(const cross_entropy_row<T> &row, int lane, int first)
{
    for (int i = first + lane; row.d && i < row.width; i += TEAM)
        row.d[i] = 0;
}

template <typename T, int WARPS, int BLOCK, bool PREDICT>
static __global__ void __launch_bounds__(BLOCK) rows_kernel(struct cross_entropy_pass pass)
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
        put_zeros<T, TEAM>(row, lane, 0);
        return;
    }
    const float own = counts ? ddp_read_one(row.x + label) : 0;
    if (WARPS == 1)
        __syncwarp(); /* read by all before anybody writes over it; more warps meet below */
    struct cross_entropy_state state = state_of<T, TEAM, PREDICT>(row, lane);
    if (WARPS == 1)
        __syncwarp(); /* all have read what is written over below: shuffles order no memory */
    const float max = ddp_warps_reduce<WARPS, DDP_MAX>(state.max, partial);
    if (PREDICT) {
        const int place = state.best >= 0 && state.max == max ? state.best : row.n;
        const int best = ddp_warps_reduce<WARPS, DDP_MIN>(place, places);
        if (lane == 0)
            args.predictions[number] = best < row.n ? best : 0; /* a row of NaN */
    }
    if (!counts) {
        put_zeros<T, TEAM>(row, lane, 0);
        return;
    }
    const float sum = ddp_warps_reduce<WARPS, DDP_SUM>(state.sum * expf(state.max - max), partial);
    if (lane == 0)
        pass.losses[number - pass.begin] = log((double)sum) - ((double)own - (double)max);
    if (!row.d)
        return;
    const float mean = 1.0f / (float)divisor_of(pass);
    put_gradient<T, TEAM>(row, lane, max, mean / sum);
    put_zeros<T, TEAM>(row, lane, row.n);
    ddp_warps_barrier<WARPS>();
    if (lane == 0)
        ddp_write_one(row.d + label, (expf(own - max) / sum - 1.0f) * mean);
}

/* The losses of a chunk, in one tree; behind the last chunk the mean. */
static __global__ void __launch_bounds__(ADDERS) add_losses(struct cross_entropy_pass pass)
{
    __shared__ double partial[DDP_WARPS_MAX];
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < pass.end - pass.begin; i += ADDERS)
        sum += pass.losses[i];
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
}

template <typename T, int WARPS, int BLOCK>
static void launch_team(const struct cross_entropy_pass &pass, struct ddp_cuda *cuda)
{
    const unsigned blocks = ddp_cuda_blocks(pass.end - pass.begin, BLOCK / (WARPS * DDP_WARP));
    if (pass.args.predictions)
        DDP_LAUNCH((rows_kernel<T, WARPS, BLOCK, true>), blocks, BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((rows_kernel<T, WARPS, BLOCK, false>), blocks, BLOCK, 0, cuda->stream, pass);
}

template <typename T>
static void launch_rows(const struct cross_entropy_pass &pass, struct ddp_cuda *cuda)
{
    if (pass.begin == pass.end)
        return;
    if (pass.args.classes <= 1024)
        launch_team<T, 1, DDP_BLOCK>(pass, cuda);
    else if (pass.args.classes <= 8192)
        launch_team<T, 8, DDP_BLOCK>(pass, cuda);
    else
        launch_team<T, 32, 1024>(pass, cuda);
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

/* SPDX-License-Identifier: MIT
 *
 * Causal attention on a CUDA device, in float32; see attention.h. A block of 128 threads keeps some
 * rows of one head (64 for heads of up to 64) in shared memory, goes over the rows of the other
 * kind that see them or that they see, and holds its results in registers, so no two blocks write
 * the same memory:
 *
 *   forward  queries stay; keys, then values, pass by; the softmax is brought along as it grows
 *   dk, dv   keys and values stay; queries and their dy pass by, head by head
 *   dq       queries and their dy stay; keys and values pass by
 * so that the scores are made three times in all. dy . y of each query is made before the backward
 * kernels, in the device's spare memory, heads a group at a time if they do not all fit.
 *
 * Bound by float32 arithmetic on general cores: 2 T^2 D per head forward and 7 T^2 D backward
 * (multiply-adds, half of them above the diagonal left out). Operands come from shared memory as
 * float4 along D, eight rows by four columns to a thread: at 64 features 32 multiply-adds for 2.5
 * loads, which keeps the multipliers about two thirds busy. All tiles fit 48 KiB and 212 registers,
 * two to four blocks to a multiprocessor, which hides the loads. The tensor cores do it many
 * times as fast in bf16 or float16 (mma.cu); forward() and backward() choose. These kernels are for
 * float32, older devices, and what mma.cu leaves out. Heads of 128 and 256 are done
 * right, not fast. */
#include "core/log.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda.h"
#include "kernels/kernels_cuda.h"

#include <math.h>

#define THREADS 128
#define TX      16 /* threads over columns of a tile, TY over rows */
#define TY      (THREADS / TX)

/* --- tiles ---------------------------------------------------------------------------------- */

/* How heads of up to D features are cut. */
template <int D> struct cut {
    static constexpr int rows = D <= 64 ? 64 : 4096 / D; /* that stay */
    static constexpr int step = D <= 64 ? 16 : 1024 / D; /* that pass by, going back */
    static constexpr int own = rows / TY;                /* rows of results of a thread */
    static constexpr int wide = D >= 64 ? 4 : 2;         /* neighbouring columns of a thread */
    static constexpr int groups = D / (TX * wide);       /* how many such neighbours */
};

/* A tile of rows x D floats. `swizzled`: the float4s of a row are permuted by the row, so that
 * threads which read the same place of neighbouring rows meet no bank twice. */
template <int D> static __device__ inline int place(int row, int quad, bool swizzled)
{
    return row * D + 4 * (swizzled ? quad ^ (row & 7) : quad);
}

template <typename T>
static __device__ inline ddp_pack<float, 4> read_quad(const T *from, int64_t left, bool wide)
{
    if (wide && left >= 4)
        return ddp_read<4>(from);
    ddp_pack<float, 4> quad;
    for (int i = 0; i < 4; i++)
        quad.at[i] = i < left ? ddp_read_one(from + i) : 0;
    return quad;
}

/* Rows [row, row + ROWS) of `from`, with zeros for what is not there. */
template <int D, int ROWS, typename T>
static __device__ void load_tile(const struct ddp_heads *g, float *tile, const T *from,
                                 int64_t stride, int64_t row, bool swizzled)
{
    for (int i = (int)threadIdx.x; i < ROWS * D / 4; i += THREADS) {
        const int r = i / (D / 4), quad = i % (D / 4);
        const int64_t left = row + r < g->length ? g->size - 4 * quad : 0;
        ddp_pack<float, 4> read = {};
        if (left > 0)
            read = read_quad(from + (row + r) * stride + 4 * quad, left, g->wide);
        ddp_store(tile + place<D>(r, quad, swizzled), read);
    }
}

static __device__ inline float dot(float4 a, float4 b, float sum)
{
    sum = ddp_fused(a.x, b.x, sum);
    sum = ddp_fused(a.y, b.y, sum);
    sum = ddp_fused(a.z, b.z, sum);
    return ddp_fused(a.w, b.w, sum);
}

/* sums[i][j] = row (row + i) of a . row (column + j * apart) of b, the latter swizzled. */
template <int D, int I, int J>
static __device__ inline void products(float (&sums)[I][J], const float *a, int row, const float *b,
                                       int column, int apart)
{
    for (int i = 0; i < I; i++)
        for (int j = 0; j < J; j++)
            sums[i][j] = 0;
#pragma unroll 2
    for (int quad = 0; quad < D / 4; quad++) {
        float4 left[I];
#pragma unroll
        for (int i = 0; i < I; i++)
            left[i] = *reinterpret_cast<const float4 *>(a + place<D>(row + i, quad, false));
#pragma unroll
        for (int j = 0; j < J; j++) {
            const float4 right =
                *reinterpret_cast<const float4 *>(b + place<D>(column + j * apart, quad, true));
#pragma unroll
            for (int i = 0; i < I; i++)
                sums[i][j] = dot(left[i], right, sums[i][j]);
        }
    }
}

/* The columns of a thread: `wide` neighbours in each of `groups` parts of a row. */
template <int D> static __device__ inline int column_of(int across, int group)
{
    return (group * TX + across) * cut<D>::wide;
}

template <int D>
static __device__ inline void read_columns(float (&out)[cut<D>::groups * cut<D>::wide],
                                           const float *tile, int row, int across, bool swizzled)
{
    typedef ddp_pack<float, cut<D>::wide> pack;
#pragma unroll
    for (int group = 0; group < cut<D>::groups; group++) {
        const int column = column_of<D>(across, group);
        const pack part = *reinterpret_cast<const pack *>(
            tile + place<D>(row, column / 4, swizzled) + column % 4);
#pragma unroll
        for (int i = 0; i < cut<D>::wide; i++)
            out[group * cut<D>::wide + i] = part.at[i];
    }
}

/* Results of a thread: `own` rows by its columns. */
template <int D> struct results {
    float at[cut<D>::own][cut<D>::groups * cut<D>::wide];
};

template <int D>
static __device__ inline void add_row(float (&to)[cut<D>::groups * cut<D>::wide], float weight,
                                      const float (&row)[cut<D>::groups * cut<D>::wide])
{
#pragma unroll
    for (int j = 0; j < cut<D>::groups * cut<D>::wide; j++)
        to[j] = ddp_fused(weight, row[j], to[j]);
}

/* results += weights^T rows, over COUNT rows of a tile: the weights of row n for the thread's own
 * rows lie side by side at weights[n * pitch]. */
template <int D, int COUNT>
static __device__ inline void add_across(struct results<D> *results, const float *weights,
                                         int pitch, const float *rows, int across)
{
    constexpr int own = cut<D>::own, part = own < 4 ? own : 4;
#pragma unroll 4
    for (int n = 0; n < COUNT; n++) {
        float row[cut<D>::groups * cut<D>::wide];
        read_columns<D>(row, rows, n, across, false);
#pragma unroll
        for (int i = 0; i < own; i += part) {
            const ddp_pack<float, part> some = ddp_load<float, part>(weights + n * pitch + i);
#pragma unroll
            for (int l = 0; l < part; l++)
                add_row<D>(results->at[i + l], some.at[l], row);
        }
    }
}

/* results += weights rows: the weights of own row i lie side by side at weights[i * pitch]. */
template <int D, int COUNT>
static __device__ inline void add_down(struct results<D> *results, const float *weights, int pitch,
                                       const float *rows, int across, bool swizzled)
{
    for (int n = 0; n < COUNT; n += 4) {
        ddp_pack<float, 4> some[cut<D>::own];
#pragma unroll
        for (int i = 0; i < cut<D>::own; i++)
            some[i] = ddp_load<float, 4>(weights + i * pitch + n);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            float row[cut<D>::groups * cut<D>::wide];
            read_columns<D>(row, rows, n + l, across, swizzled);
#pragma unroll
            for (int i = 0; i < cut<D>::own; i++)
                add_row<D>(results->at[i], some[i].at[l], row);
        }
    }
}

template <int D> static __device__ inline void clear(struct results<D> *results)
{
    for (int i = 0; i < cut<D>::own; i++)
        for (int j = 0; j < cut<D>::groups * cut<D>::wide; j++)
            results->at[i][j] = 0;
}

/* Rows of the results to memory, times `factor`. */
template <int D, typename T>
static __device__ void store_row(const struct ddp_heads *g, T *to, const float *values, int across,
                                 float factor, bool add)
{
    for (int group = 0; group < cut<D>::groups; group++)
        for (int i = 0; i < cut<D>::wide; i++) {
            const int column = column_of<D>(across, group) + i;
            const float value = values[group * cut<D>::wide + i] * factor;
            if (column < g->size)
                ddp_put_one(to + column, value, add);
        }
}

/* Over the 16 threads of a row. */
static __device__ inline float row_max(float value)
{
    for (int lanes = TX / 2; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(DDP_FULL_MASK, value, lanes);
        value = other > value ? other : value;
    }
    return value;
}

static __device__ inline float row_sum(float value)
{
    for (int lanes = TX / 2; lanes > 0; lanes /= 2)
        value += __shfl_xor_sync(DDP_FULL_MASK, value, lanes);
    return value;
}

/* --- forward -------------------------------------------------------------------------------- */

/* The softmax of a thread's rows so far. */
template <int D> struct running {
    float max[cut<D>::own], sum[cut<D>::own];
};

/* Scores become exponentials below the new maximum, and what is there is brought to it. They go to
 * shared memory. */
template <int D>
static __device__ void take_in(const struct ddp_heads *g, int64_t row, struct running<D> *running,
                               struct results<D> *results,
                               float (&scores)[cut<D>::own][cut<D>::rows / TX], float *weights,
                               int64_t query, int64_t key)
{
    constexpr int rows = cut<D>::rows, own = cut<D>::own;
    const int across = (int)threadIdx.x % TX, down = (int)threadIdx.x / TX;
    for (int i = 0; i < own; i++) {
        const int64_t at = query + down * own + i;
        const int64_t first = g->bounded ? ddp_first_seen(g, row, (int)at) : 0;
        float max = -INFINITY, sum = 0;
        for (int j = 0; j < rows / TX; j++) {
            const int64_t column = key + across + j * TX;
            const bool seen = column <= at && column >= first;
            scores[i][j] = seen ? scores[i][j] * g->scale : -INFINITY;
            max = scores[i][j] > max ? scores[i][j] : max;
        }
        max = row_max(max);
        /* it stays infinite before the first key, and if all are NaN */
        max = max > running->max[i] ? max : running->max[i];
        const float old = running->max[i] == max ? 1 : expf(running->max[i] - max);
        for (int j = 0; j < rows / TX; j++) {
            const int64_t column = key + across + j * TX;
            const bool seen = column <= at && column >= first;
            const float e = seen ? expf(scores[i][j] - max) : 0;
            weights[(down * own + i) * rows + across + j * TX] = e;
            sum += e;
        }
        running->max[i] = max;
        running->sum[i] = running->sum[i] * old + row_sum(sum);
        for (int j = 0; j < cut<D>::groups * cut<D>::wide; j++)
            results->at[i][j] *= old;
    }
}

/* Arrays of forward. */
struct ddp_attention_queries {
    const void *q, *k, *v;
    void *y;
    float *lse;
};

template <int D, typename T>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(struct ddp_heads g, struct ddp_attention_queries a)
{
    constexpr int rows = cut<D>::rows, own = cut<D>::own;
    __shared__ __align__(16) float queries[rows * D], others[rows * D], weights[rows * rows];
    const int across = (int)threadIdx.x % TX, down = (int)threadIdx.x / TX;
    const struct ddp_head head = ddp_head_of(&g, g.first + blockIdx.x / g.blocks);
    /* the longest rows first, so that none is left over at the end */
    const int64_t query = (g.blocks - 1 - blockIdx.x % g.blocks) * rows;
    const int64_t first = g.bounded ? ddp_first_seen(&g, head.row, (int)query) / rows * rows : 0;
    const T *q = (const T *)a.q + head.q, *k = (const T *)a.k + head.k;
    const T *v = (const T *)a.v + head.v;
    struct results<D> results;
    struct running<D> running;
    clear<D>(&results);
    for (int i = 0; i < own; i++) {
        running.max[i] = -INFINITY;
        running.sum[i] = 0;
    }
    load_tile<D, rows, T>(&g, queries, q, g.q_stride, query, false);
    for (int64_t key = first; key <= query; key += rows) {
        float scores[own][rows / TX];
        load_tile<D, rows, T>(&g, others, k, g.k_stride, key, true);
        __syncthreads();
        products<D, own, rows / TX>(scores, queries, down * own, others, across, TX);
        take_in<D>(&g, head.row, &running, &results, scores, weights, query, key);
        __syncthreads();
        load_tile<D, rows, T>(&g, others, v, g.v_stride, key, false);
        __syncthreads();
        add_down<D, rows>(&results, weights + down * own * rows, rows, others, across, false);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < own; i++) {
        const int64_t at = query + down * own + i;
        if (at >= g.length)
            continue;
        store_row<D, T>(&g, (T *)a.y + head.y + at * head.y_stride, results.at[i], across,
                        1 / running.sum[i], false);
        if (a.lse && across == 0)
            a.lse[head.lse + at] = running.max[i] + logf(running.sum[i]);
    }
}

template <int D>
static void forward_launch(struct ddp_heads g, const struct ddp_attention_forward *args,
                           struct ddp_cuda *cuda)
{
    g.blocks = (g.length + cut<D>::rows - 1) / cut<D>::rows;
    const unsigned blocks = (unsigned)(g.count * g.blocks);
    const struct ddp_attention_queries a = {args->q, args->k, args->v, args->y, args->lse};
    if (args->shape.dtype == DDP_BF16)
        DDP_LAUNCH((forward_kernel<D, uint16_t>), blocks, THREADS, 0, cuda->stream, g, a);
    else
        DDP_LAUNCH((forward_kernel<D, float>), blocks, THREADS, 0, cuda->stream, g, a);
}

/* --- backward ------------------------------------------------------------------------------- */

/* What score . and dy . v of one pair become: the probability, and the gradient of the score. */
static __device__ inline void gradient_of(const struct ddp_heads *g, int64_t query, int64_t first,
                                          int64_t key, float lse, float mean, float score, float dp,
                                          float *p, float *gradient)
{
    const bool seen = key >= first && key <= query && query < g->length;
    *p = seen ? expf(score * g->scale - lse) : 0;
    *gradient = seen ? *p * (dp - mean) * g->scale : 0;
}

template <int D, typename T>
static __global__ void __launch_bounds__(THREADS)
    keys_kernel(struct ddp_heads g, struct ddp_attention_gradient b)
{
    constexpr int rows = cut<D>::rows, step = cut<D>::step, own = cut<D>::own;
    constexpr int mine = step > TY ? step / TY : 1; /* queries of a thread's scores */
    __shared__ __align__(16) float keys[rows * D], values[rows * D];
    __shared__ __align__(16) float queries[step * D], dys[step * D];
    __shared__ __align__(16) float p[step * rows], gradient[step * rows];
    const int across = (int)threadIdx.x % TX, down = (int)threadIdx.x / TX;
    const int64_t local = blockIdx.x / g.blocks * g.group; /* the first head in this launch */
    const struct ddp_head to = ddp_head_of(&g, g.first + local);
    const int64_t key = blockIdx.x % g.blocks * rows;
    const int64_t end = g.bounded ? ddp_end_of_seers(&g, to.row, (int)key + rows - 1) : g.length;
    struct results<D> dk, dv;
    clear<D>(&dk);
    clear<D>(&dv);
    load_tile<D, rows, T>(&g, keys, (const T *)b.k + to.k, g.k_stride, key, true);
    load_tile<D, rows, T>(&g, values, (const T *)b.v + to.v, g.v_stride, key, true);
    for (int64_t h = local; h < local + g.group; h++) {
        const struct ddp_head head = ddp_head_of(&g, g.first + h);
        const T *q = (const T *)b.q + head.q, *dy = (const T *)b.dy + head.y;
        for (int64_t query = key; query < end; query += step) {
            load_tile<D, step, T>(&g, queries, q, g.q_stride, query, false);
            load_tile<D, step, T>(&g, dys, dy, head.y_stride, query, false);
            __syncthreads();
            if (down * mine < step) {
                float score[mine][rows / TX], dp[mine][rows / TX];
                products<D, mine, rows / TX>(score, queries, down * mine, keys, across, TX);
                products<D, mine, rows / TX>(dp, dys, down * mine, values, across, TX);
                for (int i = 0; i < mine; i++) {
                    const int64_t at = query + down * mine + i;
                    const int64_t first = g.bounded ? ddp_first_seen(&g, to.row, (int)at) : 0;
                    const float lse = at < g.length ? b.lse[head.lse + at] : 0;
                    const float mean = at < g.length ? b.mean[h * g.length + at] : 0;
                    for (int j = 0; j < rows / TX; j++) {
                        const int column = across + j * TX, in = (down * mine + i) * rows + column;
                        gradient_of(&g, at, first, key + column, lse, mean, score[i][j], dp[i][j],
                                    p + in, gradient + in);
                    }
                }
            }
            __syncthreads();
            add_across<D, step>(&dv, p + down * own, rows, dys, across);
            add_across<D, step>(&dk, gradient + down * own, rows, queries, across);
            __syncthreads();
        }
    }
#pragma unroll
    for (int i = 0; i < own; i++) {
        const int64_t at = key + down * own + i;
        if (b.dk && at < g.length)
            store_row<D, T>(&g, (T *)b.dk + to.k + at * g.k_stride, dk.at[i], across, 1, b.add_k);
        if (b.dv && at < g.length)
            store_row<D, T>(&g, (T *)b.dv + to.v + at * g.v_stride, dv.at[i], across, 1, b.add_v);
    }
}

template <int D, typename T>
static __global__ void __launch_bounds__(THREADS)
    queries_kernel(struct ddp_heads g, struct ddp_attention_gradient b)
{
    constexpr int rows = cut<D>::rows, step = cut<D>::step, own = cut<D>::own;
    /* scores: a thread has one key and `mine` queries */
    constexpr int mine = rows * step >= THREADS ? rows * step / THREADS : 1;
    __shared__ __align__(16) float queries[rows * D], dys[rows * D];
    __shared__ __align__(16) float keys[step * D], values[step * D];
    __shared__ __align__(16) float gradient[step * rows];
    const int across = (int)threadIdx.x % TX, down = (int)threadIdx.x / TX;
    const int column = (int)threadIdx.x % step, row = (int)threadIdx.x / step * mine;
    const int64_t local = blockIdx.x / g.blocks;
    const struct ddp_head head = ddp_head_of(&g, g.first + local);
    const int64_t query = (g.blocks - 1 - blockIdx.x % g.blocks) * rows;
    const int64_t end = query + rows < g.length ? query + rows : g.length;
    const int64_t begin = g.bounded ? ddp_first_seen(&g, head.row, (int)query) / step * step : 0;
    const T *q = (const T *)b.q + head.q, *dy = (const T *)b.dy + head.y;
    const T *k = (const T *)b.k + head.k, *v = (const T *)b.v + head.v;
    struct results<D> dq;
    clear<D>(&dq);
    load_tile<D, rows, T>(&g, queries, q, g.q_stride, query, false);
    load_tile<D, rows, T>(&g, dys, dy, head.y_stride, query, false);
    float lse[mine], mean[mine];
    int first[mine];
    for (int i = 0; i < mine; i++) {
        const int64_t at = query + row + i;
        const bool there = row < rows && at < g.length;
        first[i] = g.bounded ? ddp_first_seen(&g, head.row, (int)at) : 0;
        lse[i] = there ? b.lse[head.lse + at] : 0;
        mean[i] = there ? b.mean[local * g.length + at] : 0;
    }
    for (int64_t key = begin; key < end; key += step) {
        load_tile<D, step, T>(&g, keys, k, g.k_stride, key, true);
        load_tile<D, step, T>(&g, values, v, g.v_stride, key, true);
        __syncthreads();
        if (row < rows) {
            float score[mine][1], dp[mine][1], p;
            products<D, mine, 1>(score, queries, row, keys, column, 0);
            products<D, mine, 1>(dp, dys, row, values, column, 0);
            for (int i = 0; i < mine; i++)
                gradient_of(&g, query + row + i, first[i], key + column, lse[i], mean[i],
                            score[i][0], dp[i][0], &p, gradient + (row + i) * step + column);
        }
        __syncthreads();
        add_down<D, step>(&dq, gradient + down * own * step, step, keys, across, true);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < own; i++)
        if (query + down * own + i < g.length)
            store_row<D, T>(&g, (T *)b.dq + head.q + (query + down * own + i) * g.q_stride,
                            dq.at[i], across, 1, b.add_q);
}

/* Queries first: what they write, one that is keys too adds to. */
template <int D, typename T>
static void launch_gradients(struct ddp_heads g, const struct ddp_attention_gradient *b,
                             struct ddp_cuda *cuda)
{
    g.blocks = (g.length + cut<D>::rows - 1) / cut<D>::rows;
    const unsigned blocks = (unsigned)(g.count * g.blocks);
    if (b->dq)
        DDP_LAUNCH((queries_kernel<D, T>), blocks, THREADS, 0, cuda->stream, g, *b);
    if (b->dk || b->dv)
        DDP_LAUNCH((keys_kernel<D, T>), blocks / (unsigned)g.group, THREADS, 0, cuda->stream, g,
                   *b);
}

template <int D>
static void backward_launch(const struct ddp_heads *g, const struct ddp_attention_gradient *b,
                            enum ddp_dtype dtype, struct ddp_cuda *cuda)
{
    if (dtype == DDP_BF16)
        launch_gradients<D, uint16_t>(*g, b, cuda);
    else
        launch_gradients<D, float>(*g, b, cuda);
}

/* --- choice --------------------------------------------------------------------------------- */

#define LARGEST 256 /* features of a head */

static enum ddp_status too_large(int64_t size)
{
    return ddp_fail(DDP_ERR_UNSUPPORTED, "attention: heads of %lld features; CUDA has at most %d",
                    (long long)size, LARGEST);
}

/* Are all arrays aligned to 16 bytes, and rows of bf16 too? */
static bool is_aligned(const struct ddp_heads *g, const void *const *arrays, int count)
{
    bool aligned = (g->q_stride | g->k_stride | g->v_stride) % 8 == 0;
    for (int i = 0; i < count; i++)
        aligned = aligned && ddp_aligned(arrays[i]);
    return aligned;
}

static void forward(const struct ddp_heads *g, const struct ddp_attention_forward *args,
                    struct ddp_cuda *cuda)
{
    const void *const arrays[] = {args->q, args->k, args->v, args->y};
    if (is_aligned(g, arrays, 4) && ddp_cuda_attention_has_mma(cuda, &args->shape))
        ddp_cuda_attention_mma_forward(*g, args, cuda);
    else if (g->size <= 32)
        forward_launch<32>(*g, args, cuda);
    else if (g->size <= 64)
        forward_launch<64>(*g, args, cuda);
    else if (g->size <= 128)
        forward_launch<128>(*g, args, cuda);
    else
        forward_launch<256>(*g, args, cuda);
}

static void backward(const struct ddp_heads *g, const struct ddp_attention_gradient *b,
                     const struct ddp_attention_shape *s, struct ddp_cuda *cuda)
{
    const void *const arrays[] = {b->q, b->k, b->v, b->dy, b->dq, b->dk, b->dv};
    if (is_aligned(g, arrays, 7) && ddp_cuda_attention_has_mma(cuda, s))
        ddp_cuda_attention_mma_backward(*g, b, s->dtype, cuda);
    else if (g->size <= 32)
        backward_launch<32>(g, b, s->dtype, cuda);
    else if (g->size <= 64)
        backward_launch<64>(g, b, s->dtype, cuda);
    else if (g->size <= 128)
        backward_launch<128>(g, b, s->dtype, cuda);
    else
        backward_launch<256>(g, b, s->dtype, cuda);
}

extern "C" enum ddp_status ddp_cuda_attention_forward(const struct ddp_attention_forward *args,
                                                      void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    enum ddp_status status = ddp_attention_check_forward(args);
    if (status || ddp_attention_is_empty(s))
        return status;
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (s->head_size > LARGEST)
        return too_large(s->head_size);
    struct ddp_heads g = ddp_heads_of(s);
    g.wide = g.wide && ddp_aligned(args->q) && ddp_aligned(args->k) && ddp_aligned(args->v);
    forward(&g, args, cuda);
    return ddp_cuda_launched(cuda, "attention");
}

extern "C" enum ddp_status ddp_cuda_attention_backward(const struct ddp_attention_backward *args,
                                                       void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    enum ddp_status status = ddp_attention_check_backward(args);
    if (status || ddp_attention_is_empty(s))
        return status;
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (s->head_size > LARGEST)
        return too_large(s->head_size);
    struct ddp_heads g = ddp_heads_of(s);
    g.wide = g.wide && ddp_aligned(args->q) && ddp_aligned(args->k) && ddp_aligned(args->v) &&
             ddp_aligned(args->dy);
    const int64_t all = g.count;
    const int64_t fit = (int64_t)(DDP_CUDA_SPARE_BYTES / sizeof(float)) / s->length / g.group;
    if (fit < 1)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "attention backward: rows of %lld tokens are too long",
                        (long long)s->length);
    float *mean = (float *)ddp_cuda_spare(cuda);
    const struct ddp_attention_gradient b = {args->q,
                                             args->k,
                                             args->v,
                                             args->dy,
                                             args->lse,
                                             mean,
                                             args->dq,
                                             args->dk,
                                             args->dv,
                                             args->accumulate_dq,
                                             args->accumulate_dk,
                                             args->accumulate_dv};
    for (; g.first < all && status == DDP_OK; g.first += fit * g.group) {
        g.count = all - g.first < fit * g.group ? all - g.first : fit * g.group;
        ddp_cuda_attention_means(&g, args, mean, cuda);
        backward(&g, &b, s, cuda);
        status = ddp_cuda_launched(cuda, "attention backward");
    }
    return status;
}

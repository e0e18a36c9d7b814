/* SPDX-License-Identifier: MIT
 *
 * Attention with a cache on a CUDA device; see cached.h. The first positions are stored, and done
 * by the attention without one. One position is bound by the bytes of its keys and values: a block
 * has one head of one sample, each of its warps every WARPS-th key with a softmax of its own, and
 * they are put together at the end, the first warp's first. */
#include "core/log.h"
#include "kernels/attention/cached.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"

#include <math.h>

#define WARPS   8
#define THREADS (WARPS * DDP_WARP)
#define LARGEST 256 /* features of a head */

/* One thread an element: T keys and values of each sample go to their places. */
static __global__ void __launch_bounds__(DDP_BLOCK)
    store_kernel(struct ddp_attention_cached args, int64_t count)
{
    const struct ddp_attention_shape *s = &args.shape;
    const int64_t at = ddp_first_of_pack(1), d = s->head_size, c = s->kv_heads * d;
    if (at >= count)
        return;
    const int64_t i = at % (2 * c), row = at / (2 * c); /* 2 C features of B T rows */
    const int64_t b = row / s->length, t = row % s->length;
    args.cache[b * args.cache_stride + (i / d * args.capacity + args.past + t) * d + i % d] =
        i < c ? args.k[row * s->k_stride + i] : args.v[row * s->v_stride + i - c];
}

/* The softmax of the keys that a warp has seen, and its part of y: N features of each lane. */
template <int N> struct decoded {
    float max, sum, y[N];
};

template <int N>
static __device__ inline void take_in(struct decoded<N> *to, const struct decoded<N> *from)
{
    const float max = fmaxf(to->max, from->max);
    const float own = to->max == max ? 1 : expf(to->max - max);
    const float other = from->max == max ? 1 : expf(from->max - max);
    to->max = max;
    to->sum = to->sum * own + from->sum * other;
#pragma unroll
    for (int i = 0; i < N; i++)
        to->y[i] = to->y[i] * own + from->y[i] * other;
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    decode_kernel(struct ddp_attention_cached args, int64_t first)
{
    __shared__ float parts[WARPS][N + 2][DDP_WARP]; /* lanes side by side, as the banks are */
    const int lane = (int)threadIdx.x % DDP_WARP, warp = (int)threadIdx.x / DDP_WARP;
    const int64_t d = args.shape.head_size, heads = args.shape.heads, kv = args.shape.kv_heads;
    const int64_t b = blockIdx.x / heads, h = blockIdx.x % heads;
    const float *query = args.q + b * args.shape.q_stride + h * d;
    const float *keys = args.cache + b * args.cache_stride + h / (heads / kv) * args.capacity * d;
    const float *values = keys + kv * args.capacity * d;
    const float scale = 1 / sqrtf((float)d);
    float q[N];
    struct decoded<N> part;
    part.max = -INFINITY;
    part.sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        q[i] = lane + i * DDP_WARP < d ? query[lane + i * DDP_WARP] : 0;
        part.y[i] = 0;
    }
    for (int64_t key = first + warp; key <= args.past; key += WARPS) {
        struct decoded<N> one;
        float score = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int64_t at = lane + i * DDP_WARP;
            score += at < d ? q[i] * keys[key * d + at] : 0;
            one.y[i] = at < d ? values[key * d + at] : 0;
        }
        one.max = ddp_warp_reduce<DDP_SUM>(score) * scale;
        one.sum = one.max - one.max + 1; /* NaN, also where a maximum does not show it */
        take_in<N>(&part, &one);
    }
    parts[warp][N][lane] = part.max;
    parts[warp][N + 1][lane] = part.sum;
#pragma unroll
    for (int i = 0; i < N; i++)
        parts[warp][i][lane] = part.y[i];
    __syncthreads();
    if (warp > 0)
        return;
    for (int other = 1; other < WARPS && first + other <= args.past; other++) {
        struct decoded<N> next;
        next.max = parts[other][N][lane];
        next.sum = parts[other][N + 1][lane];
#pragma unroll
        for (int i = 0; i < N; i++)
            next.y[i] = parts[other][i][lane];
        take_in<N>(&part, &next);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + i * DDP_WARP < d)
            args.y[(b * heads + h) * d + lane + i * DDP_WARP] = part.y[i] / part.sum;
}

static void decode(const struct ddp_attention_cached *args, struct ddp_cuda *cuda)
{
    const unsigned blocks = (unsigned)(args->shape.batch * args->shape.heads);
    const int64_t size = args->shape.head_size, first = ddp_attention_cached_first(args);
    if (size <= 32)
        DDP_LAUNCH(decode_kernel<1>, blocks, THREADS, 0, cuda->stream, *args, first);
    else if (size <= 64)
        DDP_LAUNCH(decode_kernel<2>, blocks, THREADS, 0, cuda->stream, *args, first);
    else if (size <= 128)
        DDP_LAUNCH(decode_kernel<4>, blocks, THREADS, 0, cuda->stream, *args, first);
    else
        DDP_LAUNCH(decode_kernel<8>, blocks, THREADS, 0, cuda->stream, *args, first);
}

extern "C" enum ddp_status ddp_cuda_attention_cached(const struct ddp_attention_cached *args,
                                                     void *stream)
{
    const struct ddp_attention_shape *s = &args->shape;
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_attention_check_cached(args);
    if (status || ddp_attention_is_empty(s))
        return status;
    if (s->head_size > LARGEST)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "attention: heads of %lld features; CUDA has at most %d",
                        (long long)s->head_size, LARGEST);
    const int64_t count = s->batch * s->length * 2 * s->kv_heads * s->head_size;
    DDP_LAUNCH(store_kernel, ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, *args,
               count);
    if (args->past > 0) {
        decode(args, cuda);
        return ddp_cuda_launched(cuda, "attention with a cache");
    }
    struct ddp_attention_forward first = {};
    first.shape = *s;
    first.q = args->q;
    first.k = args->k;
    first.v = args->v;
    first.y = args->y;
    return ddp_cuda_attention_forward(&first, cuda);
}

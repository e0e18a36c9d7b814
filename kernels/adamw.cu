/* SPDX-License-Identifier: MIT
 *
 * Adam and AdamW on a GPU; see adamw.h. One launch over the whole flat array, with the rounding of
 * the CPU's version, so with its bits. Bound: 28 bytes an element, 30 with the copy in bf16; the
 * division and the roots hide behind them. */
#include "kernels/adamw.h"
#include "kernels/adamw_factors.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/update.h"
#include "kernels/kernels_cuda.h"

struct adamw_arrays {
    float *weight;
    uint16_t *weight_bf16;
    const float *gradient;
    float *exp_avg, *exp_avg_sq;
    struct ddp_adamw_factors factors; /* with decay */
};

/* One element, each operation rounded as in adamw.c. */
static __device__ inline void update(float *w, float gradient, float *exp_avg, float *exp_avg_sq,
                                     const struct ddp_adamw_factors &f, bool spared)
{
    const float keep = spared ? 1 : f.keep, decay = spared ? 0 : f.decay;
    float g = ddp_product(f.scale, gradient);
    if (decay != 0) /* 0 * w would spread a weight that is not finite */
        g = g + ddp_product(decay, *w);
    const float way = g - *exp_avg;
    const float m =
        f.from_end ? g - ddp_product(way, 1 - f.lerp) : *exp_avg + ddp_product(f.lerp, way);
    const float v = ddp_product(f.beta2, *exp_avg_sq) + ddp_product(ddp_product(f.square, g), g);
    *exp_avg = m;
    *exp_avg_sq = v;
    *w = ddp_product(*w, keep) - ddp_product(f.step_size, m) / (sqrtf(v) / f.root + f.eps);
}

/* Thread t has W elements; those of a block lie together, so that they begin their search for a
 * range at the same one. */
template <int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    adamw(struct adamw_arrays a, struct ddp_cuda_part part)
{
    const int64_t block = part.begin + (int64_t)blockIdx.x * DDP_BLOCK * W;
    const int64_t at = block + (int64_t)threadIdx.x * W;
    int range = ddp_cuda_first_range(part, block);
    if (at + W <= part.end) {
        ddp_pack<float, W> w = ddp_load<float, W>(a.weight + at);
        ddp_pack<float, W> m = ddp_load<float, W>(a.exp_avg + at);
        ddp_pack<float, W> v = ddp_load<float, W>(a.exp_avg_sq + at);
        const ddp_pack<float, W> g = ddp_load<float, W>(a.gradient + at);
        for (int i = 0; i < W; i++)
            update(&w.at[i], g.at[i], &m.at[i], &v.at[i], a.factors,
                   ddp_cuda_spares(part, at + i, &range));
        ddp_store<float, W>(a.weight + at, w);
        ddp_store<float, W>(a.exp_avg + at, m);
        ddp_store<float, W>(a.exp_avg_sq + at, v);
        if (a.weight_bf16) {
            ddp_pack<uint16_t, W> rounded;
            for (int i = 0; i < W; i++)
                rounded.at[i] = ddp_cuda_bf16_of(w.at[i]);
            ddp_store<uint16_t, W>(a.weight_bf16 + at, rounded);
        }
        return;
    }
    for (int64_t i = at; i < part.end; i++) {
        update(a.weight + i, a.gradient[i], a.exp_avg + i, a.exp_avg_sq + i, a.factors,
               ddp_cuda_spares(part, i, &range));
        if (a.weight_bf16)
            a.weight_bf16[i] = ddp_cuda_bf16_of(a.weight[i]);
    }
}

static void launch(const struct adamw_arrays &arrays, const struct ddp_cuda_part &part,
                   bool aligned, struct ddp_cuda *cuda)
{
    const int64_t count = part.end - part.begin;
    if (aligned)
        DDP_LAUNCH((adamw<4>), ddp_cuda_blocks(count, 4 * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream,
                   arrays, part);
    else
        DDP_LAUNCH((adamw<1>), ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream,
                   arrays, part);
}

extern "C" enum ddp_status ddp_cuda_adamw(const struct ddp_adamw *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_adamw_check(args);
    if (status || args->count == 0)
        return status;
    struct adamw_arrays arrays;
    arrays.weight = args->weight;
    arrays.weight_bf16 = args->weight_bf16;
    arrays.gradient = args->gradient;
    arrays.exp_avg = args->exp_avg;
    arrays.exp_avg_sq = args->exp_avg_sq;
    arrays.factors = ddp_adamw_factors_of(args, true);
    const bool aligned = ddp_aligned(args->weight) && ddp_aligned(args->weight_bf16) &&
                         ddp_aligned(args->gradient) && ddp_aligned(args->exp_avg) &&
                         ddp_aligned(args->exp_avg_sq);
    struct ddp_cuda_part part;
    for (int64_t at = 0; at < args->count; at = part.end) {
        ddp_cuda_next_part(&part, at, args->count, args->no_decay, args->no_decay_count,
                           args->first);
        launch(arrays, part, aligned, cuda);
    }
    return ddp_cuda_launched(cuda, "adam");
}

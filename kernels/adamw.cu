/* SPDX-License-Identifier: MIT
 *
 * Adam and AdamW on a GPU; see adamw.h. One launch over the whole flat array, with the rounding of
 * the CPU's version, so with its bits. Bound: 28 bytes an element, 30 with the copy in bf16. An
 * element takes 100 instructions, and an H200 issues 170 in the time of its bytes: the root and the
 * divisions hide behind memory. A reciprocal root would have other bits than PyTorch's formula; the
 * division by f.root could be a product and two fused ones, since 1 / f.root is known before. */
#include "kernels/adamw.h"
#include "kernels/adamw_factors.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/update.h"
#include "kernels/kernels_cuda.h"

struct adamw_step {
    float *weight;
    uint16_t *weight_bf16;
    const float *gradient;
    float *exp_avg, *exp_avg_sq;
    struct ddp_adamw_factors f; /* with decay */
    const struct ddp_clipped *clipped;

    /* One element, each operation rounded as in adamw.c. */
    __device__ void update(float *w, float g, float *m, float *v, float scale, bool spared) const
    {
        const float keep = spared ? 1 : f.keep, decay = spared ? 0 : f.decay;
        g = ddp_product(scale, g);
        if (decay != 0) /* 0 * w would spread a weight that is not finite */
            g = g + ddp_product(decay, *w);
        const float way = g - *m;
        *m = f.from_end ? g - ddp_product(way, 1 - f.lerp) : *m + ddp_product(f.lerp, way);
        *v = ddp_product(f.beta2, *v) + ddp_product(ddp_product(f.square, g), g);
        *w = ddp_product(*w, keep) - ddp_product(f.step_size, *m) / (sqrtf(*v) / f.root + f.eps);
    }

    template <int W>
    __device__ void run(const struct ddp_cuda_part &part, int64_t at, int *range) const
    {
        ddp_pack<float, W> w = ddp_load<float, W>(weight + at);
        ddp_pack<float, W> m = ddp_load<float, W>(exp_avg + at);
        ddp_pack<float, W> v = ddp_load<float, W>(exp_avg_sq + at);
        const ddp_pack<float, W> g = ddp_load<float, W>(gradient + at);
        const float scale = clipped ? clipped->scale : f.scale;
        for (int i = 0; i < W; i++)
            update(&w.at[i], g.at[i], &m.at[i], &v.at[i], scale,
                   ddp_cuda_spares(part, at + i, range));
        ddp_store<float, W>(weight + at, w);
        ddp_store<float, W>(exp_avg + at, m);
        ddp_store<float, W>(exp_avg_sq + at, v);
        if (weight_bf16)
            ddp_cuda_store_bf16<W>(weight_bf16 + at, w);
    }
};

extern "C" enum ddp_status ddp_cuda_adamw(const struct ddp_adamw *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_adamw_check(args);
    if (status || args->count == 0)
        return status;
    struct adamw_step step;
    step.weight = args->weight;
    step.weight_bf16 = args->weight_bf16;
    step.gradient = args->gradient;
    step.exp_avg = args->exp_avg;
    step.exp_avg_sq = args->exp_avg_sq;
    step.f = ddp_adamw_factors_of(args, true);
    step.clipped = args->clipped;
    const bool aligned = ddp_aligned(args->weight) && ddp_aligned(args->weight_bf16) &&
                         ddp_aligned(args->gradient) && ddp_aligned(args->exp_avg) &&
                         ddp_aligned(args->exp_avg_sq);
    ddp_cuda_update(step, args->count, args->no_decay, args->no_decay_count, args->first, aligned,
                    cuda);
    return ddp_cuda_launched(cuda, "adam");
}

/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent on a GPU; see sgd.h. One launch over the whole flat array, with the
 * rounding of the CPU's version, so with its bits. Bound: 12 bytes an element, 20 with momentum, 2
 * more for the copy in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/update.h"
#include "kernels/kernels_cuda.h"
#include "kernels/sgd.h"

#include <math.h>

struct sgd_step {
    float *weight;
    uint16_t *weight_bf16;
    const float *gradient;
    float *velocity; /* NULL: no momentum */
    float own_scale, rate, momentum, weight_decay;
    const struct ddp_clipped *clipped;
    bool nesterov, first_step;

    /* One element, each operation rounded as in sgd.c. */
    __device__ void update(float *w, float g, float *v, float scale, float decay) const
    {
        g = ddp_product(scale, g) + ddp_product(decay, *w);
        if (velocity) {
            *v = first_step ? g : ddp_product(momentum, *v) + g;
            g = nesterov ? g + ddp_product(momentum, *v) : *v;
        }
        *w = *w - ddp_product(rate, g);
    }

    template <int W>
    __device__ void run(const struct ddp_cuda_part &part, int64_t at, int *range) const
    {
        ddp_pack<float, W> w = ddp_load<float, W>(weight + at), v = {};
        const ddp_pack<float, W> g = ddp_load<float, W>(gradient + at);
        const float scale = clipped ? clipped->scale : own_scale;
        if (velocity && !first_step)
            v = ddp_load<float, W>(velocity + at);
        for (int i = 0; i < W; i++)
            update(&w.at[i], g.at[i], &v.at[i], scale,
                   ddp_cuda_spares(part, at + i, range) ? 0 : weight_decay);
        ddp_store<float, W>(weight + at, w);
        if (velocity)
            ddp_store<float, W>(velocity + at, v);
        if (weight_bf16)
            ddp_cuda_store_bf16<W>(weight_bf16 + at, w);
    }
};

extern "C" enum ddp_status ddp_cuda_sgd(const struct ddp_sgd *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_sgd_check(args);
    if (status || args->count == 0)
        return status;
    struct sgd_step step;
    step.weight = args->weight;
    step.weight_bf16 = args->weight_bf16;
    step.gradient = args->gradient;
    step.velocity = args->momentum > 0 ? args->velocity : NULL;
    step.own_scale = args->scale;
    step.clipped = args->clipped;
    step.rate = args->rate;
    step.momentum = args->momentum;
    step.weight_decay = args->weight_decay;
    step.nesterov = args->nesterov;
    step.first_step = args->first_step;
    const bool aligned = ddp_aligned(args->weight) && ddp_aligned(args->weight_bf16) &&
                         ddp_aligned(args->gradient) && ddp_aligned(step.velocity);
    ddp_cuda_update(step, args->count, args->no_decay, args->no_decay_count, args->first, aligned,
                    cuda);
    return ddp_cuda_launched(cuda, "sgd");
}

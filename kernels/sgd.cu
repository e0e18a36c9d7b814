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

struct sgd_arrays {
    float *weight;
    uint16_t *weight_bf16;
    const float *gradient;
    float *velocity; /* NULL: no momentum */
    float scale, rate, momentum, weight_decay;
    bool nesterov, first_step;
};

/* One element, each operation rounded as in sgd.c. */
static __device__ inline void update(float *w, float gradient, float *velocity, float decay,
                                     const struct sgd_arrays &a)
{
    float g = ddp_product(a.scale, gradient) + ddp_product(decay, *w);
    if (a.velocity) {
        const float v = a.first_step ? g : ddp_product(a.momentum, *velocity) + g;
        *velocity = v;
        g = a.nesterov ? g + ddp_product(a.momentum, v) : v;
    }
    *w = *w - ddp_product(a.rate, g);
}

template <int W>
static __device__ inline void update_pack(const struct sgd_arrays &a,
                                          const struct ddp_cuda_part &part, int64_t at, int *range)
{
    ddp_pack<float, W> w = ddp_load<float, W>(a.weight + at), v;
    const ddp_pack<float, W> g = ddp_load<float, W>(a.gradient + at);
    for (int i = 0; i < W; i++)
        v.at[i] = 0;
    if (a.velocity && !a.first_step)
        v = ddp_load<float, W>(a.velocity + at);
    for (int i = 0; i < W; i++)
        update(&w.at[i], g.at[i], &v.at[i],
               ddp_cuda_spares(part, at + i, range) ? 0 : a.weight_decay, a);
    ddp_store<float, W>(a.weight + at, w);
    if (a.velocity)
        ddp_store<float, W>(a.velocity + at, v);
    if (a.weight_bf16) {
        ddp_pack<uint16_t, W> rounded;
        for (int i = 0; i < W; i++)
            rounded.at[i] = ddp_cuda_bf16_of(w.at[i]);
        ddp_store<uint16_t, W>(a.weight_bf16 + at, rounded);
    }
}

template <int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    sgd(struct sgd_arrays arrays, struct ddp_cuda_part part)
{
    const int64_t block = part.begin + (int64_t)blockIdx.x * DDP_BLOCK * W;
    const int64_t at = block + (int64_t)threadIdx.x * W;
    int range = ddp_cuda_first_range(part, block);
    if (at + W <= part.end)
        update_pack<W>(arrays, part, at, &range);
    else
        for (int64_t i = at; i < part.end; i++)
            update_pack<1>(arrays, part, i, &range);
}

static void launch(const struct sgd_arrays &arrays, const struct ddp_cuda_part &part, bool aligned,
                   struct ddp_cuda *cuda)
{
    const int64_t count = part.end - part.begin;
    if (aligned)
        DDP_LAUNCH((sgd<4>), ddp_cuda_blocks(count, 4 * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream,
                   arrays, part);
    else
        DDP_LAUNCH((sgd<1>), ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, arrays,
                   part);
}

extern "C" enum ddp_status ddp_cuda_sgd(const struct ddp_sgd *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_sgd_check(args);
    if (status || args->count == 0)
        return status;
    struct sgd_arrays arrays;
    arrays.weight = args->weight;
    arrays.weight_bf16 = args->weight_bf16;
    arrays.gradient = args->gradient;
    arrays.velocity = args->momentum > 0 ? args->velocity : NULL;
    arrays.scale = args->scale;
    arrays.rate = args->rate;
    arrays.momentum = args->momentum;
    arrays.weight_decay = args->weight_decay;
    arrays.nesterov = args->nesterov;
    arrays.first_step = args->first_step;
    const bool aligned = ddp_aligned(args->weight) && ddp_aligned(args->weight_bf16) &&
                         ddp_aligned(args->gradient) && ddp_aligned(arrays.velocity);
    struct ddp_cuda_part part;
    for (int64_t at = 0; at < args->count; at = part.end) {
        ddp_cuda_next_part(&part, at, args->count, args->no_decay, args->no_decay_count,
                           args->first);
        launch(arrays, part, aligned, cuda);
    }
    return ddp_cuda_launched(cuda, "sgd");
}

/* SPDX-License-Identifier: MIT
 *
 * Dropout on a GPU; see dropout.h. A thread makes the four numbers of one counter and drops the
 * four elements that they belong to: the mask has the bits of the CPU's. Bound: 8 bytes an element
 * (12 accumulating); ten rounds of Philox hide behind them. */
#include "core/philox.h"
#include "kernels/cuda.h"
#include "kernels/dropout.h"
#include "kernels/kernels_cuda.h"

#include <math.h>

struct dropout_pass {
    int64_t count;
    uint32_t seed, layer, shard, step;
    const uint32_t *place;
    uint32_t threshold; /* the upper 24 bits of a number: an element below it is dropped */
    float scale;
    const float *x;
    float *y;
    bool accumulate;
};

/* core/philox.h's ddp_philox() for a device. */
static __device__ inline void philox(uint32_t numbers[4], uint64_t place,
                                     const struct dropout_pass *pass)
{
    uint32_t c0 = (uint32_t)place, c1 = (uint32_t)(place >> 32);
    uint32_t c2 = pass->place ? pass->place[0] : pass->shard;
    uint32_t c3 = pass->place ? pass->place[1] : pass->step;
    uint32_t k0 = pass->seed, k1 = pass->layer;
    for (int round = 0; round < DDP_PHILOX_ROUNDS; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    numbers[0] = c0;
    numbers[1] = c1;
    numbers[2] = c2;
    numbers[3] = c3;
}

static __device__ inline float dropped(const struct dropout_pass *pass, float x, uint32_t number)
{
    return number >> 8 >= pass->threshold ? ddp_product(x, pass->scale) : 0;
}

/* A thread has four elements in either case: they share a counter. */
template <bool WHOLE> static __global__ void drop(struct dropout_pass pass)
{
    const int64_t at = ddp_first_of_pack(4);
    if (at >= pass.count)
        return;
    uint32_t numbers[4];
    philox(numbers, (uint64_t)at / 4, &pass);
    if (WHOLE && at + 4 <= pass.count) {
        ddp_pack<float, 4> value = ddp_load<float, 4>(pass.x + at);
        for (int i = 0; i < 4; i++)
            value.at[i] = dropped(&pass, value.at[i], numbers[i]);
        if (pass.accumulate) {
            const ddp_pack<float, 4> old = ddp_load<float, 4>(pass.y + at);
            for (int i = 0; i < 4; i++)
                value.at[i] = old.at[i] + value.at[i];
        }
        ddp_store<float, 4>(pass.y + at, value);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (at + i < pass.count) {
            const float value = dropped(&pass, pass.x[at + i], numbers[i]);
            pass.y[at + i] = pass.accumulate ? pass.y[at + i] + value : value;
        }
}

static enum ddp_status check(const struct ddp_dropout *args)
{
    if (!(args->probability >= 0 && args->probability < 1))
        return ddp_fail(DDP_ERR_INVALID, "dropout: probability %g is not in [0, 1)",
                        (double)args->probability);
    if (args->count < 0 || (args->count > 0 && (!args->x || !args->y)))
        return ddp_fail(DDP_ERR_INVALID, "dropout: bad arguments (%lld elements)",
                        (long long)args->count);
    return DDP_OK;
}

extern "C" enum ddp_status ddp_cuda_dropout(const struct ddp_dropout *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = check(args);
    if (status || args->count == 0)
        return status;
    struct dropout_pass pass;
    pass.count = args->count;
    pass.seed = args->seed;
    pass.layer = args->layer;
    pass.shard = args->shard;
    pass.step = args->step;
    pass.place = args->place;
    pass.threshold = (uint32_t)ceil((double)args->probability * 16777216.0);
    pass.scale = 1 / (1 - args->probability);
    pass.x = (const float *)args->x;
    pass.y = (float *)args->y;
    pass.accumulate = args->accumulate;
    const unsigned blocks = ddp_cuda_blocks(args->count, 4 * DDP_BLOCK);
    if (ddp_aligned(args->x) && ddp_aligned(args->y))
        DDP_LAUNCH((drop<true>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((drop<false>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    return ddp_cuda_launched(cuda, "dropout");
}

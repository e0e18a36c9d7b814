/* SPDX-License-Identifier: MIT
 *
 * Dropout on a GPU; see dropout.h. A thread makes the four numbers of a counter and drops the
 * four elements that they belong to, of bf16 eight of two counters: the mask has the bits of the
 * CPU's. Bound: 8 bytes an element (12 accumulating), half of that in bf16; ten rounds of Philox
 * for every four elements hide behind them. */
#include "core/philox.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dropout.h"
#include "kernels/kernels_cuda.h"

#include <math.h>

struct dropout_pass {
    int64_t count;
    uint32_t seed, layer, shard, step;
    const uint32_t *place;
    uint32_t threshold; /* the upper 24 bits of a number: an element below it is dropped */
    float scale;
    const void *x;
    void *y;
    bool accumulate;
};

/* The four numbers of a counter. */
static __device__ inline void draw(uint32_t numbers[4], uint64_t place,
                                   const struct dropout_pass *pass)
{
    const uint32_t counter[4] = {(uint32_t)place, (uint32_t)(place >> 32),
                                 pass->place ? pass->place[0] : pass->shard,
                                 pass->place ? pass->place[1] : pass->step};
    const uint32_t key[2] = {pass->seed, pass->layer};
    ddp_philox(numbers, counter, key);
}

static __device__ inline float dropped(const struct dropout_pass *pass, float x, uint32_t number)
{
    return number >> 8 >= pass->threshold ? ddp_product(x, pass->scale) : 0;
}

/* Drops what the numbers of its elements say; W elements, the first one behind `at` elements. */
template <int W>
static __device__ inline void drop_values(const struct dropout_pass *pass, int64_t at,
                                          ddp_pack<float, W> *values)
{
#pragma unroll
    for (int first = 0; first < W; first += 4) {
        uint32_t numbers[4];
        draw(numbers, (uint64_t)(at + first) / 4, pass);
        for (int i = 0; i < 4; i++)
            values->at[first + i] = dropped(pass, values->at[first + i], numbers[i]);
    }
}

/* A thread has whole counters in either case. */
template <typename T, bool WHOLE> static __global__ void drop(struct dropout_pass pass)
{
    constexpr int W = ddp_width<T>;
    const T *x = (const T *)pass.x;
    T *y = (T *)pass.y;
    const int64_t at = ddp_first_of_pack(W);
    if (at >= pass.count)
        return;
    ddp_pack<float, W> values = {};
    if (WHOLE && at + W <= pass.count) {
        values = ddp_read<W>(x + at);
        drop_values<W>(&pass, at, &values);
        ddp_put(y + at, values, pass.accumulate);
        return;
    }
    for (int i = 0; i < W; i++)
        if (at + i < pass.count)
            values.at[i] = ddp_read_one(x + at + i);
    drop_values<W>(&pass, at, &values);
    for (int i = 0; i < W; i++)
        if (at + i < pass.count)
            ddp_put_one(y + at + i, values.at[i], pass.accumulate);
}

template <typename T> static void launch(const struct dropout_pass &pass, struct ddp_cuda *cuda)
{
    const unsigned blocks = ddp_cuda_blocks(pass.count, ddp_width<T> * DDP_BLOCK);
    if (ddp_aligned(pass.x) && ddp_aligned(pass.y))
        DDP_LAUNCH((drop<T, true>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
    else
        DDP_LAUNCH((drop<T, false>), blocks, DDP_BLOCK, 0, cuda->stream, pass);
}

extern "C" enum ddp_status ddp_cuda_dropout(const struct ddp_dropout *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_dropout_check(args);
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
    pass.x = args->x;
    pass.y = args->y;
    pass.accumulate = args->accumulate;
    DDP_BY_DTYPE(args->dtype, launch, pass, cuda);
    return ddp_cuda_launched(cuda, "dropout");
}

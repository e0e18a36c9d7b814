/* SPDX-License-Identifier: MIT
 *
 * Sums of arrays on a GPU; see add.h. Bound: 4 bytes an element for each array that is read and 4
 * for y: 12 for a residual connection. */
#include "kernels/add.h"
#include "kernels/cuda.h"
#include "kernels/kernels_cuda.h"

/* Every element is read before any of its pack is written: y may be a or b. */
template <int W>
static __global__ void add(int64_t count, const float *a, const float *b, float *y, bool accumulate)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count) {
        ddp_pack<float, W> sum = ddp_load<float, W>(a + at);
        if (b) {
            const ddp_pack<float, W> other = ddp_load<float, W>(b + at);
            for (int i = 0; i < W; i++)
                sum.at[i] += other.at[i];
        }
        if (accumulate) {
            const ddp_pack<float, W> old = ddp_load<float, W>(y + at);
            for (int i = 0; i < W; i++)
                sum.at[i] = old.at[i] + sum.at[i];
        }
        ddp_store<float, W>(y + at, sum);
        return;
    }
    for (int64_t i = at; i < count; i++) {
        const float sum = b ? a[i] + b[i] : a[i];
        y[i] = accumulate ? y[i] + sum : sum;
    }
}

static enum ddp_status check(const struct ddp_add *args)
{
    if (args->count < 0 || (args->count > 0 && (!args->a || !args->y)))
        return ddp_fail(DDP_ERR_INVALID, "add: bad arguments (%lld elements)",
                        (long long)args->count);
    return DDP_OK;
}

extern "C" enum ddp_status ddp_cuda_add(const struct ddp_add *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = check(args);
    if (status || args->count == 0 || (!args->b && !args->accumulate && args->a == args->y))
        return status;
    if (ddp_aligned(args->a) && ddp_aligned(args->b) && ddp_aligned(args->y))
        DDP_LAUNCH((add<4>), ddp_cuda_blocks(args->count, 4 * DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, args->count, (const float *)args->a, (const float *)args->b,
                   (float *)args->y, args->accumulate);
    else
        DDP_LAUNCH((add<1>), ddp_cuda_blocks(args->count, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream,
                   args->count, (const float *)args->a, (const float *)args->b, (float *)args->y,
                   args->accumulate);
    return ddp_cuda_launched(cuda, "add");
}

/* SPDX-License-Identifier: MIT
 *
 * Rounding to bf16 on a GPU; see bf16.h. Bound: 6 bytes an element. */
#include "kernels/bf16.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"

/* Eight elements a thread, so that its store has 16 bytes too. */
template <int W> static __global__ void convert(int64_t count, const float *x, uint16_t *y)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count) {
        ddp_pack<uint16_t, W> rounded;
        const ddp_pack<float, W> value = ddp_read<W>(x + at);
        for (int i = 0; i < W; i++)
            rounded.at[i] = ddp_cuda_bf16_of(value.at[i]);
        ddp_store(y + at, rounded);
        return;
    }
    for (int64_t i = at; i < count; i++)
        y[i] = ddp_cuda_bf16_of(x[i]);
}

extern "C" enum ddp_status ddp_cuda_to_bf16(const struct ddp_to_bf16 *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    const enum ddp_status status = ddp_to_bf16_check(args);
    if (status || n == 0)
        return status;
    if (ddp_aligned(args->x) && ddp_aligned(args->y))
        DDP_LAUNCH((convert<8>), ddp_cuda_blocks(n, 8 * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   args->x, args->y);
    else
        DDP_LAUNCH((convert<1>), ddp_cuda_blocks(n, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   args->x, args->y);
    return ddp_cuda_launched(cuda, "to bf16");
}

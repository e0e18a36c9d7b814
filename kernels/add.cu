/* SPDX-License-Identifier: MIT
 *
 * Sums of arrays on a GPU; see add.h. Bound: 4 bytes an element, or 2 of bf16, for each array that
 * is read and for y: 12 or 6 for a residual connection. */
#include "kernels/add.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"

/* Every element is read before any of its pack is written: y may be a or b. */
template <typename T, int W>
static __device__ inline void add_pack(int64_t at, const T *a, const T *b, T *y, bool accumulate)
{
    ddp_pack<float, W> sum = ddp_read<W>(a + at);
    if (b) {
        const ddp_pack<float, W> other = ddp_read<W>(b + at);
        for (int i = 0; i < W; i++)
            sum.at[i] += other.at[i];
    }
    ddp_put(y + at, sum, accumulate);
}

template <typename T, int W>
static __global__ void add(int64_t count, const T *a, const T *b, T *y, bool accumulate)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count)
        add_pack<T, W>(at, a, b, y, accumulate);
    else
        for (int64_t i = at; i < count; i++)
            add_pack<T, 1>(i, a, b, y, accumulate);
}

template <typename T> static void launch(const struct ddp_add *args, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    const T *a = (const T *)args->a, *b = (const T *)args->b;
    T *y = (T *)args->y;
    const int64_t n = args->count;
    if (ddp_aligned(a) && ddp_aligned(b) && ddp_aligned(y))
        DDP_LAUNCH((add<T, W>), ddp_cuda_blocks(n, W * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n, a,
                   b, y, args->accumulate);
    else
        DDP_LAUNCH((add<T, 1>), ddp_cuda_blocks(n, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n, a, b,
                   y, args->accumulate);
}

extern "C" enum ddp_status ddp_cuda_add(const struct ddp_add *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_add_check(args);
    if (status || args->count == 0 || (!args->b && !args->accumulate && args->a == args->y))
        return status;
    if (args->dtype == DDP_BF16)
        launch<uint16_t>(args, cuda);
    else
        launch<float>(args, cuda);
    return ddp_cuda_launched(cuda, "add");
}

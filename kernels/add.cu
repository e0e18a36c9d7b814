/* SPDX-License-Identifier: MIT
 *
 * Sums of arrays on a GPU; see add.h. Bound: 4 bytes an element, or 2 of bf16, for each array that
 * is read and for y: 12 or 6 for a residual connection. */
#include "kernels/add.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"

/* Every element is read before any of its pack is written: y may be a or b. */
template <typename T> struct add_elements {
    const T *a, *b;
    T *y;
    float scale;
    bool accumulate;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> sum = ddp_read<W>(a + at);
        if (b) {
            const ddp_pack<float, W> other = ddp_read<W>(b + at);
            for (int i = 0; i < W; i++)
                sum.at[i] += other.at[i];
        }
        if (scale != 0)
            for (int i = 0; i < W; i++)
                sum.at[i] = ddp_product(sum.at[i], scale);
        ddp_put(y + at, sum, accumulate);
    }
};

template <typename T> static void launch(const struct ddp_add *args, struct ddp_cuda *cuda)
{
    const add_elements<T> add = {(const T *)args->a, (const T *)args->b, (T *)args->y, args->scale,
                                 args->accumulate};
    const bool aligned = ddp_aligned(add.a) && ddp_aligned(add.b) && ddp_aligned(add.y);
    ddp_cuda_elements<ddp_width<T>>(add, args->count, aligned, cuda);
}

extern "C" enum ddp_status ddp_cuda_add(const struct ddp_add *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_add_check(args);
    if (status || args->count == 0 ||
        (!args->b && args->scale == 0 && !args->accumulate && args->a == args->y))
        return status;
    DDP_BY_DTYPE(args->dtype, launch, args, cuda);
    return ddp_cuda_launched(cuda, "add");
}

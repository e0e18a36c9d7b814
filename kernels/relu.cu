/* SPDX-License-Identifier: MIT
 *
 * ReLU on a GPU; see relu.h. Bound: 8 bytes an element forward, 12 backward (16 accumulating);
 * half of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/relu.h"

/* Not max(): NaN must stay NaN. */
template <typename T> struct relu_elements {
    const T *x;
    T *y;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> value = ddp_read<W>(x + at);
        for (int i = 0; i < W; i++)
            value.at[i] = value.at[i] < 0 ? 0 : value.at[i];
        ddp_write<W>(y + at, value);
    }
};

template <typename T> struct relu_gradients {
    const T *y, *dy;
    T *dx;
    bool accumulate;

    template <int W> __device__ void run(int64_t at) const
    {
        const ddp_pack<float, W> out = ddp_read<W>(y + at);
        ddp_pack<float, W> value = ddp_read<W>(dy + at);
        for (int i = 0; i < W; i++)
            value.at[i] = out.at[i] > 0 ? value.at[i] : 0;
        ddp_put(dx + at, value, accumulate);
    }
};

template <typename T>
static void launch_forward(const struct ddp_relu_forward *args, struct ddp_cuda *cuda)
{
    const relu_elements<T> relu = {(const T *)args->x, (T *)args->y};
    ddp_cuda_elements<ddp_width<T>>(relu, args->count, ddp_aligned(relu.x) && ddp_aligned(relu.y),
                                    cuda);
}

template <typename T>
static void launch_backward(const struct ddp_relu_backward *args, struct ddp_cuda *cuda)
{
    const relu_gradients<T> relu = {(const T *)args->y, (const T *)args->dy, (T *)args->dx,
                                    args->accumulate_dx};
    const bool aligned = ddp_aligned(relu.y) && ddp_aligned(relu.dy) && ddp_aligned(relu.dx);
    ddp_cuda_elements<ddp_width<T>>(relu, args->count, aligned, cuda);
}

extern "C" enum ddp_status ddp_cuda_relu_forward(const struct ddp_relu_forward *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_relu_check_forward(args);
    if (status || args->count == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch_forward, args, cuda);
    return ddp_cuda_launched(cuda, "relu");
}

extern "C" enum ddp_status ddp_cuda_relu_backward(const struct ddp_relu_backward *args,
                                                  void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_relu_check_backward(args);
    if (status || args->count == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch_backward, args, cuda);
    return ddp_cuda_launched(cuda, "relu backward");
}

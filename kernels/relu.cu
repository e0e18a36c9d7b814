/* SPDX-License-Identifier: MIT
 *
 * ReLU on a GPU; see relu.h. Bound: 8 bytes an element forward, 12 backward (16 accumulating);
 * half of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/relu.h"

/* Not max(): NaN must stay NaN. */
static __device__ inline float relu(float x)
{
    return x < 0 ? 0 : x;
}

template <typename T, int W>
static __device__ inline void forward_pack(int64_t at, const T *x, T *y)
{
    ddp_pack<float, W> value = ddp_read<W>(x + at);
    for (int i = 0; i < W; i++)
        value.at[i] = relu(value.at[i]);
    ddp_write<W>(y + at, value);
}

template <typename T, int W> static __global__ void forward(int64_t count, const T *x, T *y)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count)
        forward_pack<T, W>(at, x, y);
    else
        for (int64_t i = at; i < count; i++)
            forward_pack<T, 1>(i, x, y);
}

template <typename T, int W>
static __device__ inline void backward_pack(int64_t at, const T *y, const T *dy, T *dx,
                                            bool accumulate)
{
    const ddp_pack<float, W> out = ddp_read<W>(y + at);
    ddp_pack<float, W> value = ddp_read<W>(dy + at);
    for (int i = 0; i < W; i++)
        value.at[i] = out.at[i] > 0 ? value.at[i] : 0;
    ddp_put(dx + at, value, accumulate);
}

template <typename T, int W>
static __global__ void backward(int64_t count, const T *y, const T *dy, T *dx, bool accumulate)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count)
        backward_pack<T, W>(at, y, dy, dx, accumulate);
    else
        for (int64_t i = at; i < count; i++)
            backward_pack<T, 1>(i, y, dy, dx, accumulate);
}

template <typename T>
static void launch_forward(const struct ddp_relu_forward *args, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    const T *x = (const T *)args->x;
    T *y = (T *)args->y;
    const int64_t n = args->count;
    if (ddp_aligned(x) && ddp_aligned(y))
        DDP_LAUNCH((forward<T, W>), ddp_cuda_blocks(n, W * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream,
                   n, x, y);
    else
        DDP_LAUNCH((forward<T, 1>), ddp_cuda_blocks(n, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n, x,
                   y);
}

template <typename T>
static void launch_backward(const struct ddp_relu_backward *args, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    const T *y = (const T *)args->y, *dy = (const T *)args->dy;
    T *dx = (T *)args->dx;
    const int64_t n = args->count;
    if (ddp_aligned(y) && ddp_aligned(dy) && ddp_aligned(dx))
        DDP_LAUNCH((backward<T, W>), ddp_cuda_blocks(n, W * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream,
                   n, y, dy, dx, args->accumulate_dx);
    else
        DDP_LAUNCH((backward<T, 1>), ddp_cuda_blocks(n, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   y, dy, dx, args->accumulate_dx);
}

extern "C" enum ddp_status ddp_cuda_relu_forward(const struct ddp_relu_forward *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    const enum ddp_status status = ddp_relu_check_forward(args);
    if (status || n == 0)
        return status;
    if (args->dtype == DDP_BF16)
        launch_forward<uint16_t>(args, cuda);
    else
        launch_forward<float>(args, cuda);
    return ddp_cuda_launched(cuda, "relu");
}

extern "C" enum ddp_status ddp_cuda_relu_backward(const struct ddp_relu_backward *args,
                                                  void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    const enum ddp_status status = ddp_relu_check_backward(args);
    if (status || n == 0)
        return status;
    if (args->dtype == DDP_BF16)
        launch_backward<uint16_t>(args, cuda);
    else
        launch_backward<float>(args, cuda);
    return ddp_cuda_launched(cuda, "relu backward");
}

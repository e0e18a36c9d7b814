/* SPDX-License-Identifier: MIT
 *
 * ReLU on a GPU; see relu.h. Bound: 8 bytes an element forward, 12 backward (16 accumulating). */
#include "kernels/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/relu.h"

/* Not max(): NaN must stay NaN. */
static __device__ inline float relu(float x)
{
    return x < 0 ? 0 : x;
}

template <int W> static __global__ void forward(int64_t count, const float *x, float *y)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count) {
        ddp_pack<float, W> value = ddp_load<float, W>(x + at);
        for (int i = 0; i < W; i++)
            value.at[i] = relu(value.at[i]);
        ddp_store<float, W>(y + at, value);
        return;
    }
    for (int64_t i = at; i < count; i++)
        y[i] = relu(x[i]);
}

template <int W>
static __global__ void backward(int64_t count, const float *y, const float *dy, float *dx,
                                bool accumulate)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count) {
        const ddp_pack<float, W> out = ddp_load<float, W>(y + at);
        ddp_pack<float, W> value = ddp_load<float, W>(dy + at);
        for (int i = 0; i < W; i++)
            value.at[i] = out.at[i] > 0 ? value.at[i] : 0;
        if (accumulate) {
            const ddp_pack<float, W> old = ddp_load<float, W>(dx + at);
            for (int i = 0; i < W; i++)
                value.at[i] = old.at[i] + value.at[i];
        }
        ddp_store<float, W>(dx + at, value);
        return;
    }
    for (int64_t i = at; i < count; i++) {
        const float value = y[i] > 0 ? dy[i] : 0;
        dx[i] = accumulate ? dx[i] + value : value;
    }
}

extern "C" enum ddp_status ddp_cuda_relu_forward(const struct ddp_relu_forward *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    if (n < 0 || (n > 0 && (!args->x || !args->y)))
        return ddp_fail(DDP_ERR_INVALID, "relu: bad arguments (%lld elements)", (long long)n);
    if (n == 0)
        return DDP_OK;
    if (ddp_aligned(args->x) && ddp_aligned(args->y))
        DDP_LAUNCH((forward<4>), ddp_cuda_blocks(n, 4 * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   (const float *)args->x, (float *)args->y);
    else
        DDP_LAUNCH((forward<1>), ddp_cuda_blocks(n, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   (const float *)args->x, (float *)args->y);
    return ddp_cuda_launched(cuda, "relu");
}

extern "C" enum ddp_status ddp_cuda_relu_backward(const struct ddp_relu_backward *args,
                                                  void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    if (n < 0 || (n > 0 && (!args->y || !args->dy || !args->dx)))
        return ddp_fail(DDP_ERR_INVALID, "relu backward: bad arguments (%lld elements)",
                        (long long)n);
    if (n == 0)
        return DDP_OK;
    if (ddp_aligned(args->y) && ddp_aligned(args->dy) && ddp_aligned(args->dx))
        DDP_LAUNCH((backward<4>), ddp_cuda_blocks(n, 4 * DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   (const float *)args->y, (const float *)args->dy, (float *)args->dx,
                   args->accumulate_dx);
    else
        DDP_LAUNCH((backward<1>), ddp_cuda_blocks(n, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, n,
                   (const float *)args->y, (const float *)args->dy, (float *)args->dx,
                   args->accumulate_dx);
    return ddp_cuda_launched(cuda, "relu backward");
}

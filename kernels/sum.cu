/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements and its gradient on a GPU; see sum.h. Each block adds the elements of a fixed
 * part in double, one block adds these sums. Bound: 4 bytes an element, or 2
 * of bf16, in both passes. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/sum.h"

#define PARTS 1024 /* at most */
#define LEAST 4096 /* elements of a part */

template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK)
    sum_part(int64_t count, int64_t size, const T *x, double *parts)
{
    __shared__ double partial[DDP_WARPS_MAX];
    const int64_t begin = (int64_t)blockIdx.x * size;
    const int64_t end = count - begin < size ? count : begin + size;
    double sum = 0;
#pragma unroll 8
    for (int64_t i = begin + threadIdx.x; i < end; i += DDP_BLOCK)
        sum += (double)ddp_read_one(x + i);
    sum = ddp_warps_reduce<DDP_BLOCK / DDP_WARP, DDP_SUM>(sum, partial);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(DDP_BLOCK)
    sum_parts(int count, const double *parts, float *y)
{
    __shared__ double partial[DDP_WARPS_MAX];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < count; i += DDP_BLOCK)
        sum += parts[i];
    sum = ddp_warps_reduce<DDP_BLOCK / DDP_WARP, DDP_SUM>(sum, partial);
    if (threadIdx.x == 0)
        *y = (float)sum;
}

template <typename T> struct sum_gradients {
    const float *dy;
    T *dx;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> values;
        for (int i = 0; i < W; i++)
            values.at[i] = *dy;
        ddp_write<W>(dx + at, values);
    }
};

template <typename T>
static void launch_fill(const struct ddp_sum_backward *args, struct ddp_cuda *cuda)
{
    const sum_gradients<T> fill = {args->dy, (T *)args->dx};
    ddp_cuda_elements<ddp_width<T>>(fill, args->count, ddp_aligned(fill.dx), cuda);
}

extern "C" enum ddp_status ddp_cuda_sum_forward(const struct ddp_sum_forward *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    const enum ddp_status status = ddp_sum_check_forward(args);
    if (status)
        return status;
    const int64_t size = n > (int64_t)PARTS * LEAST ? (n + PARTS - 1) / PARTS : LEAST;
    const unsigned parts = ddp_cuda_blocks(n, size);
    double *sums = (double *)cuda->workspace;
    if (parts > 0 && args->dtype == DDP_BF16)
        DDP_LAUNCH((sum_part<uint16_t>), parts, DDP_BLOCK, 0, cuda->stream, n, size,
                   (const uint16_t *)args->x, sums);
    else if (parts > 0)
        DDP_LAUNCH((sum_part<float>), parts, DDP_BLOCK, 0, cuda->stream, n, size,
                   (const float *)args->x, sums);
    DDP_LAUNCH(sum_parts, 1, DDP_BLOCK, 0, cuda->stream, (int)parts, sums, args->y);
    return ddp_cuda_launched(cuda, "sum");
}

extern "C" enum ddp_status ddp_cuda_sum_backward(const struct ddp_sum_backward *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_sum_check_backward(args);
    if (status || args->count == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch_fill, args, cuda);
    return ddp_cuda_launched(cuda, "sum backward");
}

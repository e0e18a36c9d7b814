/* SPDX-License-Identifier: MIT
 *
 * What both ways of doing attention on a CUDA device need before they go back; see
 * attention_cuda.h. Bound by memory: y and its gradient are read once, in accesses of 16 bytes. */
#include "kernels/attention/cuda.h"

#define THREADS 128

/* dy . y of a query, by as many lanes as have packs of W of it, at most a warp. */
template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
    mean_kernel(struct ddp_heads g, int lanes, const T *y, const T *dy, float *mean)
{
    const int64_t query = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / lanes;
    const int lane = (int)threadIdx.x % lanes;
    float sum = 0;
    if (query < g.count * g.length) {
        const struct ddp_head head = ddp_head_of(&g, g.first + query / g.length);
        const int64_t at = head.y + query % g.length * head.y_stride;
        for (int64_t j = lane * W; j < g.size; j += lanes * W) {
            const ddp_pack<float, W> a = ddp_read<W>(y + at + j), b = ddp_read<W>(dy + at + j);
            for (int i = 0; i < W; i++)
                sum += a.at[i] * b.at[i];
        }
    }
    for (int step = lanes / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(DDP_FULL_MASK, sum, step);
    if (lane == 0 && query < g.count * g.length)
        mean[query] = sum;
}

template <typename T, int W>
static void launch_means(const struct ddp_heads *g, const struct ddp_attention_backward *args,
                         float *mean, struct ddp_cuda *cuda)
{
    int lanes = 1;
    while (lanes < DDP_WARP && lanes * W < g->size)
        lanes *= 2;
    DDP_LAUNCH((mean_kernel<T, W>), ddp_cuda_blocks(g->count * g->length * lanes, THREADS), THREADS,
               0, cuda->stream, *g, lanes, (const T *)args->y, (const T *)args->dy, mean);
}

template <typename T>
static void means(const struct ddp_heads *g, const struct ddp_attention_backward *args, float *mean,
                  struct ddp_cuda *cuda)
{
    if (g->size % ddp_width<T> == 0 && ddp_aligned(args->y) && ddp_aligned(args->dy))
        launch_means<T, ddp_width<T>>(g, args, mean, cuda);
    else
        launch_means<T, 1>(g, args, mean, cuda);
}

void ddp_cuda_attention_means(const struct ddp_heads *g, const struct ddp_attention_backward *args,
                              float *mean, struct ddp_cuda *cuda)
{
    DDP_BY_DTYPE(args->dtype, means, g, args, mean, cuda);
}

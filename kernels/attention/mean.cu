/* SPDX-License-Identifier: MIT
 *
 * What both ways of doing attention on a CUDA device need before they go back; see
 * cuda.h. Bound by memory: y and its gradient are read once, in accesses of 16 bytes. */
#include "kernels/attention/cuda.h"

#define THREADS 128

/* dy . y of a query, by as many lanes as have packs of W of it, at most a warp. A head is done by
 * `blocks` blocks: they find its place once. */
template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
    mean_kernel(struct ddp_heads g, unsigned blocks, int log2_lanes, const T *y, const T *dy,
                float *mean)
{
    const unsigned own = blockIdx.x / blocks;
    const int lanes = 1 << log2_lanes, lane = (int)threadIdx.x & (lanes - 1);
    const int64_t query =
        (int64_t)(blockIdx.x % blocks) * (THREADS >> log2_lanes) + (threadIdx.x >> log2_lanes);
    float sum = 0;
    if (query < g.length) {
        const struct ddp_head head = ddp_head_of(&g, g.first + own);
        const int64_t at = head.y + query * head.y_stride;
        for (int j = lane * W; j < g.size; j += lanes * W) {
            const ddp_pack<float, W> a = ddp_read<W>(y + at + j), b = ddp_read<W>(dy + at + j);
            for (int i = 0; i < W; i++)
                sum += a.at[i] * b.at[i];
        }
    }
    for (int step = lanes / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(DDP_FULL_MASK, sum, step);
    if (lane == 0 && query < g.length)
        mean[own * g.length + query] = sum;
}

template <typename T, int W>
static void launch_means(const struct ddp_heads *g, const struct ddp_attention_backward *args,
                         float *mean, struct ddp_cuda *cuda)
{
    int log2_lanes = 0;
    while (1 << log2_lanes < DDP_WARP && ((int64_t)W << log2_lanes) < g->size)
        log2_lanes++;
    const unsigned blocks = ddp_cuda_blocks(g->length, THREADS >> log2_lanes);
    DDP_LAUNCH((mean_kernel<T, W>), (unsigned)(g->count * blocks), THREADS, 0, cuda->stream, *g,
               blocks, log2_lanes, (const T *)args->y, (const T *)args->dy, mean);
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
    DDP_BY_DTYPE(args->shape.dtype, means, g, args, mean, cuda);
}

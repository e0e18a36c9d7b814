/* SPDX-License-Identifier: MIT
 *
 * Sums of squares on a GPU; see norm.h. Half a warp has a block: sixteen running sums by place in
 * the block, then their sum from the first to the last, as the CPU's, with its bits (a square of
 * floats is exact in double). Bound: 4 bytes an element. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/norm.h"

#define LANES 16
#define AHEAD 16 /* elements of a lane whose loads are on their way together */

static __global__ void __launch_bounds__(DDP_BLOCK)
    squares(const float *x, double *sums, int64_t begin, int64_t end, int64_t first, int64_t blocks)
{
    __shared__ double lanes[DDP_BLOCK];
    const int lane = (int)threadIdx.x % LANES;
    const int64_t own = (int64_t)blockIdx.x * (DDP_BLOCK / LANES) + (int)threadIdx.x / LANES;
    const int64_t block = first + own, at = block * DDP_NORM_BLOCK;
    double sum = 0;
    if (own < blocks)
        for (int64_t i = at + lane; i < at + DDP_NORM_BLOCK; i += AHEAD * LANES) {
            float value[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const int64_t place = i + j * LANES;
                value[j] = place >= begin && place < end ? x[place - begin] : 0;
            }
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                sum += (double)value[j] * (double)value[j];
        }
    lanes[threadIdx.x] = sum;
    __syncthreads();
    if (lane != 0 || own >= blocks)
        return;
    sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += lanes[threadIdx.x + i];
    sums[block] = sum;
}

extern "C" enum ddp_status ddp_cuda_norm(const struct ddp_norm *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_norm_check(args);
    if (status || args->begin == args->end)
        return status;
    const int64_t first = args->begin / DDP_NORM_BLOCK;
    const int64_t blocks = ddp_norm_blocks(args->end) - first;
    DDP_LAUNCH(squares, ddp_cuda_blocks(blocks, DDP_BLOCK / LANES), DDP_BLOCK, 0, cuda->stream,
               args->x, args->sums, args->begin, args->end, first, blocks);
    return ddp_cuda_launched(cuda, "norm");
}

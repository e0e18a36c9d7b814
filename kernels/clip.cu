/* SPDX-License-Identifier: MIT
 *
 * See clip.h. One block; the sums of GPT-2 124M are 240 KB. The order of the sum is the CPU's. */
#include "kernels/clip.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"

static __global__ void __launch_bounds__(DDP_CLIP_LANES) clip_kernel(struct ddp_clip args)
{
    __shared__ double partial[DDP_WARPS_MAX];
    double sum = 0;
#pragma unroll 8
    for (int64_t b = threadIdx.x; b < args.blocks; b += DDP_CLIP_LANES)
        sum += args.sums[b];
    sum = ddp_warps_reduce<DDP_CLIP_LANES / DDP_WARP, DDP_SUM>(sum, partial);
    if (threadIdx.x == 0)
        ddp_clip_decide(&args, sum, args.loss[0], args.targets > 0 ? args.loss[1] : 0,
                        args.clipped);
}

extern "C" enum ddp_status ddp_cuda_clip(const struct ddp_clip *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_clip_check(args);
    if (status)
        return status;
    DDP_LAUNCH(clip_kernel, 1, DDP_CLIP_LANES, 0, cuda->stream, *args);
    return ddp_cuda_launched(cuda, "clip");
}

/* SPDX-License-Identifier: MIT
 *
 * Joining partial sums on a GPU; see merge.h. Bound: 4 bytes an element for each partial sum, the
 * leaf and the destination. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/merge.h"

#define AHEAD 4 /* partial sums whose loads are on their way together */

struct merge_elements {
    int partial_count;
    const float *partials[DDP_MERGE_MAX];
    const float *leaf;
    float *destination;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> sum = ddp_load<float, W>(leaf + at);
        for (int first = 0; first < partial_count; first += AHEAD) {
            ddp_pack<float, W> left[AHEAD];
#pragma unroll
            for (int p = 0; p < AHEAD; p++)
                if (first + p < partial_count)
                    left[p] = ddp_load<float, W>(partials[first + p] + at);
#pragma unroll
            for (int p = 0; p < AHEAD; p++)
                if (first + p < partial_count)
                    for (int i = 0; i < W; i++)
                        sum.at[i] = left[p].at[i] + sum.at[i];
        }
        ddp_store<float, W>(destination + at, sum);
    }
};

extern "C" enum ddp_status ddp_cuda_merge(const struct ddp_merge *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_merge_check(args);
    if (status || args->count == 0 || (args->partial_count == 0 && args->leaf == args->destination))
        return status;
    if (args->partial_count == 0) { /* by the GPU's copy engines: operations go on beside it */
        const size_t bytes = (size_t)args->count * sizeof(float);
        cudaError_t error =
            cudaMemcpyAsync(args->destination, args->leaf, bytes, cudaMemcpyDefault, cuda->stream);
        return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "merge");
    }
    struct merge_elements merge;
    bool aligned = ddp_aligned(args->leaf) && ddp_aligned(args->destination);
    for (int p = 0; p < DDP_MERGE_MAX; p++) {
        merge.partials[p] = p < args->partial_count ? args->partials[p] : NULL;
        aligned = aligned && ddp_aligned(merge.partials[p]);
    }
    merge.partial_count = args->partial_count;
    merge.leaf = args->leaf;
    merge.destination = args->destination;
    ddp_cuda_elements<4>(merge, args->count, aligned, cuda);
    return ddp_cuda_launched(cuda, "merge");
}

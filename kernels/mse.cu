/* SPDX-License-Identifier: MIT
 *
 * Mean squared error and its gradient on a GPU; see mse.h. Each block adds the squares of a fixed
 * part in double and writes its gradients, one block adds these sums. Bound: 12 bytes an element
 * with the gradient, 8 without; 8 and 6 where the output is in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/kernels_cuda.h"
#include "kernels/mse.h"

#define PARTS 1024 /* at most */
#define LEAST 4096 /* elements of a part */

template <typename T> struct mse_pass {
    int64_t count, size; /* elements in all, and of a part */
    const T *x;
    const float *targets;
    const float *dloss; /* or NULL */
    T *dx;              /* may be x */
    double *parts;
};

template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK) mse_part(struct mse_pass<T> pass)
{
    __shared__ double partial[DDP_WARPS_MAX];
    const int64_t begin = (int64_t)blockIdx.x * pass.size;
    const int64_t end = pass.count - begin < pass.size ? pass.count : begin + pass.size;
    const float factor = 2.0f * (pass.dloss ? *pass.dloss : 1.0f) / (float)pass.count;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += DDP_BLOCK) {
        const float x = ddp_read_one(pass.x + i), target = pass.targets[i];
        const double difference = (double)x - (double)target;
        sum += difference * difference;
        if (pass.dx)
            ddp_write_one(pass.dx + i, factor * (x - target));
    }
    sum = ddp_warps_reduce<DDP_BLOCK / DDP_WARP, DDP_SUM>(sum, partial);
    if (threadIdx.x == 0)
        pass.parts[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(DDP_BLOCK)
    mse_mean(int parts, const double *sums, int64_t count, float *loss)
{
    __shared__ double partial[DDP_WARPS_MAX];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < parts; i += DDP_BLOCK)
        sum += sums[i];
    sum = ddp_warps_reduce<DDP_BLOCK / DDP_WARP, DDP_SUM>(sum, partial);
    if (threadIdx.x == 0)
        *loss = count > 0 ? (float)(sum / (double)count) : 0;
}

template <typename T>
static void launch_parts(const struct ddp_mse *args, unsigned parts, int64_t size,
                         struct ddp_cuda *cuda)
{
    const struct mse_pass<T> pass = {
        args->count, size, (const T *)args->x, args->targets, args->dloss, (T *)args->dx,
            (double *)cuda->workspace
    };
    if (parts > 0)
        DDP_LAUNCH((mse_part<T>), parts, DDP_BLOCK, 0, cuda->stream, pass);
}

extern "C" enum ddp_status ddp_cuda_mse(const struct ddp_mse *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const int64_t n = args->count;
    const enum ddp_status status = ddp_mse_check(args);
    if (status)
        return status;
    const int64_t size = n > (int64_t)PARTS * LEAST ? (n + PARTS - 1) / PARTS : LEAST;
    const unsigned parts = ddp_cuda_blocks(n, size);
    DDP_BY_DTYPE(args->dtype, launch_parts, args, parts, size, cuda);
    DDP_LAUNCH(mse_mean, 1, DDP_BLOCK, 0, cuda->stream, (int)parts, (double *)cuda->workspace, n,
               args->loss);
    return ddp_cuda_launched(cuda, "mse");
}

/* SPDX-License-Identifier: MIT
 *
 * See self_test.h. The numbers are small: products are exact in bf16 too, in any order. */
#include "kernels/cuda/self_test.h"

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ptx.h"

#define SIDE 32 /* of all matrices */

enum path { LIBRARY_F32, LIBRARY_BF16, LIBRARY_BF16_F32, PLAIN, MMA, MMA_F16, PATHS };

static const char *const path_names[PATHS] = {
    "cublasLt in float32", "cublasLt in bf16",        "cublasLt in bf16 with a float32 result",
    "the plain kernel",    "the tensor-core kernels", "the tensor-core kernels in float16"};

static __host__ __device__ inline int left(int row, int k)
{
    return (row * 3 + k * 5 + row * k) % 5 - 2;
}

static __host__ __device__ inline int right(int k, int column)
{
    return (k * 7 + column * 2 + k * column / 3) % 5 - 2;
}

static __host__ __device__ inline int exact(int row, int column)
{
    int sum = 0;
    for (int k = 0; k < SIDE; k++)
        sum += left(row, k) * right(k, column);
    return sum;
}

template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK) test_fill_kernel(T *a, T *b)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    ddp_cuda_round_to(&a[i], (float)left(i / SIDE, i % SIDE));
    ddp_cuda_round_to(&b[i], (float)right(i / SIDE, i % SIDE));
}

/* Tells of one wrong element, of the first path that has one. Spoils the result for the next. */
template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK)
    test_compare_kernel(T *c, int path, struct ddp_cuda_fault *fault)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const float value = ddp_cuda_f32_of(c[i]);
    ddp_cuda_round_to(&c[i], -1000.0F);
    if (value == (float)exact(i / SIDE, i % SIDE) || fault->code != DDP_CUDA_FAULT_NONE)
        return;
    fault->row = i;
    fault->value = path;
    fault->code = DDP_CUDA_FAULT_PRODUCT;
}

/* One warp, tile by tile; ptx.h has what its lanes hold. */
template <typename T>
static __global__ void __launch_bounds__(DDP_WARP)
    test_mma_kernel(const uint16_t *a, const uint16_t *b, float *c)
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    for (int row = 0; row < SIDE; row += 16)
        for (int column = 0; column < SIDE; column += 8) {
            float sums[4] = {};
            for (int k = 0; k < SIDE; k += 16) {
                unsigned x[4], y[2];
                for (int i = 0; i < 4; i++)
                    x[i] = *reinterpret_cast<const unsigned *>(
                        &a[(row + g + i % 2 * 8) * SIDE + k + 2 * t + i / 2 * 8]);
                for (int i = 0; i < 2; i++) {
                    const uint16_t *from = &b[(k + 2 * t + 8 * i) * SIDE + column + g];
                    y[i] = (unsigned)from[0] | (unsigned)from[SIDE] << 16;
                }
                ddp_mma<T>(sums, x, y[0], y[1]);
            }
            for (int i = 0; i < 4; i++)
                c[(row + g + i / 2 * 8) * SIDE + column + 2 * t + i % 2] = sums[i];
        }
}

/* Puts one path, and the comparison, on the stream. *done: false where it does not exist. */
static enum ddp_status test_path(int path, struct ddp_cuda *cuda, bool *done)
{
    const unsigned blocks = ddp_cuda_blocks(SIDE * SIDE, DDP_BLOCK);
    float *const a = (float *)ddp_cuda_spare(cuda), *const b = a + SIDE * SIDE;
    float *const c = b + SIDE * SIDE;
    struct ddp_cuda_gemm gemm = {};
    gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = SIDE;
    gemm.type = path == LIBRARY_F32 || path == PLAIN ? DDP_F32
                : path == MMA_F16                    ? DDP_F16
                                                     : DDP_BF16;
    gemm.result = path == LIBRARY_BF16 ? DDP_BF16 : DDP_F32;
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    *done = true;
    if (gemm.type == DDP_F32)
        DDP_LAUNCH((test_fill_kernel<float>), blocks, DDP_BLOCK, 0, cuda->stream, a, b);
    else if (gemm.type == DDP_F16)
        DDP_LAUNCH((test_fill_kernel<ddp_half>), blocks, DDP_BLOCK, 0, cuda->stream, (ddp_half *)a,
                   (ddp_half *)b);
    else
        DDP_LAUNCH((test_fill_kernel<uint16_t>), blocks, DDP_BLOCK, 0, cuda->stream, (uint16_t *)a,
                   (uint16_t *)b);
    enum ddp_status status = DDP_OK;
    if (path == PLAIN)
        status = ddp_cuda_gemm_plain(&gemm, cuda);
    else if (path == MMA)
        DDP_LAUNCH(test_mma_kernel<uint16_t>, 1, DDP_WARP, 0, cuda->stream, (const uint16_t *)a,
                   (const uint16_t *)b, c);
    else if (path == MMA_F16)
        DDP_LAUNCH(test_mma_kernel<ddp_half>, 1, DDP_WARP, 0, cuda->stream, (const uint16_t *)a,
                   (const uint16_t *)b, c);
    else
        status = ddp_cuda_gemm_library(&gemm, cuda, done);
    if (status != DDP_OK || !*done)
        return status;
    if (gemm.result == DDP_F32)
        DDP_LAUNCH((test_compare_kernel<float>), blocks, DDP_BLOCK, 0, cuda->stream, c, path,
                   cuda->fault);
    else
        DDP_LAUNCH((test_compare_kernel<uint16_t>), blocks, DDP_BLOCK, 0, cuda->stream,
                   (uint16_t *)c, path, cuda->fault);
    return ddp_cuda_launched(cuda, "self-test");
}

static enum ddp_status wrong(const struct ddp_cuda *cuda, int path, int element)
{
    const char *what = "use another version of cuBLAS or of the driver, or plain kernels, with "
                       "DDP_CUDA_PLAIN=1 in the environment";
    if (path == PLAIN || path >= MMA)
        what = "this build is not for this model of GPU: configure with NVCC_GENCODE set for it, "
               "and build again";
    return ddp_fail(DDP_ERR_SYSTEM,
                    "--device cuda: GPU %d, of compute capability %d.%d, multiplies wrongly by %s "
                    "(row %d, column %d of a small product): %s",
                    cuda->index, cuda->capability / 10, cuda->capability % 10, path_names[path],
                    element / SIDE, element % SIDE, what);
}

extern "C" enum ddp_status ddp_cuda_self_test(struct ddp_cuda *cuda,
                                              const struct ddp_cuda_fault *fault)
{
    const bool synchronous = cuda->synchronous, library = !ddp_cuda_gemm_is_plain(cuda);
    enum ddp_status status = DDP_OK;
    cuda->synchronous = false; /* once, at the end */
    for (int path = 0; status == DDP_OK && path < PATHS; path++) {
        bool done = path == PLAIN || library;
        if (done && path >= MMA)
            done = ddp_cuda_has_mma_code(cuda, path == MMA ? DDP_BF16 : DDP_F16);
        if (done)
            status = test_path(path, cuda, &done);
        if (status == DDP_OK)
            ddp_log(DDP_LOG_DEBUG, "GPU %d: self-test: %s: %s", cuda->index, path_names[path],
                    done ? "run" : "not used");
    }
    cuda->synchronous = synchronous;
    ddp_cuda_gemm_forget(cuda);
    const cudaError_t error = cudaStreamSynchronize(cuda->stream);
    if (status == DDP_OK && error != cudaSuccess)
        status = ddp_cuda_failed(error, "--device cuda: self-test");
    if (status == DDP_OK && fault->code == DDP_CUDA_FAULT_PRODUCT)
        status = wrong(cuda, fault->value, (int)fault->row);
    return status;
}

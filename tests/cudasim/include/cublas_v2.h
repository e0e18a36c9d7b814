/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed; see library_types.h. */
#ifndef CUDASIM_CUBLAS_V2_H
#define CUDASIM_CUBLAS_V2_H

#define CUDASIM_CUBLAS_STATUSES(X)                                                                 \
    X(CUBLAS_STATUS_SUCCESS, 0)                                                                    \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                            \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                               \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                              \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                              \
    X(CUBLAS_STATUS_MAPPING_ERROR, 11)                                                             \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                          \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                            \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                             \
    X(CUBLAS_STATUS_LICENSE_ERROR, 16)

#define CUDASIM_CUBLAS_OPERATIONS(X)                                                               \
    X(CUBLAS_OP_N, 0)                                                                              \
    X(CUBLAS_OP_T, 1)                                                                              \
    X(CUBLAS_OP_C, 2)

#define CUDASIM_CUBLAS_COMPUTE_TYPES(X)                                                            \
    X(CUBLAS_COMPUTE_16F, 64)                                                                      \
    X(CUBLAS_COMPUTE_32F, 68)                                                                      \
    X(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                                                             \
    X(CUBLAS_COMPUTE_64F, 70)                                                                      \
    X(CUBLAS_COMPUTE_32F_FAST_16F, 74)                                                             \
    X(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                                                            \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

#define CUDASIM_CUBLAS_POINTER_MODES(X)                                                            \
    X(CUBLAS_POINTER_MODE_HOST, 0)                                                                 \
    X(CUBLAS_POINTER_MODE_DEVICE, 1)

#define CUDASIM_CUBLAS_MATH_MODES(X)                                                               \
    X(CUBLAS_DEFAULT_MATH, 0)                                                                      \
    X(CUBLAS_PEDANTIC_MATH, 2)                                                                     \
    X(CUBLAS_TF32_TENSOR_OP_MATH, 3)

#define CUDASIM_CUBLAS_ALGORITHMS(X)                                                               \
    X(CUBLAS_GEMM_DEFAULT, -1)                                                                     \
    X(CUBLAS_GEMM_DEFAULT_TENSOR_OP, 99)

#ifndef CUDASIM_CHECK
#include <cuda_runtime_api.h>
#include <library_types.h>

#include <stdint.h>

typedef enum { CUDASIM_CUBLAS_STATUSES(CUDASIM_CONSTANT) } cublasStatus_t;
typedef enum { CUDASIM_CUBLAS_OPERATIONS(CUDASIM_CONSTANT) } cublasOperation_t;
typedef enum { CUDASIM_CUBLAS_COMPUTE_TYPES(CUDASIM_CONSTANT) } cublasComputeType_t;
typedef enum { CUDASIM_CUBLAS_POINTER_MODES(CUDASIM_CONSTANT) } cublasPointerMode_t;
typedef enum { CUDASIM_CUBLAS_MATH_MODES(CUDASIM_CONSTANT) } cublasMath_t;
typedef enum { CUDASIM_CUBLAS_ALGORITHMS(CUDASIM_CONSTANT) } cublasGemmAlgo_t;
typedef struct cublasContext *cublasHandle_t;

#define cublasCreate         cublasCreate_v2
#define cublasDestroy        cublasDestroy_v2
#define cublasGetVersion     cublasGetVersion_v2
#define cublasSetStream      cublasSetStream_v2
#define cublasGetStream      cublasGetStream_v2
#define cublasSetWorkspace   cublasSetWorkspace_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasSgemm          cublasSgemm_v2
#endif

#ifdef __cplusplus
extern "C" {
#endif

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes);
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
const char *cublasGetStatusName(cublasStatus_t status);
const char *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const float *alpha,
                              const float *a, int lda, const float *b, int ldb, const float *beta,
                              float *c, int ldc);
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long int stride_a, const float *b, int ldb,
                                         long long int stride_b, const float *beta, float *c,
                                         int ldc, long long int stride_c, int batch_count);
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *a, cudaDataType a_type, int lda, const void *b,
                            cudaDataType b_type, int ldb, const void *beta, void *c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType a_type,
                                          int lda, long long int stride_a, const void *b,
                                          cudaDataType b_type, int ldb, long long int stride_b,
                                          const void *beta, void *c, cudaDataType c_type, int ldc,
                                          long long int stride_c, int batch_count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm);

#ifdef __cplusplus
}
#endif

#endif

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

#ifndef CUDASIM_CHECK
#include <cuda_runtime_api.h>
#include <library_types.h>

#include <stdint.h>

typedef enum { CUDASIM_CUBLAS_STATUSES(CUDASIM_CONSTANT) } cublasStatus_t;
typedef enum { CUDASIM_CUBLAS_OPERATIONS(CUDASIM_CONSTANT) } cublasOperation_t;
typedef enum { CUDASIM_CUBLAS_COMPUTE_TYPES(CUDASIM_CONSTANT) } cublasComputeType_t;
typedef enum { CUDASIM_CUBLAS_POINTER_MODES(CUDASIM_CONSTANT) } cublasPointerMode_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

const char *cublasGetStatusName(cublasStatus_t status);
const char *cublasGetStatusString(cublasStatus_t status);

#ifdef __cplusplus
}
#endif

#endif

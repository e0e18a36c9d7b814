/* SPDX-License-Identifier: MIT
 *
 * Compiles, where CUDA is installed, only if the mini headers agree with NVIDIA's: every constant
 * is compared, and every mini prototype follows the real one of the same function, so that a
 * difference is an error. Not run. */
#include "config.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#ifdef CUDASIM_REAL_NCCL
#include <nccl.h>
#endif
#ifdef CUDASIM_REAL_CUDNN
#include <cudnn.h>

#include "kernels/cuda/cudnn_graph.h"
#endif

#define CUDASIM_CHECK
#include "tests/cudasim/include/cuda_runtime_api.h"
#include "tests/cudasim/include/library_types.h"
#include "tests/cudasim/include/cublas_v2.h"
#include "tests/cudasim/include/cublasLt.h"
#ifdef CUDASIM_REAL_NCCL
#include "tests/cudasim/include/nccl.h"
#endif
#ifdef CUDASIM_REAL_CUDNN
#include "tests/cudasim/include/cudnn/cudnn.h"
#endif

#define SAME(name, value) _Static_assert((long)(name) == (long)(value), #name);

CUDASIM_ERRORS(SAME)
CUDASIM_COPIES(SAME)
CUDASIM_MEMORY_TYPES(SAME)
CUDASIM_CAPTURE_MODES(SAME)
CUDASIM_CAPTURE_STATUSES(SAME)
CUDASIM_FUNCTION_ATTRIBUTES(SAME)
CUDASIM_DEVICE_ATTRIBUTES(SAME)
CUDASIM_FLAGS(SAME)
CUDASIM_DATA_TYPES(SAME)
CUDASIM_CUBLAS_STATUSES(SAME)
CUDASIM_CUBLAS_OPERATIONS(SAME)
CUDASIM_CUBLAS_COMPUTE_TYPES(SAME)
CUDASIM_CUBLAS_POINTER_MODES(SAME)
CUDASIM_LT_ORDERS(SAME)
CUDASIM_LT_POINTER_MODES(SAME)
CUDASIM_LT_LAYOUT_ATTRIBUTES(SAME)
CUDASIM_LT_MATMUL_ATTRIBUTES(SAME)
CUDASIM_LT_EPILOGUES(SAME)
CUDASIM_LT_PREFERENCES(SAME)
CUDASIM_LT_REDUCTIONS(SAME)
#ifdef CUDASIM_REAL_NCCL
CUDASIM_NCCL_RESULTS(SAME)
CUDASIM_NCCL_OPERATORS(SAME)
CUDASIM_NCCL_TYPES(SAME)
CUDASIM_NCCL_NUMBERS(SAME)
#endif
#ifdef CUDASIM_REAL_CUDNN
CUDASIM_CUDNN_STATUSES(SAME)
CUDASIM_CUDNN_DATA_TYPES(SAME)
CUDASIM_CUDNN_CONVOLUTIONS(SAME)
CUDASIM_CUDNN_POINTWISE(SAME)
CUDASIM_CUDNN_NOTES(SAME)
CUDASIM_CUDNN_HEURISTICS(SAME)
CUDASIM_CUDNN_TYPES(SAME)
CUDASIM_CUDNN_DESCRIPTORS(SAME)
CUDASIM_CUDNN_ATTRIBUTES(SAME)

/* The functions that are looked up when the plugin runs have NVIDIA's types. */
#define SAME_TYPE(member, function)                                                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((struct ddp_cudnn_calls *)0)->member), \
                                                __typeof__(&(function))),                          \
                   #function);

SAME_TYPE(version, cudnnGetVersion)
SAME_TYPE(error_string, cudnnGetErrorString)
SAME_TYPE(create, cudnnCreate)
SAME_TYPE(destroy, cudnnDestroy)
SAME_TYPE(set_stream, cudnnSetStream)
SAME_TYPE(create_descriptor, cudnnBackendCreateDescriptor)
SAME_TYPE(destroy_descriptor, cudnnBackendDestroyDescriptor)
SAME_TYPE(set, cudnnBackendSetAttribute)
SAME_TYPE(get, cudnnBackendGetAttribute)
SAME_TYPE(finalize, cudnnBackendFinalize)
SAME_TYPE(execute, cudnnBackendExecute)
#endif

int main(void)
{
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed; see library_types.h. */
#ifndef CUDASIM_CUBLASLT_H
#define CUDASIM_CUBLASLT_H

#define CUDASIM_LT_ORDERS(X)                                                                       \
    X(CUBLASLT_ORDER_COL, 0)                                                                       \
    X(CUBLASLT_ORDER_ROW, 1)

#define CUDASIM_LT_POINTER_MODES(X)                                                                \
    X(CUBLASLT_POINTER_MODE_HOST, 0)                                                               \
    X(CUBLASLT_POINTER_MODE_DEVICE, 1)

#define CUDASIM_LT_LAYOUT_ATTRIBUTES(X)                                                            \
    X(CUBLASLT_MATRIX_LAYOUT_TYPE, 0)                                                              \
    X(CUBLASLT_MATRIX_LAYOUT_ORDER, 1)                                                             \
    X(CUBLASLT_MATRIX_LAYOUT_ROWS, 2)                                                              \
    X(CUBLASLT_MATRIX_LAYOUT_COLS, 3)                                                              \
    X(CUBLASLT_MATRIX_LAYOUT_LD, 4)                                                                \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                       \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)

#define CUDASIM_LT_MATMUL_ATTRIBUTES(X)                                                            \
    X(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0)                                                        \
    X(CUBLASLT_MATMUL_DESC_SCALE_TYPE, 1)                                                          \
    X(CUBLASLT_MATMUL_DESC_POINTER_MODE, 2)                                                        \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                              \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                              \
    X(CUBLASLT_MATMUL_DESC_TRANSC, 5)                                                              \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                            \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                        \
    X(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)                                                  \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                                               \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)                                                    \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 13)                                          \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 22)                                             \
    X(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)

#define CUDASIM_LT_EPILOGUES(X)                                                                    \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                \
    X(CUBLASLT_EPILOGUE_RELU, 2)                                                                   \
    X(CUBLASLT_EPILOGUE_BIAS, 4)                                                                   \
    X(CUBLASLT_EPILOGUE_RELU_BIAS, 6)                                                              \
    X(CUBLASLT_EPILOGUE_GELU, 32)                                                                  \
    X(CUBLASLT_EPILOGUE_GELU_BIAS, 36)                                                             \
    X(CUBLASLT_EPILOGUE_RELU_AUX, 130)                                                             \
    X(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 134)                                                        \
    X(CUBLASLT_EPILOGUE_DRELU, 136)                                                                \
    X(CUBLASLT_EPILOGUE_DRELU_BGRAD, 152)                                                          \
    X(CUBLASLT_EPILOGUE_GELU_AUX, 160)                                                             \
    X(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)                                                        \
    X(CUBLASLT_EPILOGUE_DGELU, 192)                                                                \
    X(CUBLASLT_EPILOGUE_DGELU_BGRAD, 208)                                                          \
    X(CUBLASLT_EPILOGUE_BGRADA, 256)                                                               \
    X(CUBLASLT_EPILOGUE_BGRADB, 512)

#define CUDASIM_LT_PREFERENCES(X)                                                                  \
    X(CUBLASLT_MATMUL_PREF_SEARCH_MODE, 0)                                                         \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                 \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUDASIM_LT_REDUCTIONS(X)                                                                   \
    X(CUBLASLT_REDUCTION_SCHEME_NONE, 0)                                                           \
    X(CUBLASLT_REDUCTION_SCHEME_INPLACE, 1)                                                        \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                   \
    X(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4)                                                    \
    X(CUBLASLT_REDUCTION_SCHEME_MASK, 7)

#ifndef CUDASIM_CHECK
#include <cublas_v2.h>

typedef struct cublasLtContext *cublasLtHandle_t;
typedef enum { CUDASIM_LT_ORDERS(CUDASIM_CONSTANT) } cublasLtOrder_t;
typedef enum { CUDASIM_LT_POINTER_MODES(CUDASIM_CONSTANT) } cublasLtPointerMode_t;
typedef enum { CUDASIM_LT_LAYOUT_ATTRIBUTES(CUDASIM_CONSTANT) } cublasLtMatrixLayoutAttribute_t;
typedef enum { CUDASIM_LT_MATMUL_ATTRIBUTES(CUDASIM_CONSTANT) } cublasLtMatmulDescAttributes_t;
typedef enum { CUDASIM_LT_EPILOGUES(CUDASIM_CONSTANT) } cublasLtEpilogue_t;
typedef enum { CUDASIM_LT_PREFERENCES(CUDASIM_CONSTANT) } cublasLtMatmulPreferenceAttributes_t;
typedef enum { CUDASIM_LT_REDUCTIONS(CUDASIM_CONSTANT) } cublasLtReductionScheme_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatrixLayoutOpaque_t;
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    uint64_t data[32];
} cublasLtMatmulDescOpaque_t;
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulPreferenceOpaque_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
size_t cublasLtGetVersion(void);
const char *cublasLtGetStatusName(cublasStatus_t status);
const char *cublasLtGetStatusString(cublasStatus_t status);

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes);
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                void *value, size_t bytes, size_t *written);

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes);
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, void *value,
                                              size_t bytes, size_t *written);

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes);

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned);

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result);

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT
 *
 * The simulated cuBLASLt: handles, descriptors and their attributes. */
#include "config.h"

#include "tests/cudasim/blas.h"

#include "tests/cudasim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

enum {
    LAYOUT_MAGIC = 0x4c61794f,
    DESC_MAGIC = 0x44657363,
    PREFERENCE_MAGIC = 0x50726566,
    HANDLE_MAGIC = 0x48616e64,
    ALIGNMENT = 256, /* of every matrix, unless the caller promises less */
};

_Static_assert(sizeof(struct blas_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
_Static_assert(sizeof(struct blas_desc) <= sizeof(cublasLtMatmulDescOpaque_t), "desc");
_Static_assert(sizeof(struct blas_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "pref");
_Static_assert(sizeof(struct blas_algo) <= sizeof(cublasLtMatmulAlgo_t), "algo");

struct cublasLtContext {
    uint32_t magic;
};

/* One attribute: where its value is in the descriptor. */
struct attribute {
    int id;
    size_t offset, bytes;
};

#define FIELD(id, type, field)                                                                     \
    {                                                                                              \
        id, offsetof(type, field), sizeof(((type *)0)->field)                                      \
    }

static const struct attribute layout_attributes[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, struct blas_layout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, struct blas_layout, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, struct blas_layout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, struct blas_layout, columns),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, struct blas_layout, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, struct blas_layout, batch_count),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, struct blas_layout, stride),
};

static const struct attribute desc_attributes[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, struct blas_desc, compute),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, struct blas_desc, scale),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, struct blas_desc, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, struct blas_desc, transa),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, struct blas_desc, transb),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSC, struct blas_desc, transc),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, struct blas_desc, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, struct blas_desc, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, struct blas_desc, bias_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, struct blas_desc, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, struct blas_desc, aux_ld),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, struct blas_desc, aux_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, struct blas_desc, aux_type),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, struct blas_desc, bias_type),
};

static const struct attribute preference_attributes[] = {
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, struct blas_preference, workspace_bytes),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, struct blas_preference, reductions),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, struct blas_preference, alignment[BLAS_A]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, struct blas_preference, alignment[BLAS_B]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, struct blas_preference, alignment[BLAS_C]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, struct blas_preference, alignment[BLAS_D]),
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

cublasStatus_t blas_refuse(cublasStatus_t status, const char *format, ...)
{
    const char *level = getenv("CUBLASLT_LOG_LEVEL");
    if (level && atoi(level) > 0) {
        char text[256];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        fprintf(stderr, "cudasim: cublasLt: %s: %s\n", text, cublasLtGetStatusName(status));
    }
    return status;
}

/* DDP_CUDASIM_FAIL; CUBLAS_STATUS_SUCCESS otherwise. */
static cublasStatus_t fault(const char *name)
{
    int code = CUBLAS_STATUS_INTERNAL_ERROR;
    return sim_fault(name, &code) ? (cublasStatus_t)code : CUBLAS_STATUS_SUCCESS;
}

static const struct attribute *find(const struct attribute *table, size_t count, int id)
{
    for (size_t i = 0; i < count; i++)
        if (table[i].id == id)
            return &table[i];
    return NULL;
}

static cublasStatus_t set(void *object, const struct attribute *table, size_t count, int id,
                          const void *value, size_t bytes)
{
    const struct attribute *attribute = find(table, count, id);
    if (!object || !value)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d: NULL", id);
    if (!attribute)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d is not simulated", id);
    if (bytes != attribute->bytes)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d has %zu bytes, not %zu", id,
                           attribute->bytes, bytes);
    memcpy((char *)object + attribute->offset, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const void *object, const struct attribute *table, size_t count, int id,
                          void *value, size_t bytes, size_t *written)
{
    const struct attribute *attribute = find(table, count, id);
    if (!object || !attribute || (bytes == 0 && !written) || (bytes != 0 && !value))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (written)
        *written = attribute->bytes;
    if (bytes == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (bytes < attribute->bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, (const char *)object + attribute->offset, attribute->bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* --- handle --- */
VISIBLE cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    cublasStatus_t status = fault("cublasLtCreate");
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    int device;
    if (cudaGetDevice(&device) != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct cublasLtContext *context = malloc(sizeof *context);
    if (!context)
        return CUBLAS_STATUS_ALLOC_FAILED;
    context->magic = HANDLE_MAGIC;
    *handle = context;
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!handle || handle->magic != HANDLE_MAGIC)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE size_t cublasLtGetVersion(void)
{
    return 130100;
}

VISIBLE const char *cublasLtGetStatusName(cublasStatus_t status)
{
    static const struct {
        cublasStatus_t status;
        const char *name;
    } names[] = {
        {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"},
        {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED"},
        {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"},
        {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
        {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH"},
        {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR"},
        {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
        {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"},
        {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
        {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR"},
    };
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].status == status)
            return names[i].name;
    return "CUBLAS_STATUS_UNKNOWN";
}

VISIBLE const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the requested functionality is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the function failed to launch on the GPU";
    default:
        return cublasLtGetStatusName(status);
    }
}

VISIBLE const char *cublasGetStatusName(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

VISIBLE const char *cublasGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusString(status);
}

/* --- matrix layout --- */
struct blas_layout *blas_layout_of(cublasLtMatrixLayout_t layout)
{
    struct blas_layout *own = (struct blas_layout *)(void *)layout;
    return own && own->magic == LAYOUT_MAGIC ? own : NULL;
}

VISIBLE cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                                  uint64_t rows, uint64_t columns, int64_t ld)
{
    cublasStatus_t status = fault("cublasLtMatrixLayoutCreate");
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasLtMatrixLayout_t object = calloc(1, sizeof *object);
    if (!object)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *(struct blas_layout *)(void *)object = (struct blas_layout){.magic = LAYOUT_MAGIC,
                                                                 .type = (int32_t)type,
                                                                 .order = CUBLASLT_ORDER_COL,
                                                                 .batch_count = 1,
                                                                 .rows = rows,
                                                                 .columns = columns,
                                                                 .ld = ld};
    *layout = object;
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    if (layout && !blas_layout_of(layout))
        sim_report("cublasLtMatrixLayoutDestroy: not a layout, or destroyed before");
    if (layout)
        blas_layout_of(layout)->magic = 0;
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                        cublasLtMatrixLayoutAttribute_t attribute,
                                                        const void *value, size_t bytes)
{
    return set(blas_layout_of(layout), layout_attributes, COUNT(layout_attributes), (int)attribute,
               value, bytes);
}

VISIBLE cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                        cublasLtMatrixLayoutAttribute_t attribute,
                                                        void *value, size_t bytes, size_t *written)
{
    return get(blas_layout_of(layout), layout_attributes, COUNT(layout_attributes), (int)attribute,
               value, bytes, written);
}

/* --- product --- */
struct blas_desc *blas_desc_of(cublasLtMatmulDesc_t desc)
{
    struct blas_desc *own = (struct blas_desc *)(void *)desc;
    return own && own->magic == DESC_MAGIC ? own : NULL;
}

VISIBLE cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                                cublasComputeType_t compute, cudaDataType_t scale)
{
    cublasStatus_t status = fault("cublasLtMatmulDescCreate");
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasLtMatmulDesc_t object = calloc(1, sizeof *object);
    if (!object)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *(struct blas_desc *)(void *)object = (struct blas_desc){.magic = DESC_MAGIC,
                                                             .compute = (int32_t)compute,
                                                             .scale = (int32_t)scale,
                                                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                                             .aux_type = -1,
                                                             .bias_type = -1};
    *desc = object;
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    if (desc && !blas_desc_of(desc))
        sim_report("cublasLtMatmulDescDestroy: not a descriptor, or destroyed before");
    if (desc)
        blas_desc_of(desc)->magic = 0;
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                      cublasLtMatmulDescAttributes_t attribute,
                                                      const void *value, size_t bytes)
{
    return set(blas_desc_of(desc), desc_attributes, COUNT(desc_attributes), (int)attribute, value,
               bytes);
}

VISIBLE cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                                      cublasLtMatmulDescAttributes_t attribute,
                                                      void *value, size_t bytes, size_t *written)
{
    return get(blas_desc_of(desc), desc_attributes, COUNT(desc_attributes), (int)attribute, value,
               bytes, written);
}

/* --- preference --- */
VISIBLE cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    cublasStatus_t status = fault("cublasLtMatmulPreferenceCreate");
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!preference)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasLtMatmulPreference_t object = calloc(1, sizeof *object);
    if (!object)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *(struct blas_preference *)(void *)object =
        (struct blas_preference){.magic = PREFERENCE_MAGIC,
                                 .alignment = {ALIGNMENT, ALIGNMENT, ALIGNMENT, ALIGNMENT},
                                 .reductions = CUBLASLT_REDUCTION_SCHEME_MASK};
    *preference = object;
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes)
{
    /* How it searches makes no difference here. */
    if (preference && value && bytes == sizeof(uint32_t) &&
        attribute == CUBLASLT_MATMUL_PREF_SEARCH_MODE)
        return CUBLAS_STATUS_SUCCESS;
    return set(preference, preference_attributes, COUNT(preference_attributes), (int)attribute,
               value, bytes);
}

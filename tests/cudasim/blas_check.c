/* SPDX-License-Identifier: MIT
 *
 * The simulated cublasLtMatmul: what it refuses, the choice of an algorithm, the call. */
#include "config.h"

#include "tests/cudasim/blas.h"

#include "tests/cudasim/sim.h"

#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

enum {
    ALGO_MAGIC = 0x416c676f,
    WORKSPACE_BYTES = 32 << 10, /* what an algorithm asks for, where it may */
    /* What kernels need at most. NVIDIA's memory is aligned to 256 bytes, and cublasLt takes that
     * for granted by default; the simulation's to 16 only, so that an overrun meets the guard. */
    VECTOR_ALIGNMENT = 16,
    LEAST_PARTED = 128, /* k that is worth cutting */
};

size_t blas_type_bytes(int32_t type)
{
    switch (type) {
    case CUDA_R_32F:
        return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
        return 2;
    default:
        return 0;
    }
}

static int64_t positive(int64_t a)
{
    return a > 0 ? a : 0;
}

size_t blas_matrix_bytes(const struct blas_product *product, enum blas_matrix_name name)
{
    const struct blas_matrix *matrix = &product->matrix[name];
    int64_t elements = (matrix->rows - 1) * matrix->row_stride +
                       (matrix->columns - 1) * matrix->column_stride + 1 +
                       (product->batch_count - 1) * positive(matrix->batch_stride);
    return (size_t)elements * blas_type_bytes(matrix->type);
}

int64_t blas_bias_length(const struct blas_product *product)
{
    return product->epilogue & BLAS_BGRADB ? product->n : product->m;
}

size_t blas_bias_bytes(const struct blas_product *product)
{
    if (!(product->epilogue & (BLAS_BIAS | BLAS_BGRAD | BLAS_BGRADA | BLAS_BGRADB)))
        return 0;
    return (size_t)(blas_bias_length(product) + (product->batch_count - 1) * product->bias_stride) *
           blas_type_bytes(product->matrix[BLAS_D].type);
}

size_t blas_aux_bytes(const struct blas_product *product)
{
    if (!(product->epilogue & BLAS_AUX))
        return 0;
    int64_t elements = (product->n - 1) * product->aux_ld + product->m +
                       (product->batch_count - 1) * product->aux_stride;
    if (product->epilogue & (BLAS_RELU | BLAS_DRELU))
        return (size_t)(elements + 7) / 8; /* one bit each */
    return (size_t)elements * blas_type_bytes(product->matrix[BLAS_D].type);
}

static cublasStatus_t shape_of_matrix(struct blas_matrix *matrix, const struct blas_layout *layout,
                                      char name)
{
    const bool by_row = layout->order == CUBLASLT_ORDER_ROW;
    if (layout->order != CUBLASLT_ORDER_COL && !by_row)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%c: order %d", name, layout->order);
    if (blas_type_bytes(layout->type) == 0)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%c: type %d", name, layout->type);
    if (layout->rows == 0 || layout->columns == 0 || layout->rows > INT32_MAX ||
        layout->columns > INT32_MAX)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c: %llu x %llu", name,
                           (unsigned long long)layout->rows, (unsigned long long)layout->columns);
    *matrix = (struct blas_matrix){
        .type = layout->type,
        .rows = (int64_t)layout->rows,
        .columns = (int64_t)layout->columns,
        .row_stride = by_row ? layout->ld : 1,
        .column_stride = by_row ? 1 : layout->ld,
        .batch_stride = layout->stride,
    };
    const int64_t line = by_row ? matrix->columns : matrix->rows;
    if (layout->ld < line)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE,
                           "%c: leading dimension %lld is less than %lld", name,
                           (long long)layout->ld, (long long)line);
    if (layout->batch_count < 1 || layout->stride < 0)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c: %d batches, %lld elements apart", name,
                           layout->batch_count, (long long)layout->stride);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_sizes(const struct blas_product *product,
                                  const struct blas_layout *layout[BLAS_MATRICES])
{
    const struct blas_matrix *matrix = product->matrix;
    const int64_t ka = product->transa ? matrix[BLAS_A].rows : matrix[BLAS_A].columns;
    const int64_t kb = product->transb ? matrix[BLAS_B].columns : matrix[BLAS_B].rows;
    const int64_t m = product->transa ? matrix[BLAS_A].columns : matrix[BLAS_A].rows;
    const int64_t n = product->transb ? matrix[BLAS_B].rows : matrix[BLAS_B].columns;
    if (ka != kb || m != product->m || n != product->n || matrix[BLAS_C].rows != m ||
        matrix[BLAS_C].columns != n)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE,
                           "sizes: op(A) %lld x %lld, op(B) %lld x %lld, C %lld x %lld, D %lld x "
                           "%lld",
                           (long long)m, (long long)ka, (long long)kb, (long long)n,
                           (long long)matrix[BLAS_C].rows, (long long)matrix[BLAS_C].columns,
                           (long long)product->m, (long long)product->n);
    for (int i = 0; i < BLAS_MATRICES; i++)
        if (layout[i]->batch_count != layout[BLAS_D]->batch_count)
            return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c: %d batches, D: %d", "ABCD"[i],
                               layout[i] -> batch_count, layout[BLAS_D] -> batch_count);
    const struct blas_matrix *d = &matrix[BLAS_D];
    const int64_t span = (d->rows - 1) * d->row_stride + (d->columns - 1) * d->column_stride + 1;
    if (product->batch_count > 1 && d->batch_stride < span)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "D: batches overlap");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_types(const struct blas_product *product, const struct blas_desc *desc)
{
    const struct blas_matrix *matrix = product->matrix;
    const int32_t in = matrix[BLAS_A].type, out = matrix[BLAS_D].type;
    const bool narrow = in == CUDA_R_16BF || in == CUDA_R_16F;
    if (matrix[BLAS_B].type != in || matrix[BLAS_C].type != out ||
        (out != in && !(narrow && out == CUDA_R_32F)) || out == CUDA_R_16F)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types of A %d, B %d, C %d, D %d", in,
                           matrix[BLAS_B].type, matrix[BLAS_C].type, out);
    if (desc->scale != CUDA_R_32F)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale type %d", desc->scale);
    switch (desc->compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        break;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        if (!narrow)
            break;
        /* fall through */
    default:
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d", desc->compute);
    }
    if (desc->bias_type != -1 && desc->bias_type != out)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "type of bias %d", desc->bias_type);
    if (desc->aux_type != -1 && desc->aux_type != out)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "type of aux %d", desc->aux_type);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const struct blas_product *product,
                                     const struct blas_layout *layout[BLAS_MATRICES])
{
    switch (product->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        break;
    default:
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u", product->epilogue);
    }
    if (layout[BLAS_D]->order != CUBLASLT_ORDER_COL)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u on a row-major D",
                           product->epilogue);
    if (blas_bias_bytes(product) > 0 && product->batch_count > 1 &&
        product->epilogue & (BLAS_BGRAD | BLAS_BGRADA | BLAS_BGRADB) &&
        product->bias_stride < blas_bias_length(product))
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "gradients of bias overlap");
    if (!(product->epilogue & BLAS_AUX))
        return CUBLAS_STATUS_SUCCESS;
    const bool bits = product->epilogue & (BLAS_RELU | BLAS_DRELU);
    const int64_t granule = bits ? 128 : 8;
    if (product->aux_ld < product->m || product->aux_ld % granule != 0 ||
        product->aux_stride % granule != 0)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                           "leading dimension of aux %lld, for %lld rows: a multiple of %lld",
                           (long long)product->aux_ld, (long long)product->m, (long long)granule);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t blas_shape(struct blas_product *product, const struct blas_desc *desc,
                          const struct blas_layout *layout[BLAS_MATRICES])
{
    *product = (struct blas_product){0};
    const int32_t transposed[2] = {desc->transa, desc->transb};
    for (int i = 0; i < 2; i++)
        if (transposed[i] != CUBLAS_OP_N && transposed[i] != CUBLAS_OP_T &&
            transposed[i] != CUBLAS_OP_C)
            return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "transposition %d", transposed[i]);
    if (desc->transc != CUBLAS_OP_N)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "transposition of C");
    if (desc->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
        desc->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "pointer mode %d", desc->pointer_mode);
    for (int i = 0; i < BLAS_MATRICES; i++) {
        cublasStatus_t status = shape_of_matrix(&product->matrix[i], layout[i], "ABCD"[i]);
        if (status != CUBLAS_STATUS_SUCCESS)
            return status;
    }
    product->transa = desc->transa != CUBLAS_OP_N;
    product->transb = desc->transb != CUBLAS_OP_N;
    product->m = product->matrix[BLAS_D].rows;
    product->n = product->matrix[BLAS_D].columns;
    product->k = product->transa ? product->matrix[BLAS_A].rows : product->matrix[BLAS_A].columns;
    product->batch_count = layout[BLAS_D]->batch_count;
    product->compute = desc->compute;
    product->epilogue = desc->epilogue;
    product->bias_stride = desc->bias_stride;
    product->aux_ld = desc->aux_ld;
    product->aux_stride = desc->aux_stride;
    cublasStatus_t status = check_sizes(product, layout);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_types(product, desc);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_epilogue(product, layout);
    return status;
}

/* Kernels of the real library may count elements in 32 bits. */
static void check_spans(const struct blas_product *product)
{
    int64_t limit = blas_setting("DDP_CUDASIM_SPAN");
    limit = limit ? limit : INT64_C(1) << 31;
    for (int i = 0; i < BLAS_MATRICES; i++) {
        const size_t bytes = blas_type_bytes(product->matrix[i].type);
        if ((int64_t)(blas_matrix_bytes(product, (enum blas_matrix_name)i) / bytes) >= limit)
            sim_report("cublasLtMatmul: %c spans %lld elements or more", "ABCD"[i],
                       (long long)limit);
    }
}

void blas_check_memory(const char *call, const struct blas_product *product, int device)
{
    static const char *const names[BLAS_MATRICES] = {"A", "B", "C", "D"};
    for (int i = 0; i < BLAS_MATRICES; i++)
        if (i != BLAS_C || product->device_beta || product->beta != 0)
            sim_check_pointer(call, names[i], product->matrix[i].data,
                              blas_matrix_bytes(product, (enum blas_matrix_name)i), device);
    if (blas_bias_bytes(product) > 0)
        sim_check_pointer(call, "bias", product->bias, blas_bias_bytes(product), device);
    if (blas_aux_bytes(product) > 0)
        sim_check_pointer(call, "aux", product->aux, blas_aux_bytes(product), device);
    if (product->workspace_bytes > 0)
        sim_check_pointer(call, "workspace", product->workspace, product->workspace_bytes, device);
    if (product->device_alpha) {
        sim_check_pointer(call, "alpha", product->device_alpha, sizeof(float), device);
        sim_check_pointer(call, "beta", product->device_beta, sizeof(float), device);
    }
}

/* --- algorithm --- */
/* FNV-1a over everything that decides which kernel is chosen. */
static uint64_t problem_of(const struct blas_product *product)
{
    uint64_t parts[6 * BLAS_MATRICES + 8], count = 0, hash = 14695981039346656037u;
    for (int i = 0; i < BLAS_MATRICES; i++) {
        const struct blas_matrix *matrix = &product->matrix[i];
        parts[count++] = (uint64_t)matrix->type;
        parts[count++] = (uint64_t)matrix->rows;
        parts[count++] = (uint64_t)matrix->columns;
        parts[count++] = (uint64_t)matrix->row_stride;
        parts[count++] = (uint64_t)matrix->column_stride;
        parts[count++] = (uint64_t)matrix->batch_stride;
    }
    parts[count++] = (uint64_t)product->batch_count;
    parts[count++] = product->transa;
    parts[count++] = product->transb;
    parts[count++] = (uint64_t)product->compute;
    parts[count++] = product->epilogue;
    parts[count++] = (uint64_t)product->bias_stride;
    parts[count++] = (uint64_t)product->aux_ld;
    parts[count++] = (uint64_t)product->aux_stride;
    for (size_t i = 0; i < count * sizeof parts[0]; i++)
        hash = (hash ^ ((const unsigned char *)parts)[i]) * 1099511628211u;
    return hash;
}

static uint16_t alignment_of(const void *pointer, uint16_t most)
{
    uint16_t alignment = most;
    while ((uintptr_t)pointer % alignment != 0)
        alignment /= 2;
    return alignment;
}

/* The library's choice may cut k into parts and add them up in the type of D, if it is allowed to:
 * less precise where that is bf16. */
static int32_t parts_of(const struct blas_product *product, uint32_t reductions)
{
    const uint32_t in_d = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return product->matrix[BLAS_D].type == CUDA_R_16BF && product->k >= LEAST_PARTED &&
                   (reductions & in_d) != 0
               ? 2
               : 1;
}

int64_t blas_setting(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : 0;
}

static void propose(cublasLtMatmulHeuristicResult_t *result, const struct blas_algo *algo)
{
    memcpy(&result->algo, algo, sizeof *algo);
    result->workspaceSize = algo->workspace_bytes;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
}

VISIBLE cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *returned)
{
    int code = CUBLAS_STATUS_NOT_SUPPORTED;
    if (sim_fault("cublasLtMatmulAlgoGetHeuristic", &code))
        return (cublasStatus_t)code;
    const struct blas_desc *own = blas_desc_of(desc);
    const struct blas_layout *layout[BLAS_MATRICES] = {blas_layout_of(a), blas_layout_of(b),
                                                       blas_layout_of(c), blas_layout_of(d)};
    if (!handle || !own || !layout[BLAS_A] || !layout[BLAS_B] || !layout[BLAS_C] ||
        !layout[BLAS_D] || !preference || wanted < 1 || !results || !returned)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "heuristic: an argument is missing");
    *returned = 0;
    struct blas_product product;
    cublasStatus_t status = blas_shape(&product, own, layout);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    const struct blas_preference *limits = (const struct blas_preference *)(void *)preference;
    struct blas_algo algo = {.magic = ALGO_MAGIC, .problem = problem_of(&product)};
    for (int i = 0; i < BLAS_MATRICES; i++) {
        if (limits->alignment[i] < blas_type_bytes(product.matrix[i].type) ||
            (limits->alignment[i] & (limits->alignment[i] - 1)) != 0)
            return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%c aligned to %u bytes", "ABCD"[i],
                               limits -> alignment[i]);
        algo.alignment[i] =
            (uint16_t)(limits->alignment[i] < VECTOR_ALIGNMENT ? limits->alignment[i]
                                                               : VECTOR_ALIGNMENT);
    }
    /* The library looks at these pointers as they are now. */
    algo.bias_alignment = alignment_of(own->bias, VECTOR_ALIGNMENT);
    algo.aux_alignment = alignment_of(own->aux, VECTOR_ALIGNMENT);
    algo.parts = parts_of(&product, limits->reductions);
    algo.workspace_bytes =
        limits->workspace_bytes < WORKSPACE_BYTES ? limits->workspace_bytes : WORKSPACE_BYTES;
    memset(results, 0, sizeof results[0] * (size_t)wanted);
    const int64_t count = blas_setting("DDP_CUDASIM_ALGORITHMS");
    do {
        algo.number = *returned;
        propose(&results[(*returned)++], &algo);
    } while (*returned < wanted && *returned < count);
    return CUBLAS_STATUS_SUCCESS;
}

/* Whether an algorithm, from wherever, does this product. What it was promised is not checked. */
VISIBLE cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                               const cublasLtMatmulAlgo_t *given,
                                               cublasLtMatmulHeuristicResult_t *result)
{
    int code = CUBLAS_STATUS_INVALID_VALUE;
    if (sim_fault("cublasLtMatmulAlgoCheck", &code))
        return (cublasStatus_t)code;
    const struct blas_desc *own = blas_desc_of(desc);
    const struct blas_layout *layout[BLAS_MATRICES] = {blas_layout_of(a), blas_layout_of(b),
                                                       blas_layout_of(c), blas_layout_of(d)};
    if (!handle || !own || !layout[BLAS_A] || !layout[BLAS_B] || !layout[BLAS_C] ||
        !layout[BLAS_D] || !given || !result)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "check: an argument is missing");
    struct blas_product product;
    struct blas_algo algo;
    cublasStatus_t status = blas_shape(&product, own, layout);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    memcpy(&algo, given, sizeof algo);
    if (algo.magic != ALGO_MAGIC || algo.problem != problem_of(&product))
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "check: no algorithm of this product");
    memset(result, 0, sizeof *result);
    propose(result, &algo);
    memset(&result->algo, 0, sizeof result->algo); /* as the library, which fills the rest in */
    return CUBLAS_STATUS_SUCCESS;
}

/* What an algorithm was promised and does not get would be a fault inside its kernel. */
static void check_promises(const struct blas_product *product, const struct blas_algo *algo)
{
    for (int i = 0; i < BLAS_MATRICES; i++)
        if ((uintptr_t)product->matrix[i].data % algo->alignment[i] != 0)
            sim_report("cublasLtMatmul: %c at %p is not aligned to %u bytes, though "
                       "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_%c_BYTES (default 256) promised it",
                       "ABCD"[i], product -> matrix[i].data, (unsigned)algo->alignment[i],
                       "ABCD"[i]);
    if (blas_bias_bytes(product) > 0 && (uintptr_t)product->bias % algo->bias_alignment != 0)
        sim_report("cublasLtMatmul: bias at %p is aligned to less than when the algorithm was "
                   "chosen (%u bytes)",
                   product->bias, (unsigned)algo->bias_alignment);
    if (blas_aux_bytes(product) > 0 && (uintptr_t)product->aux % algo->aux_alignment != 0)
        sim_report("cublasLtMatmul: aux at %p is aligned to less than when the algorithm was "
                   "chosen (%u bytes)",
                   product->aux, (unsigned)algo->aux_alignment);
}

static cublasStatus_t check_algo(struct blas_product *product, const cublasLtMatmulAlgo_t *given,
                                 size_t workspace_bytes)
{
    struct blas_algo algo = {
        .magic = ALGO_MAGIC, .bias_alignment = 1, .aux_alignment = 1, .parts = 1};
    if (given) {
        memcpy(&algo, given, sizeof algo);
        if (algo.magic != ALGO_MAGIC)
            return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "not an algorithm");
        if (algo.problem != problem_of(product))
            return blas_refuse(CUBLAS_STATUS_INVALID_VALUE,
                               "the algorithm was chosen for another product");
        check_promises(product, &algo);
        if (algo.number < blas_setting("DDP_CUDASIM_REFUSE"))
            return blas_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "candidate %d", algo.number);
    }
    if (workspace_bytes < algo.workspace_bytes)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "workspace of %zu bytes, %llu needed",
                           workspace_bytes, (unsigned long long)algo.workspace_bytes);
    if (algo.workspace_bytes > 0 && (uintptr_t)product->workspace % VECTOR_ALIGNMENT != 0)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "workspace is not aligned to %d bytes",
                           VECTOR_ALIGNMENT);
    product->workspace_bytes = algo.workspace_bytes;
    product->parts = algo.parts;
    product->number = algo.number;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_call(const struct blas_product *product,
                                 const struct blas_layout *layout[BLAS_MATRICES])
{
    for (int i = 0; i < BLAS_MATRICES; i++)
        if (!product->matrix[i].data)
            return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c is NULL", "ABCD"[i]);
    if ((blas_bias_bytes(product) > 0 && !product->bias) ||
        (blas_aux_bytes(product) > 0 && !product->aux))
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u without its pointer",
                           product->epilogue);
    if (product->matrix[BLAS_C].data == product->matrix[BLAS_D].data &&
        memcmp(layout[BLAS_C], layout[BLAS_D], sizeof *layout[BLAS_C]) != 0)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D, but in another layout");
    for (int i = 0; i < BLAS_MATRICES; i++)
        if ((uintptr_t)product->matrix[i].data % blas_type_bytes(product->matrix[i].type) != 0)
            return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c is misaligned", "ABCD"[i]);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                      const void *alpha, const void *a,
                                      cublasLtMatrixLayout_t a_layout, const void *b,
                                      cublasLtMatrixLayout_t b_layout, const void *beta,
                                      const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                      cublasLtMatrixLayout_t d_layout,
                                      const cublasLtMatmulAlgo_t *algo, void *workspace,
                                      size_t workspace_bytes, cudaStream_t stream)
{
    int code = CUBLAS_STATUS_EXECUTION_FAILED;
    if (sim_fault("cublasLtMatmul", &code))
        return (cublasStatus_t)code;
    const struct blas_desc *own = blas_desc_of(desc);
    const struct blas_layout *layout[BLAS_MATRICES] = {
        blas_layout_of(a_layout), blas_layout_of(b_layout), blas_layout_of(c_layout),
        blas_layout_of(d_layout)};
    if (!handle)
        return blas_refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
    if (!own || !layout[BLAS_A] || !layout[BLAS_B] || !layout[BLAS_C] || !layout[BLAS_D] ||
        !alpha || !beta)
        return blas_refuse(CUBLAS_STATUS_INVALID_VALUE, "an argument is missing");
    struct blas_product product;
    cublasStatus_t status = blas_shape(&product, own, layout);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    const void *const data[BLAS_MATRICES] = {a, b, c, d};
    for (int i = 0; i < BLAS_MATRICES; i++)
        product.matrix[i].data = (void *)(uintptr_t)data[i];
    if (own->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        product.device_alpha = alpha;
        product.device_beta = beta;
    } else {
        memcpy(&product.alpha, alpha, sizeof(float));
        memcpy(&product.beta, beta, sizeof(float));
    }
    product.bias = own->bias;
    product.aux = own->aux;
    product.workspace = workspace;
    status = check_call(&product, layout);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_algo(&product, algo, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    check_spans(&product);
    blas_check_memory("cublasLtMatmul", &product, sim_stream_device(stream));
    return sim_enqueue(stream, "cublasLtMatmul", SIM_RUN, blas_run, &product, sizeof product) ==
                   cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

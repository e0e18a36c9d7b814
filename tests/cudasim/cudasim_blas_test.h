/* SPDX-License-Identifier: MIT
 *
 * One product of check_cudasim_blas: its arrays on host and device, the call of cublasLt, and what
 * must come out, in double precision. */
#ifndef DDP_TESTS_CUDASIM_BLAS_TEST_H
#define DDP_TESTS_CUDASIM_BLAS_TEST_H

#include "kernels/bf16.h"
#include "tests/lib/runner.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_OK(call) ck_assert_int_eq(call, cudaSuccess)
#define BLAS_OK(call) ck_assert_int_eq(call, CUBLAS_STATUS_SUCCESS)

static cublasLtHandle_t blas;
static cudaStream_t stream;

/* --- one product --- */
enum { A, B, C, D, BIAS, AUX, ARRAYS };

struct product {
    int m, n, k, batches, pad; /* pad: of leading dimensions */
    bool transa, transb, rows; /* rows: row-major matrices */
    int in, out;               /* types */
    uint32_t epilogue;
    float alpha, beta;
    bool in_place, no_algorithm;
    int compute;
};

struct array {
    int type; /* -1: bits */
    size_t count, bytes;
    double *values;
    void *device;
};

static uint64_t noise = 1;

static double uniform(void) /* in [-1, 1), of few bits, so that bf16 has it exactly */
{
    noise = noise * 6364136223846793005u + 1442695040888963407u;
    return (double)(int)(noise >> 57) / 64 - 1;
}

static size_t type_bytes(int type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* values -> bytes of the type, or back. */
static void convert(const struct array *array, void *bytes, bool to_bytes)
{
    for (size_t i = 0; i < array->count; i++) {
        float single;
        uint16_t half;
        unsigned char *byte = (unsigned char *)bytes + i / 8;
        if (array->type == -1) {
            if (to_bytes)
                *byte = (unsigned char)(array->values[i] != 0 ? *byte | 1 << i % 8
                                                              : *byte & ~(1 << i % 8));
            else
                array->values[i] = *byte >> i % 8 & 1;
        } else if (array->type != CUDA_R_32F) {
            const bool bf16 = array->type == CUDA_R_16BF;
            half =
                bf16 ? ddp_bf16_of((float)array->values[i]) : ddp_f16_of((float)array->values[i]);
            memcpy(to_bytes ? (char *)bytes + 2 * i : (char *)&half,
                   to_bytes ? (char *)&half : (char *)bytes + 2 * i, 2);
            array->values[i] = bf16 ? ddp_bf16_to_f32(half) : ddp_f16_to_f32(half);
        } else {
            single = (float)array->values[i];
            memcpy(to_bytes ? (char *)bytes + 4 * i : (char *)&single,
                   to_bytes ? (char *)&single : (char *)bytes + 4 * i, 4);
            array->values[i] = (double)single;
        }
    }
}

static void array_create(struct array *array, int type, size_t count)
{
    array->type = type;
    array->count = count;
    array->bytes = type == -1 ? (count + 7) / 8 : count * type_bytes(type);
    array->values = malloc(count * sizeof *array->values);
    char *bytes = calloc(1, array->bytes);
    ck_assert(array->values && bytes);
    for (size_t i = 0; i < count; i++)
        array->values[i] = type == -1 ? uniform() > 0 : uniform();
    convert(array, bytes, true);
    CUDA_OK(cudaMalloc(&array->device, array->bytes));
    CUDA_OK(cudaMemcpy(array->device, bytes, array->bytes, cudaMemcpyHostToDevice));
    free(bytes);
}

static double *array_read(const struct array *array)
{
    struct array copy = *array;
    char *bytes = malloc(array->bytes);
    copy.values = malloc(array->count * sizeof *copy.values);
    ck_assert(bytes && copy.values);
    CUDA_OK(cudaMemcpyAsync(bytes, array->device, array->bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    convert(&copy, bytes, false);
    free(bytes);
    return copy.values;
}

/* Rows, columns, leading dimension, and element (i, j) of batch b of a matrix as stored. */
static void sizes(const struct product *p, int matrix, int *rows, int *columns, int *ld)
{
    const bool swap = matrix == A ? p->transa : matrix == B && p->transb;
    const int r = matrix == B ? p->k : p->m, c = matrix == A ? p->k : p->n;
    *rows = swap ? c : r;
    *columns = swap ? r : c;
    *ld = (p->rows ? *columns : *rows) + p->pad;
}

static size_t batch_size(const struct product *p, int matrix)
{
    int rows, columns, ld;
    sizes(p, matrix, &rows, &columns, &ld);
    return (size_t)ld * (size_t)(p->rows ? rows : columns);
}

static size_t at(const struct product *p, int matrix, int batch, int i, int j)
{
    int rows, columns, ld;
    sizes(p, matrix, &rows, &columns, &ld);
    return (size_t)batch * batch_size(p, matrix) +
           (p->rows ? (size_t)i * (size_t)ld + (size_t)j : (size_t)j * (size_t)ld + (size_t)i);
}

static bool has_bits(const struct product *p)
{
    return p->epilogue & 128 && !(p->epilogue & (32 | 64));
}

static int aux_ld(const struct product *p)
{
    const int granule = has_bits(p) ? 128 : 8;
    return (p->m + granule - 1) / granule * granule;
}

static int bias_length(const struct product *p)
{
    return p->epilogue == CUBLASLT_EPILOGUE_BGRADB ? p->n : p->m;
}

static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                const void *value, size_t bytes)
{
    BLAS_OK(cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes));
}

static cublasLtMatmulDesc_t describe(const struct product *p, const struct array *arrays)
{
    cublasLtMatmulDesc_t desc;
    const int32_t transa = p->transa ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t transb = p->transb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t ld = aux_ld(p), aux_stride = ld * p->n, bias_stride = bias_length(p);
    BLAS_OK(cublasLtMatmulDescCreate(&desc, (cublasComputeType_t)p->compute, CUDA_R_32F));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transa, sizeof transa);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &transb, sizeof transb);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &arrays[BIAS].device, sizeof(void *));
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &bias_stride, sizeof bias_stride);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &arrays[AUX].device, sizeof(void *));
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &aux_stride, sizeof aux_stride);
    return desc;
}

static cublasLtMatrixLayout_t lay_out(const struct product *p, int matrix)
{
    cublasLtMatrixLayout_t layout;
    int rows, columns, ld;
    const int32_t order = p->rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL, batches = p->batches;
    const int64_t stride = (int64_t)batch_size(p, matrix);
    sizes(p, matrix, &rows, &columns, &ld);
    BLAS_OK(cublasLtMatrixLayoutCreate(
        &layout, (cudaDataType_t)(matrix == A || matrix == B ? p->in : p->out), (uint64_t)rows,
        (uint64_t)columns, ld));
    BLAS_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                             sizeof order));
    BLAS_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                             sizeof batches));
    BLAS_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof stride));
    return layout;
}

struct call {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[4];
    cublasLtMatmulHeuristicResult_t found;
    void *workspace;
    size_t workspace_bytes;
};

/* NULL: the library's default. */
static const uint32_t *allowed_reductions;

static cublasStatus_t choose(struct call *call, size_t workspace_bytes)
{
    cublasLtMatmulPreference_t preference;
    int count = 0;
    BLAS_OK(cublasLtMatmulPreferenceCreate(&preference));
    BLAS_OK(cublasLtMatmulPreferenceSetAttribute(preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_bytes, sizeof workspace_bytes));
    if (allowed_reductions)
        BLAS_OK(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, allowed_reductions,
            sizeof *allowed_reductions));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        blas, call->desc, call->layout[A], call->layout[B], call->layout[C], call->layout[D],
        preference, 1, &call->found, &count);
    ck_assert_int_eq(count, status == CUBLAS_STATUS_SUCCESS);
    BLAS_OK(cublasLtMatmulPreferenceDestroy(preference));
    return status;
}

static void call_create(struct call *call, const struct product *p, const struct array *arrays)
{
    memset(call, 0, sizeof *call);
    call->desc = describe(p, arrays);
    for (int i = A; i <= D; i++)
        call->layout[i] = lay_out(p, i);
    if (!p->no_algorithm) {
        BLAS_OK(choose(call, (size_t)1 << 20));
        call->workspace_bytes = call->found.workspaceSize;
        ck_assert_uint_gt(call->workspace_bytes, 0);
        CUDA_OK(cudaMalloc(&call->workspace, call->workspace_bytes));
    }
}

static void call_free(struct call *call)
{
    BLAS_OK(cublasLtMatmulDescDestroy(call->desc));
    for (int i = A; i <= D; i++)
        BLAS_OK(cublasLtMatrixLayoutDestroy(call->layout[i]));
    CUDA_OK(cudaFree(call->workspace));
}

static cublasStatus_t multiply(const struct call *call, const struct product *p,
                               const struct array *arrays)
{
    void *c = arrays[p->in_place ? D : C].device;
    return cublasLtMatmul(
        blas, call->desc, &p->alpha, arrays[A].device, call->layout[A], arrays[B].device,
        call->layout[B], &p->beta, c, call->layout[C], arrays[D].device, call->layout[D],
        p->no_algorithm ? NULL : &call->found.algo, call->workspace, call->workspace_bytes, stream);
}

static void arrays_create(struct array *arrays, const struct product *p)
{
    const size_t batches = (size_t)p->batches;
    for (int i = A; i <= D; i++)
        array_create(&arrays[i], i <= B ? p->in : p->out, batches * batch_size(p, i));
    array_create(&arrays[BIAS], p->out, batches * (size_t)bias_length(p));
    array_create(&arrays[AUX], has_bits(p) ? -1 : p->out,
                 batches * (size_t)aux_ld(p) * (size_t)p->n);
}

static void arrays_free(struct array *arrays)
{
    for (int i = 0; i < ARRAYS; i++) {
        free(arrays[i].values);
        CUDA_OK(cudaFree(arrays[i].device));
    }
}

/* --- the reference --- */
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double step = 1e-4; /* of a smooth function: good to eight digits */
    return (gelu(x - 2 * step) - 8 * gelu(x - step) + 8 * gelu(x + step) - gelu(x + 2 * step)) /
           (12 * step);
}

static double operand_a(const struct product *p, const struct array *arrays, int b, int i, int l)
{
    return arrays[A].values[p->transa ? at(p, A, b, l, i) : at(p, A, b, i, l)];
}

static double operand_b(const struct product *p, const struct array *arrays, int b, int l, int j)
{
    return arrays[B].values[p->transb ? at(p, B, b, j, l) : at(p, B, b, l, j)];
}

/* What D, the bias and aux must be: computed in the arrays' values. */
static void reference_element(const struct product *p, struct array *arrays, int b, int i, int j)
{
    double *aux =
        &arrays[AUX].values[((size_t)b * (size_t)p->n + (size_t)j) * (size_t)aux_ld(p) + (size_t)i];
    double *d = &arrays[D].values[at(p, D, b, i, j)], value = 0;
    for (int l = 0; l < p->k; l++)
        value += operand_a(p, arrays, b, i, l) * operand_b(p, arrays, b, l, j);
    value *= (double)p->alpha;
    if (p->beta != 0)
        value += (double)p->beta * (p->in_place ? *d : arrays[C].values[at(p, C, b, i, j)]);
    switch (p->epilogue & ~(uint32_t)(16 | 128)) {
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_BIAS:
        value += arrays[BIAS].values[b * bias_length(p) + i];
        break;
    case 8: /* DRELU */
        value = *aux != 0 ? value : 0;
        break;
    case 64: /* DGELU */
        value *= gelu_slope(*aux);
        break;
    default:
        break;
    }
    const bool relu = p->epilogue & 2, activates = relu || p->epilogue & 32;
    if (activates && p->epilogue & 128)
        *aux = relu ? value > 0 : value;
    *d = !activates ? value : relu ? fmax(value, 0) : gelu(value);
}

static void reference(const struct product *p, struct array *arrays)
{
    for (int b = 0; b < p->batches; b++) {
        for (int j = 0; j < p->n; j++)
            for (int i = 0; i < p->m; i++)
                reference_element(p, arrays, b, i, j);
        double *bias = &arrays[BIAS].values[b * bias_length(p)];
        if (!(p->epilogue & (16 | 256 | 512)))
            continue;
        for (int i = 0; i < bias_length(p); i++) {
            bias[i] = 0;
            for (int l = 0; l < (p->epilogue & 16 ? p->n : p->k); l++)
                bias[i] += p->epilogue & 16    ? arrays[D].values[at(p, D, b, i, l)]
                           : p->epilogue & 256 ? operand_a(p, arrays, b, i, l)
                                               : operand_b(p, arrays, b, l, i);
        }
    }
}

static void compare(const struct product *p, const struct array *arrays)
{
    static const int outputs[] = {D, BIAS, AUX};
    for (size_t o = 0; o < 3; o++) {
        const struct array *array = &arrays[outputs[o]];
        double *got = array_read(array);
        const double scale = p->out == CUDA_R_16BF ? 1.0 / 128 : 1e-5;
        for (size_t i = 0; i < array->count; i++) {
            const double size = fabs(array->values[i]) + (o == 0 ? 1 : sqrt((double)p->k + p->n));
            ck_assert_msg(fabs(got[i] - array->values[i]) <= scale * size,
                          "%dx%dx%d%s%s%s epilogue %u, in %d, out %d, %s[%zu]: %.9g, not %.9g",
                          p->m, p->n, p->k, p->transa ? " A'" : "", p->transb ? " B'" : "",
                          p->rows ? " by rows" : "", p->epilogue, p->in, p->out,
                          (const char *[]){"D", "bias", "aux"}[o], i, got[i], array->values[i]);
        }
        free(got);
    }
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * The simulated product itself: D = epilogue(alpha op(A) op(B) + beta C) with float32 accumulation,
 * by the project's CPU products from a certain size on, on one thread: the same bits for the same
 * call. */
#include "config.h"

#include "tests/cudasim/blas.h"

#include "kernels/bf16.h"
#include "kernels/cpu/gemm.h"
#include "tests/cudasim/device.h"
#include "tests/cudasim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Up to here a plain loop is as fast. */
#define SMALL_PRODUCTS 4096

/* One matrix of a batch after transposition: element (i, j) at data + i * down + j * across. */
struct operand {
    const float *data;
    int64_t down, across;
    float *packed; /* owned: converted from 16 bits or rounded; else NULL */
};

static void *element(const struct blas_matrix *matrix, int64_t batch, int64_t i, int64_t j)
{
    return (char *)matrix->data +
           (batch * matrix->batch_stride + i * matrix->row_stride + j * matrix->column_stride) *
               (int64_t)blas_type_bytes(matrix->type);
}

static float load(const void *address, int32_t type)
{
    uint16_t half;
    float value;
    if (type == CUDA_R_16BF) {
        memcpy(&half, address, sizeof half);
        return ddp_bf16_to_f32(half);
    }
    memcpy(&value, address, sizeof value);
    return value;
}

static void store(void *address, int32_t type, float value)
{
    uint16_t half = ddp_bf16_of(value);
    if (type == CUDA_R_16BF)
        memcpy(address, &half, sizeof half);
    else
        memcpy(address, &value, sizeof value);
}

/* What the tensor cores see of a float32 in the fast compute types. */
static float rounded(float value, int32_t compute)
{
    uint32_t bits;
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF)
        return ddp_bf16_to_f32(ddp_bf16_of(value));
    if (compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !isfinite(value))
        return value;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu; /* 10 bits of mantissa, ties to even */
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Tells the sanitizer of one matrix of a batch, line by line: what lies between is others'. */
static void touch(const struct blas_matrix *matrix, int64_t batch, bool writes)
{
    const bool by_row = matrix->column_stride == 1 && matrix->row_stride != 1;
    const int64_t lines = by_row ? matrix->rows : matrix->columns;
    const size_t bytes =
        (size_t)(by_row ? matrix->columns : matrix->rows) * blas_type_bytes(matrix->type);
    for (int64_t i = 0; i < lines; i++) {
        void *line = by_row ? element(matrix, batch, i, 0) : element(matrix, batch, 0, i);
        if (writes)
            sim_writes(line, bytes);
        else
            sim_reads(line, bytes);
    }
}

static void pack_column(float *to, const struct blas_matrix *matrix, const void *from,
                        int32_t compute)
{
    const int64_t rows = matrix->rows, step = matrix->row_stride;
    if (matrix->type == CUDA_R_16BF) /* which no compute type rounds */
        for (int64_t i = 0; i < rows; i++)
            to[i] = ddp_bf16_to_f32(((const uint16_t *)from)[i * step]);
    else if (matrix->type == CUDA_R_16F)
        for (int64_t i = 0; i < rows; i++)
            to[i] = ddp_f16_to_f32(((const uint16_t *)from)[i * step]);
    else
        for (int64_t i = 0; i < rows; i++)
            to[i] = rounded(((const float *)from)[i * step], compute);
}

static bool prepare(struct operand *operand, const struct blas_matrix *matrix, int64_t batch,
                    bool transposed, int32_t compute)
{
    const bool exact = matrix->type == CUDA_R_32F && compute != CUBLAS_COMPUTE_32F_FAST_16BF &&
                       compute != CUBLAS_COMPUTE_32F_FAST_TF32;
    touch(matrix, batch, false);
    int64_t down = matrix->row_stride, across = matrix->column_stride;
    operand->packed = NULL;
    operand->data = element(matrix, batch, 0, 0);
    if (!exact) {
        operand->packed = malloc((size_t)matrix->rows * (size_t)matrix->columns * sizeof(float));
        if (!operand->packed)
            return false;
        for (int64_t j = 0; j < matrix->columns; j++)
            pack_column(&operand->packed[j * matrix->rows], matrix, element(matrix, batch, 0, j),
                        compute);
        operand->data = operand->packed;
        down = 1;
        across = matrix->rows;
    }
    operand->down = transposed ? across : down;
    operand->across = transposed ? down : across;
    return true;
}

/* A single line may have any stride to the next. */
static int64_t line_stride(int64_t stride, int64_t length)
{
    return stride < length ? length : stride;
}

/* sums (m,n), column by column, over k products. In rows that is sums' (n,m) = op(B)' (n,k) op(A)'
 * (k,m). */
static bool multiply_part(const struct blas_product *product, const struct operand *a,
                          const struct operand *b, int64_t k, float *sums)
{
    const int64_t m = product->m, n = product->n;
    if (m * n <= SMALL_PRODUCTS && m * n * k <= SMALL_PRODUCTS) {
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                float sum = 0;
                for (int64_t p = 0; p < k; p++)
                    sum +=
                        a->data[i * a->down + p * a->across] * b->data[p * b->down + j * b->across];
                sums[j * m + i] = sum;
            }
        return true;
    }
    const bool transpose_b = a->down != 1, transpose_a = b->down != 1;
    const struct ddp_gemm gemm = {
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .m = n,
        .n = m,
        .k = k,
        .a = b->data,
        .b = a->data,
        .c = sums,
        .lda = transpose_a ? line_stride(b->down, n) : line_stride(b->across, k),
        .ldb = transpose_b ? line_stride(a->down, k) : line_stride(a->across, m),
        .ldc = m,
    };
    return ddp_gemm_serial(&gemm) == DDP_OK;
}

/* The Nth candidate adds the first N products of each sum up apart from the others. */
static bool multiply_apart(const struct blas_product *product, const struct operand *a,
                           const struct operand *b, float *sums)
{
    const int64_t count = product->m * product->n, first = product->number;
    if (first == 0 || first >= product->k)
        return multiply_part(product, a, b, product->k, sums);
    const struct operand a2 = {a->data + first * a->across, a->down, a->across, NULL};
    const struct operand b2 = {b->data + first * b->down, b->down, b->across, NULL};
    float *others = malloc((size_t)count * sizeof *others);
    const bool done = others && multiply_part(product, a, b, first, sums) &&
                      multiply_part(product, &a2, &b2, product->k - first, others);
    for (int64_t i = 0; done && i < count; i++)
        sums[i] += others[i];
    free(others);
    return done;
}

/* Of an algorithm that cuts k, the parts are added in the type of D. */
static bool multiply(const struct blas_product *product, const struct operand *a,
                     const struct operand *b, float *sums)
{
    if (product->parts < 2)
        return multiply_apart(product, a, b, sums);
    const int64_t count = product->m * product->n, half = product->k / 2;
    const struct operand a2 = {a->data + half * a->across, a->down, a->across, NULL};
    const struct operand b2 = {b->data + half * b->down, b->down, b->across, NULL};
    float *others = malloc((size_t)count * sizeof *others);
    const bool done = others && multiply_part(product, a, b, half, sums) &&
                      multiply_part(product, &a2, &b2, product->k - half, others);
    for (int64_t i = 0; done && i < count; i++)
        sums[i] = ddp_bf16_to_f32(ddp_bf16_of(sums[i])) + ddp_bf16_to_f32(ddp_bf16_of(others[i]));
    free(others);
    return done;
}

/* --- epilogue --- */
#define GELU_SCALE 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBE  0.044715f

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(GELU_SCALE * (x + GELU_CUBE * x * x * x)));
}

static float gelu_slope(float x)
{
    const float t = tanhf(GELU_SCALE * (x + GELU_CUBE * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBE * x * x);
}

static void *aux_element(const struct blas_product *product, int64_t batch, int64_t i, int64_t j)
{
    const size_t bytes = blas_type_bytes(product->matrix[BLAS_D].type);
    return (char *)product->aux +
           (size_t)(batch * product->aux_stride + j * product->aux_ld + i) * bytes;
}

/* A bit for each element, of a column in whole bytes: aux_ld is a multiple of 128. */
static unsigned char *aux_byte(const struct blas_product *product, int64_t batch, int64_t i,
                               int64_t j)
{
    return (unsigned char *)product->aux +
           (batch * product->aux_stride + j * product->aux_ld + i) / 8;
}

/* One element of a forward epilogue; keeps what the backward one needs. */
static float forward(const struct blas_product *product, int64_t batch, int64_t i, int64_t j,
                     float value)
{
    const uint32_t epilogue = product->epilogue;
    const int32_t type = product->matrix[BLAS_D].type;
    if (epilogue & BLAS_BIAS)
        value += load((char *)product->bias +
                          (size_t)(batch * product->bias_stride + i) * blas_type_bytes(type),
                      type);
    if (epilogue & BLAS_GELU) {
        if (epilogue & BLAS_AUX)
            store(aux_element(product, batch, i, j), type, value);
        return gelu(value);
    }
    if (epilogue & BLAS_RELU) {
        const bool on = value > 0;
        if (epilogue & BLAS_AUX) {
            unsigned char *byte = aux_byte(product, batch, i, j), bit = (unsigned char)(1 << i % 8);
            *byte = (unsigned char)(on ? *byte | bit : *byte & ~bit);
        }
        return on || isnan(value) ? value : 0;
    }
    return value;
}

static float backward(const struct blas_product *product, int64_t batch, int64_t i, int64_t j,
                      float value)
{
    if (product->epilogue & BLAS_DGELU)
        return value *
               gelu_slope(load(aux_element(product, batch, i, j), product->matrix[BLAS_D].type));
    return *aux_byte(product, batch, i, j) >> i % 8 & 1 ? value : 0;
}

static void touch_epilogue(const struct blas_product *product, int64_t batch)
{
    const size_t bytes = blas_type_bytes(product->matrix[BLAS_D].type);
    if (blas_bias_bytes(product) > 0) {
        char *bias = (char *)product->bias + (size_t)(batch * product->bias_stride) * bytes;
        if (product->epilogue & BLAS_BIAS)
            sim_reads(bias, (size_t)blas_bias_length(product) * bytes);
        else
            sim_writes(bias, (size_t)blas_bias_length(product) * bytes);
    }
    if (!(product->epilogue & BLAS_AUX))
        return;
    const bool bits = product->epilogue & (BLAS_RELU | BLAS_DRELU);
    for (int64_t j = 0; j < product->n; j++) {
        void *line = bits ? aux_byte(product, batch, 0, j) : aux_element(product, batch, 0, j);
        const size_t length = bits ? (size_t)(product->m + 7) / 8 : (size_t)product->m * bytes;
        if (product->epilogue & (BLAS_DRELU | BLAS_DGELU))
            sim_reads(line, length);
        else
            sim_writes(line, length);
    }
}

static void finish(const struct blas_product *product, int64_t batch, float alpha, float beta,
                   const float *sums)
{
    const struct blas_matrix *c = &product->matrix[BLAS_C], *d = &product->matrix[BLAS_D];
    const bool back = product->epilogue & (BLAS_DRELU | BLAS_DGELU);
    if (beta != 0)
        touch(c, batch, false);
    touch_epilogue(product, batch);
    touch(d, batch, true);
    for (int64_t j = 0; j < product->n; j++)
        for (int64_t i = 0; i < product->m; i++) {
            float value = alpha * sums[j * product->m + i];
            if (beta != 0)
                value += beta * load(element(c, batch, i, j), c->type);
            if (back)
                value = backward(product, batch, i, j, value);
            else if (product->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
                value = forward(product, batch, i, j, value);
            store(element(d, batch, i, j), d->type, value);
        }
    if (cudasim_wrong(product->matrix[BLAS_A].type == CUDA_R_32F ? "float32" : "bf16"))
        store(element(d, batch, 0, 0), d->type, 77);
}

/* Gradient of a bias: sums of op(A)'s rows, of op(B)'s columns, or of D's rows. */
static void reduce_bias(const struct blas_product *product, int64_t batch, const struct operand *a,
                        const struct operand *b)
{
    const struct blas_matrix *d = &product->matrix[BLAS_D];
    const int64_t length = blas_bias_length(product);
    for (int64_t i = 0; i < length; i++) {
        float sum = 0;
        if (product->epilogue & BLAS_BGRADA)
            for (int64_t p = 0; p < product->k; p++)
                sum += a->data[i * a->down + p * a->across];
        else if (product->epilogue & BLAS_BGRADB)
            for (int64_t p = 0; p < product->k; p++)
                sum += b->data[p * b->down + i * b->across];
        else
            for (int64_t j = 0; j < product->n; j++)
                sum += load(element(d, batch, i, j), d->type);
        store((char *)product->bias +
                  (size_t)(batch * product->bias_stride + i) * blas_type_bytes(d->type),
              d->type, sum);
    }
}

cudaError_t blas_run(void *args)
{
    const struct blas_product *product = args;
    float alpha = product->alpha, beta = product->beta;
    const int64_t fast = blas_setting("DDP_CUDASIM_FAST");
    if (fast && product->number != fast - 1)
        usleep(2000);
    if (product->device_alpha) {
        sim_reads(product->device_alpha, sizeof alpha);
        sim_reads(product->device_beta, sizeof beta);
        alpha = *product->device_alpha;
        beta = *product->device_beta;
    }
    /* Spoiled, as a kernel that splits K would: two products that share it by mistake show. */
    if (product->workspace_bytes > 0)
        memset(product->workspace, 0xff, product->workspace_bytes);
    float *sums = malloc((size_t)product->m * (size_t)product->n * sizeof *sums);
    cudaError_t error = sums ? cudaSuccess : cudaErrorMemoryAllocation;
    for (int64_t batch = 0; error == cudaSuccess && batch < product->batch_count; batch++) {
        struct operand a = {0}, b = {0};
        if (!prepare(&a, &product->matrix[BLAS_A], batch, product->transa, product->compute) ||
            !prepare(&b, &product->matrix[BLAS_B], batch, product->transb, product->compute)) {
            error = cudaErrorMemoryAllocation;
        } else if (!multiply(product, &a, &b, sums)) {
            error = cudaErrorLaunchFailure;
        } else {
            finish(product, batch, alpha, beta, sums);
            if (product->epilogue & (BLAS_BGRAD | BLAS_BGRADA | BLAS_BGRADB))
                reduce_bias(product, batch, &a, &b);
        }
        free(a.packed);
        free(b.packed);
    }
    free(sums);
    return error;
}

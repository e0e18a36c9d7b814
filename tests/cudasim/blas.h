/* SPDX-License-Identifier: MIT
 *
 * Inside the simulated cuBLASLt: what its parts share. blas.c has handles and descriptors,
 * blas_check.c what the real library refuses and the choice of an algorithm, blas_run.c the
 * product. */
#ifndef DDP_TESTS_CUDASIM_BLAS_H
#define DDP_TESTS_CUDASIM_BLAS_H

#include <cublasLt.h>
#include <cublas_v2.h>

#include <stdbool.h>
#include <stdint.h>

enum blas_matrix_name { BLAS_A, BLAS_B, BLAS_C, BLAS_D, BLAS_MATRICES };

/* The contents of NVIDIA's opaque structures. */
struct blas_layout {
    uint32_t magic;
    int32_t type, order, batch_count;
    uint64_t rows, columns;
    int64_t ld, stride;
};

struct blas_desc {
    uint32_t magic;
    int32_t compute, scale, pointer_mode, transa, transb, transc;
    uint32_t epilogue;
    int32_t aux_type, bias_type; /* -1: the type of D */
    int64_t bias_stride, aux_ld, aux_stride;
    void *bias, *aux;
};

struct blas_preference {
    uint32_t magic;
    uint32_t alignment[BLAS_MATRICES]; /* bytes */
    uint32_t reductions;               /* cublasLtReductionScheme_t, those that may be used */
    uint64_t workspace_bytes;
};

struct blas_algo {
    uint32_t magic;
    uint16_t alignment[BLAS_MATRICES]; /* bytes that the caller promised */
    uint16_t bias_alignment, aux_alignment;
    int32_t parts;    /* of k, added in the type of D */
    int32_t number;   /* of the candidate */
    uint64_t problem; /* hash of what it was chosen for */
    uint64_t workspace_bytes;
};

/* One operand: element (i, j) of the matrix is i * row_stride + j * column_stride elements away. */
struct blas_matrix {
    void *data;
    int32_t type;
    int64_t rows, columns, row_stride, column_stride, batch_stride;
};

/* A whole call, as it is enqueued. A and B are as stored; (m,k) and (k,n) after transposition. */
struct blas_product {
    int64_t m, n, k, batch_count;
    struct blas_matrix matrix[BLAS_MATRICES];
    bool transa, transb;
    int32_t compute;
    uint32_t epilogue;
    float alpha, beta;
    const float *device_alpha, *device_beta; /* instead, read when it runs; else NULL */
    void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride;
    void *workspace;
    uint64_t workspace_bytes; /* that the algorithm uses */
    int32_t parts, number;    /* likewise */
};

/* What the environment asks of algorithms; 0 where it says nothing:
 *   DDP_CUDASIM_ALGORITHMS=N  so many are proposed (1), which differ in bits
 *   DDP_CUDASIM_REFUSE=N      the first N of them are refused when they are run
 *   DDP_CUDASIM_FAST=N        all but the Nth of them take 2 ms longer
 *   DDP_CUDASIM_SPAN=N        elements that an operand may span (2^31): a report where it does */
int64_t blas_setting(const char *name);

/* Parts of an epilogue's number. */
enum {
    BLAS_RELU = 2,
    BLAS_BIAS = 4,
    BLAS_DRELU = 8,
    BLAS_BGRAD = 16,
    BLAS_GELU = 32,
    BLAS_DGELU = 64,
    BLAS_AUX = 128,
    BLAS_BGRADA = 256,
    BLAS_BGRADB = 512
};

/* The descriptors behind the handles; NULL for what is none. */
struct blas_layout *blas_layout_of(cublasLtMatrixLayout_t layout);
struct blas_desc *blas_desc_of(cublasLtMatmulDesc_t desc);

/* Says why a call is refused, on stderr, where CUBLASLT_LOG_LEVEL is set; returns the status. */
cublasStatus_t blas_refuse(cublasStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What can be said of a product before there is data: fills `product` but for the pointers. */
cublasStatus_t blas_shape(struct blas_product *product, const struct blas_desc *desc,
                          const struct blas_layout *layout[BLAS_MATRICES]);

/* Aborts with a report where a pointer is not memory of the stream's device. */
void blas_check_memory(const char *call, const struct blas_product *product, int device);

/* Bytes that one matrix with all its batches, the vector of a bias and the aux matrix span. */
size_t blas_matrix_bytes(const struct blas_product *product, enum blas_matrix_name name);
size_t blas_bias_bytes(const struct blas_product *product);
size_t blas_aux_bytes(const struct blas_product *product);
size_t blas_type_bytes(int32_t type);
int64_t blas_bias_length(const struct blas_product *product);

/* The operation: a sim_operation on a struct blas_product. */
cudaError_t blas_run(void *product);

#endif

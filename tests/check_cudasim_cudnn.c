/* SPDX-License-Identifier: MIT
 *
 * The simulated cuDNN: what it refuses, what it proposes, and a graph of one product of its own.
 * That its attention and convolution are right is seen in check_cuda_kernels, against the CPU's. */
#include "config.h"

#include "tests/runner.h"

#include <cudnn.h>
#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { M = 2, K = 3, N = 8 };

static cudnnHandle_t handle;
static cudaStream_t stream;

static void begin(void)
{
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
}

static void end(void)
{
    ck_assert_int_eq(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
}

static cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    ck_assert_int_eq(cudnnBackendCreateDescriptor(type, &descriptor), CUDNN_STATUS_SUCCESS);
    return descriptor;
}

static void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    ck_assert_int_eq(cudnnBackendSetAttribute(descriptor, name, type, count, values),
                     CUDNN_STATUS_SUCCESS);
}

static void finalize(cudnnBackendDescriptor_t descriptor)
{
    ck_assert_int_eq(cudnnBackendFinalize(descriptor), CUDNN_STATUS_SUCCESS);
}

static void destroy(cudnnBackendDescriptor_t descriptor)
{
    ck_assert_int_eq(cudnnBackendDestroyDescriptor(descriptor), CUDNN_STATUS_SUCCESS);
}

/* A tensor (1,1,rows,columns), without its alignment and not finalized. */
static cudnnBackendDescriptor_t half_tensor(int64_t id, int64_t rows, int64_t columns)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const int64_t dims[] = {1, 1, rows, columns};
    const int64_t strides[] = {rows * columns, rows * columns, columns, 1};
    cudnnBackendDescriptor_t tensor = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    return tensor;
}

static cudnnBackendDescriptor_t tensor_of(int64_t id, int64_t rows, int64_t columns)
{
    const int64_t alignment = 16;
    cudnnBackendDescriptor_t tensor = half_tensor(id, rows, columns);
    set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    finalize(tensor);
    return tensor;
}

START_TEST(test_descriptors)
{
    const int64_t one = 1;
    const int32_t word = 1;
    cudnnBackendDescriptor_t tensor = half_tensor(1, M, K);
    ck_assert_int_ne(cudnnBackendFinalize(tensor), CUDNN_STATUS_SUCCESS); /* no alignment */
    ck_assert_int_eq(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
                                              CUDNN_TYPE_DOUBLE, 1, &one),
                     CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    ck_assert_int_ne(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
                                              CUDNN_TYPE_INT64, 2, (const int64_t[]){16, 16}),
                     CUDNN_STATUS_SUCCESS);
    ck_assert_int_ne(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_POINTWISE_MODE,
                                              CUDNN_TYPE_POINTWISE_MODE, 1, &word),
                     CUDNN_STATUS_SUCCESS); /* of another descriptor */
    set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &one);
    finalize(tensor);
    ck_assert_int_ne(cudnnBackendFinalize(tensor), CUDNN_STATUS_SUCCESS); /* twice */
    ck_assert_int_ne(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
                                              CUDNN_TYPE_INT64, 1, &one),
                     CUDNN_STATUS_SUCCESS); /* too late */
    destroy(tensor);
}
END_TEST

/* a (M,K) times b (K or `k`,N). */
static cudnnBackendDescriptor_t product(int64_t k, bool finalized)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t operation = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t a = tensor_of(1, M, K), b = tensor_of(2, k, N);
    cudnnBackendDescriptor_t c = tensor_of(3, M, N), raw = half_tensor(4, M, K);
    set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    ck_assert_int_eq(cudnnBackendSetAttribute(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how),
                     CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    finalize(how);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a);
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b);
    ck_assert_int_ne(cudnnBackendFinalize(operation), CUDNN_STATUS_SUCCESS); /* no result */
    set(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c);
    ck_assert_int_eq(cudnnBackendFinalize(operation) == CUDNN_STATUS_SUCCESS, finalized);
    destroy(how); /* the operation keeps what it refers to */
    destroy(a);
    destroy(b);
    destroy(c);
    destroy(raw);
    return operation;
}

START_TEST(test_shapes)
{
    destroy(product(K + 1, false));
    destroy(product(K, true));
}
END_TEST

/* The plan of one proposal; NULL: refused. */
static cudnnBackendDescriptor_t plan_of(cudnnBackendDescriptor_t configuration)
{
    cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &configuration);
    if (cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS)
        return plan;
    destroy(plan);
    return NULL;
}

/* The third proposal, after one whose bits change and one that is refused. */
static cudnnBackendDescriptor_t plan_product(void)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t operation = product(K, true), configurations[4];
    cudnnBackendDescriptor_t graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t heuristic = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t count = 0;
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation);
    ck_assert_int_ne(cudnnBackendFinalize(graph), CUDNN_STATUS_SUCCESS); /* no handle */
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finalize(graph);
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    for (int i = 0; i < 4; i++)
        configurations[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    ck_assert_int_ne(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 4, &count,
                                              configurations),
                     CUDNN_STATUS_SUCCESS); /* not finalized */
    finalize(heuristic);
    ck_assert_int_eq(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 4, &count,
                                              configurations),
                     CUDNN_STATUS_SUCCESS);
    ck_assert_int_eq(count, 3);
    ck_assert_ptr_null(plan_of(configurations[1]));
    cudnnBackendDescriptor_t plan = plan_of(configurations[2]);
    ck_assert_ptr_nonnull(plan);
    for (int i = 0; i < 4; i++)
        destroy(configurations[i]);
    destroy(heuristic);
    destroy(graph);
    destroy(operation);
    return plan;
}

static cudnnStatus_t execute(cudnnBackendDescriptor_t plan, const int64_t *ids,
                             void *const *pointers, int64_t count)
{
    cudnnBackendDescriptor_t pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    finalize(pack);
    cudnnStatus_t status = cudnnBackendExecute(handle, plan, pack);
    destroy(pack);
    return status;
}

START_TEST(test_execution)
{
    const float a[M * K] = {1, 2, 3, 4, 5, 6};
    float b[K * N], expected[M * N];
    for (int i = 0; i < K * N; i++) /* columns of a, again and again */
        b[i] = i % N % K == i / N;
    for (int i = 0; i < M * N; i++)
        expected[i] = a[i / N * K + i % N % K];
    const int64_t ids[] = {1, 2, 3, 5};
    float c[M * N];
    char *memory = NULL;
    ck_assert_int_eq(cudaMalloc((void **)&memory, 1024), cudaSuccess);
    void *pointers[] = {memory, memory + 256, memory + 512, memory + 768};
    cudnnBackendDescriptor_t plan = plan_product();
    ck_assert_int_eq(cudaMemcpy(pointers[0], a, sizeof a, cudaMemcpyHostToDevice), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(pointers[1], b, sizeof b, cudaMemcpyHostToDevice), cudaSuccess);
    ck_assert_int_ne(execute(plan, ids, pointers, 2), CUDNN_STATUS_SUCCESS); /* one is missing */
    ck_assert_int_ne(execute(plan, ids, pointers, 4), CUDNN_STATUS_SUCCESS); /* one too many */
    pointers[2] = memory + 516;
    ck_assert_int_eq(execute(plan, ids, pointers, 3), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    pointers[2] = memory + 512;
    ck_assert_int_eq(execute(plan, ids, pointers, 3), CUDNN_STATUS_SUCCESS);
    destroy(plan); /* the execution does not need it */
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(c, pointers[2], sizeof c, cudaMemcpyDeviceToHost), cudaSuccess);
    ck_assert_mem_eq(c, expected, sizeof c);
    ck_assert_int_eq(cudaFree(memory), cudaSuccess);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cudasim_cudnn");
    TCase *tc = test_case(suite, "cudnn", 30);
    tcase_add_checked_fixture(tc, begin, end);
    tcase_add_test(tc, test_descriptors);
    tcase_add_test(tc, test_shapes);
    tcase_add_test(tc, test_execution);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * The simulated cuBLASLt against loops in double precision: all epilogues, transpositions, types,
 * edge sizes, batches; what it refuses; its place in streams and graphs. */
#include "config.h"

#include "tests/cudasim/cudasim_blas_test.h"

#include <signal.h>

static void setup(void)
{
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    BLAS_OK(cublasLtCreate(&blas));
}

static void teardown(void)
{
    BLAS_OK(cublasLtDestroy(blas));
    CUDA_OK(cudaStreamDestroy(stream));
}

static void check(const struct product *p)
{
    struct array arrays[ARRAYS];
    struct call call;
    arrays_create(arrays, p);
    call_create(&call, p, arrays);
    BLAS_OK(multiply(&call, p, arrays));
    reference(p, arrays);
    compare(p, arrays);
    call_free(&call);
    arrays_free(arrays);
}

static const struct product plain = {.m = 5,
                                     .n = 4,
                                     .k = 3,
                                     .batches = 1,
                                     .in = CUDA_R_32F,
                                     .out = CUDA_R_32F,
                                     .alpha = 1,
                                     .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                     .compute = CUBLAS_COMPUTE_32F};

static const int shapes[][3] = {{1, 1, 1},    {3, 5, 7},     {16, 8, 32},  {17, 33, 9},
                                {64, 48, 80}, {130, 70, 50}, {1, 300, 40}, {300, 1, 40}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static const int types[][2] = {{CUDA_R_32F, CUDA_R_32F},
                               {CUDA_R_16BF, CUDA_R_32F},
                               {CUDA_R_16BF, CUDA_R_16BF},
                               {CUDA_R_16F, CUDA_R_32F}};

static const uint32_t epilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_RELU,        CUBLASLT_EPILOGUE_RELU_AUX,
    CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_DRELU,    CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,
    CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
    CUBLASLT_EPILOGUE_BGRADB};
#define EPILOGUES (sizeof epilogues / sizeof epilogues[0])

/* Every shape with every pair of types and transpositions. */
START_TEST(test_shapes)
{
    for (int variant = 0; variant < 12; variant++) {
        struct product p = plain;
        p.m = shapes[_i][0];
        p.n = shapes[_i][1];
        p.k = shapes[_i][2];
        p.in = types[variant / 4][0];
        p.out = types[variant / 4][1];
        p.transa = variant & 1;
        p.transb = variant & 2;
        check(&p);
        p.pad = 3;
        p.rows = true;
        p.beta = 1;
        p.in_place = variant & 1;
        check(&p);
    }
}
END_TEST

/* Every epilogue with every pair of types, beside the other variants. */
START_TEST(test_epilogues)
{
    for (int variant = 0; variant < 12; variant++) {
        struct product p = plain;
        const int *shape = shapes[(_i + variant) % (int)SHAPES];
        p.epilogue = epilogues[_i];
        p.m = shape[0];
        p.n = shape[1];
        p.k = shape[2];
        p.in = types[variant % 3][0];
        p.out = types[variant % 3][1];
        p.transa = variant & 1;
        p.transb = variant & 2;
        p.pad = variant & 4 ? 5 : 0;
        p.batches = variant & 2 ? 3 : 1;
        p.alpha = variant & 1 ? 0.5f : 1;
        p.beta = variant & 4 ? -1.5f : 0;
        p.no_algorithm = variant == 5;
        check(&p);
    }
}
END_TEST

/* The fast types see operands of fewer bits. */
START_TEST(test_fast_types)
{
    struct array arrays[ARRAYS];
    struct call call;
    struct product p = plain;
    p.m = p.n = p.k = 1;
    const float values[] = {1 + 0x1p-9f, 1 + 0x1p-10f, 1 + 0x1p-11f + 0x1p-12f};
    const int computes[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                            CUBLAS_COMPUTE_32F_FAST_16BF};
    const double expected[3][3] = {{1 + 0x1p-9, 1 + 0x1p-10, 1 + 0x1p-11 + 0x1p-12},
                                   {1 + 0x1p-9, 1 + 0x1p-10, 1 + 0x1p-10},
                                   {1, 1, 1}};
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 3; v++) {
            const float one = 1;
            p.compute = computes[c];
            arrays_create(arrays, &p);
            call_create(&call, &p, arrays);
            CUDA_OK(cudaMemcpy(arrays[A].device, &values[v], 4, cudaMemcpyHostToDevice));
            CUDA_OK(cudaMemcpy(arrays[B].device, &one, 4, cudaMemcpyHostToDevice));
            BLAS_OK(multiply(&call, &p, arrays));
            double *got = array_read(&arrays[D]);
            ck_assert_double_eq(got[0], expected[c][v]);
            free(got);
            call_free(&call);
            arrays_free(arrays);
        }
}
END_TEST

/* A sum of a bf16 result may be cut into parts that are rounded, unless that is forbidden: a call
 * without an algorithm does not cut. */
START_TEST(test_parts)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    p.m = p.n = 16;
    p.k = 300;
    p.in = p.out = CUDA_R_16BF;
    double *results[3];
    for (int i = 0; i < 3; i++) {
        const uint32_t in_float = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        if (i == 0)
            arrays_create(arrays, &p);
        allowed_reductions = i == 1 ? &in_float : NULL;
        p.no_algorithm = i == 2;
        call_create(&call, &p, arrays);
        BLAS_OK(multiply(&call, &p, arrays));
        results[i] = array_read(&arrays[D]);
        call_free(&call);
    }
    allowed_reductions = NULL;
    const size_t bytes = arrays[D].count * sizeof *results[0];
    ck_assert(memcmp(results[0], results[2], bytes) != 0);
    ck_assert(memcmp(results[1], results[2], bytes) == 0);
    for (int i = 0; i < 3; i++)
        free(results[i]);
    arrays_free(arrays);
}
END_TEST

/* --- what is refused --- */
static cublasStatus_t heuristic_of(const struct product *p,
                                   cublasLtMatrixLayoutAttribute_t attribute, int matrix,
                                   const void *value, size_t bytes)
{
    struct array arrays[ARRAYS];
    struct call call;
    struct product other = *p;
    other.no_algorithm = true;
    arrays_create(arrays, p);
    call_create(&call, &other, arrays);
    if (value)
        BLAS_OK(cublasLtMatrixLayoutSetAttribute(call.layout[matrix], attribute, value, bytes));
    cublasStatus_t status = choose(&call, 0);
    if (status == CUBLAS_STATUS_SUCCESS)
        ck_assert_uint_eq(call.found.workspaceSize, 0);
    /* Without an algorithm the call itself finds the same. */
    ck_assert_int_eq(multiply(&call, &other, arrays), status);
    CUDA_OK(cudaStreamSynchronize(stream));
    call_free(&call);
    arrays_free(arrays);
    return status;
}

START_TEST(test_refused_layouts)
{
    const uint64_t rows = 6, none = 0;
    const int64_t ld = 4;
    const int32_t type = CUDA_R_64F, bf16 = CUDA_R_16BF, batches = 2, order = 2;
    ck_assert_int_eq(heuristic_of(&plain, 0, A, NULL, 0), CUBLAS_STATUS_SUCCESS);
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_ROWS, A, &rows, sizeof rows),
                     CUBLAS_STATUS_INVALID_VALUE); /* ld is 5 */
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_COLS, B, &rows, sizeof rows),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_COLS, D, &none, sizeof none),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_LD, D, &ld, sizeof ld),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_TYPE, A, &type, sizeof type),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_TYPE, B, &bf16, sizeof bf16),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    ck_assert_int_eq(
        heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, A, &batches, sizeof batches),
        CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(heuristic_of(&plain, CUBLASLT_MATRIX_LAYOUT_ORDER, A, &order, sizeof order),
                     CUBLAS_STATUS_NOT_SUPPORTED);
}
END_TEST

START_TEST(test_refused_epilogues)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    const int64_t odd = 12, small = 0;
    void *none = NULL;
    p.epilogue = 3;
    ck_assert_int_eq(heuristic_of(&p, 0, A, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    p.rows = true;
    ck_assert_int_eq(heuristic_of(&p, 0, A, NULL, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    p.rows = false;
    p.compute = CUBLAS_COMPUTE_64F;
    ck_assert_int_eq(heuristic_of(&p, 0, A, NULL, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    p.compute = CUBLAS_COMPUTE_32F;
    p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    arrays_create(arrays, &p);
    call_create(&call, &p, arrays);
    set(call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &odd, sizeof odd);
    ck_assert_int_eq(choose(&call, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    set(call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &small, sizeof small);
    ck_assert_int_eq(choose(&call, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    call_free(&call);
    call_create(&call, &p, arrays);
    set(call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &none, sizeof none);
    ck_assert_int_eq(multiply(&call, &p, arrays), CUBLAS_STATUS_INVALID_VALUE);
    call_free(&call);
    call_create(&call, &p, arrays);
    set(call.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &none, sizeof none);
    ck_assert_int_eq(multiply(&call, &p, arrays), CUBLAS_STATUS_INVALID_VALUE);
    call_free(&call);
    arrays_free(arrays);
    ck_assert_int_eq(cublasLtMatmulDescSetAttribute(NULL, CUBLASLT_MATMUL_DESC_TRANSA, &odd, 4),
                     CUBLAS_STATUS_INVALID_VALUE);
}
END_TEST

START_TEST(test_refused_algorithms)
{
    struct product p = plain, larger = plain;
    struct array arrays[ARRAYS], others[ARRAYS];
    struct call call, other;
    larger.k = 9;
    arrays_create(arrays, &p);
    arrays_create(others, &larger);
    call_create(&call, &p, arrays);
    call_create(&other, &larger, others);
    const cublasLtMatmulHeuristicResult_t found = call.found;
    call.found = other.found;
    ck_assert_int_eq(multiply(&call, &p, arrays), CUBLAS_STATUS_INVALID_VALUE);
    call.found = found;
    call.workspace_bytes--;
    ck_assert_int_eq(multiply(&call, &p, arrays), CUBLAS_STATUS_INVALID_VALUE);
    call.workspace_bytes++;
    BLAS_OK(multiply(&call, &p, arrays));
    memset(&call.found.algo, 0, sizeof call.found.algo);
    ck_assert_int_eq(multiply(&call, &p, arrays), CUBLAS_STATUS_INVALID_VALUE);
    call_free(&call);
    call_free(&other);
    arrays_free(arrays);
    arrays_free(others);
}
END_TEST

/* An operand that lies where its alignment was not promised: a fault on a GPU. */
START_TEST(test_broken_promise)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    arrays_create(arrays, &p);
    call_create(&call, &p, arrays);
    arrays[A].device = (char *)arrays[A].device + 4;
    multiply(&call, &p, arrays);
}
END_TEST

/* A matrix that ends behind its allocation. */
START_TEST(test_too_long)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    p.m = p.n = p.k = 64;
    arrays_create(arrays, &p);
    call_create(&call, &p, arrays);
    CUDA_OK(cudaFree(arrays[B].device));
    CUDA_OK(cudaMalloc(&arrays[B].device, 63 * 64 * 4));
    multiply(&call, &p, arrays);
}
END_TEST

START_TEST(test_host_pointer)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    arrays_create(arrays, &p);
    call_create(&call, &p, arrays);
    arrays[A].device = aligned_alloc(256, 256);
    multiply(&call, &p, arrays);
}
END_TEST

/* --- streams and graphs --- */
START_TEST(test_graph)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    p.m = p.n = p.k = 40;
    p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    arrays_create(arrays, &p);
    call_create(&call, &p, arrays);
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    BLAS_OK(multiply(&call, &p, arrays));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        float *fresh = malloc(arrays[A].bytes);
        for (size_t i = 0; i < arrays[A].count; i++)
            fresh[i] = (float)(arrays[A].values[i] = uniform());
        CUDA_OK(cudaMemcpy(arrays[A].device, fresh, arrays[A].bytes, cudaMemcpyHostToDevice));
        free(fresh);
        CUDA_OK(cudaGraphLaunch(exec, stream));
        reference(&p, arrays);
        compare(&p, arrays);
    }
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    call_free(&call);
    arrays_free(arrays);
}
END_TEST

/* The same call gives the same bits, and alpha and beta may lie on the device. */
START_TEST(test_repeats)
{
    struct product p = plain;
    struct array arrays[ARRAYS];
    struct call call;
    float *scales;
    const float host[2] = {0.25f, 2};
    const int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    p.m = 200;
    p.n = 100;
    p.k = 333;
    p.alpha = host[0];
    p.beta = host[1];
    arrays_create(arrays, &p);
    call_create(&call, &p, arrays);
    BLAS_OK(multiply(&call, &p, arrays));
    double *first = array_read(&arrays[D]);
    CUDA_OK(cudaMalloc((void **)&scales, sizeof host));
    CUDA_OK(cudaMemcpy(scales, host, sizeof host, cudaMemcpyHostToDevice));
    set(call.desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode);
    CUDA_OK(cudaMemsetAsync(arrays[D].device, 0, arrays[D].bytes, stream));
    BLAS_OK(cublasLtMatmul(blas, call.desc, &scales[0], arrays[A].device, call.layout[A],
                           arrays[B].device, call.layout[B], &scales[1], arrays[C].device,
                           call.layout[C], arrays[D].device, call.layout[D], &call.found.algo,
                           call.workspace, call.workspace_bytes, stream));
    double *second = array_read(&arrays[D]);
    ck_assert_mem_eq(first, second, arrays[D].count * sizeof *first);
    free(first);
    free(second);
    CUDA_OK(cudaFree(scales));
    call_free(&call);
    arrays_free(arrays);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cudasim_blas");
    TCase *products = test_case(suite, "products", 60);
    tcase_add_checked_fixture(products, setup, teardown);
    tcase_add_loop_test(products, test_shapes, 0, (int)SHAPES);
    tcase_add_loop_test(products, test_epilogues, 0, (int)EPILOGUES);
    tcase_add_test(products, test_fast_types);
    tcase_add_test(products, test_parts);
    tcase_add_test(products, test_graph);
    tcase_add_test(products, test_repeats);
    TCase *refused = test_case(suite, "refused", 30);
    tcase_add_checked_fixture(refused, setup, teardown);
    tcase_add_test(refused, test_refused_layouts);
    tcase_add_test(refused, test_refused_epilogues);
    tcase_add_test(refused, test_refused_algorithms);
    tcase_add_test_raise_signal(refused, test_broken_promise, SIGABRT);
    tcase_add_test_raise_signal(refused, test_too_long, SIGABRT);
    tcase_add_test_raise_signal(refused, test_host_pointer, SIGABRT);
    return suite;
}

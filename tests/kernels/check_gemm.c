/* SPDX-License-Identifier: MIT
 *
 * The product: both fast versions against the reference, bits over thread counts, epilogues, bad
 * arguments. */
#include "config.h"

#include "kernels/cpu/gemm.h"
#include "tests/kernels/reference/reference.h"
#include "tests/lib/runner.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#define OPERANDS_BF16 false
typedef float operand;

static operand operand_from(float value)
{
    return value;
}

#include "tests/kernels/gemm_test.inc"

/* The whole at once is the same product. */
START_TEST(test_serial)
{
    random_seed(9);
    for (int64_t m = 0; m < 300; m = 2 * m + 1)
        for (int64_t k = 0; k < 200; k = 2 * k + 1) {
            const int64_t n = m + 7;
            float *a = array_of(m * k), *b = array_of(k * n), *c = array_of(m * n),
                  *expected = array_copy(c, m * n);
            struct ddp_gemm gemm = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = expected};
            gemm.lda = k;
            gemm.ldb = gemm.ldc = n;
            gemm.beta = 1;
            ck_assert_int_eq(ddp_gemm_reference(&gemm, NULL), DDP_OK);
            gemm.c = c;
            ck_assert_int_eq(ddp_gemm_serial(&gemm), DDP_OK);
            ck_assert(largest_difference(c, expected, m * n) <= product_tolerance(k));
            array_free(a, m * k);
            array_free(b, k * n);
            array_free(c, m * n);
            array_free(expected, m * n);
        }
}
END_TEST

START_TEST(test_serial_arguments)
{
    float x[4] = {1, 2, 3, 4};
    struct ddp_gemm bad = {
        .m = 2, .n = 2, .k = 2, .a = x, .b = x, .c = x, .lda = 2, .ldb = 2, .ldc = 1};
    ck_assert_int_eq(ddp_gemm_serial(&bad), DDP_ERR_INVALID);
    bad.ldc = 2;
    bad.c = NULL;
    ck_assert_int_eq(ddp_gemm_serial(&bad), DDP_ERR_INVALID);
}
END_TEST

static atomic_int ticks;
static atomic_int off_stack; /* a handler ran where this thread has no stack */
static char *stack_begin, *stack_end;

static void tick(int signal)
{
    const char *here = __builtin_frame_address(0);
    (void)signal;
    atomic_fetch_add(&ticks, 1);
    if (here < stack_begin || here >= stack_end)
        atomic_store(&off_stack, 1);
}

/* oneDNN's generated code keeps something else in the stack pointer: no handler may run in it. */
START_TEST(test_signals)
{
    const int64_t m = 256, n = 384, k = 784;
    const struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    const struct itimerval often = {{.tv_usec = 100}, {.tv_usec = 100}}, never = {{0}, {0}};
    pthread_attr_t attributes;
    size_t bytes;
    void *base;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &base, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = base;
    stack_end = stack_begin + bytes;

    float *a = array_of(m * k), *b = array_of(k * n), *c = array_of(m * n);
    struct ddp_gemm gemm = {
        .m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .lda = k, .ldb = n, .ldc = n};
    struct sigaction before;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 100000 && atomic_load(&ticks) < 500; i++) {
        ck_assert_int_eq(i % 2 ? ddp_gemm(&gemm, NULL) : ddp_gemm_serial(&gemm), DDP_OK);
        ck_assert_int_eq(atomic_load(&off_stack), 0);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    ck_assert_int_gt(atomic_load(&ticks), 0);
    array_free(a, m * k);
    array_free(b, k * n);
    array_free(c, m * n);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gemm");
    TCase *tc = product_case(suite, "gemm");
    tcase_add_test(tc, test_serial);
    tcase_add_test(tc, test_serial_arguments);
    tcase_add_test(tc, test_signals);
    return suite;
}

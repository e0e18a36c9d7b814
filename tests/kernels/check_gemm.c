/* SPDX-License-Identifier: MIT
 *
 * The product: the bits that gemm.h defines on every instruction set of this machine and for any
 * number of threads, epilogues, bad arguments. */
#include "config.h"

#include "kernels/cpu/gemm.h"
#include "tests/kernels/reference/reference.h"
#include "tests/lib/runner.h"

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

Suite *test_suite(void)
{
    Suite *suite = suite_create("gemm");
    TCase *tc = product_case(suite, "gemm");
    tcase_add_test(tc, test_serial);
    tcase_add_test(tc, test_serial_arguments);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * The product: both fast versions against the reference, bits over thread counts, epilogues, bad
 * arguments. */
#include "config.h"

#include "kernels/gemm.h"
#include "tests/kernels_test.h"

typedef enum ddp_status gemm_function(const struct ddp_gemm *gemm, void *stream);
static gemm_function *const versions[] = {ddp_gemm, ddp_gemm_plain};

/* Leading dimensions are `extra` longer than a row. */
static void check_product(int64_t m, int64_t n, int64_t k, bool ta, bool tb, float beta,
                          int64_t extra)
{
    struct ddp_gemm gemm = {.transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k};
    gemm.lda = (ta ? m : k) + extra;
    gemm.ldb = (tb ? k : n) + extra;
    gemm.ldc = n + extra;
    gemm.beta = beta;
    const int64_t a_count = (ta ? k : m) * gemm.lda, b_count = (tb ? n : k) * gemm.ldb,
                  c_count = m * gemm.ldc;
    float *a = array_of(a_count), *b = array_of(b_count), *before = array_of(c_count);
    float *expected = array_copy(before, c_count);
    gemm.a = a;
    gemm.b = b;
    gemm.c = expected;
    ck_assert_int_eq(ddp_gemm_reference(&gemm, NULL), DDP_OK);

    for (size_t version = 0; version < sizeof versions / sizeof versions[0]; version++) {
        float *first = NULL;
        for (int pool = 0; pool < POOLS; pool++) {
            float *c = array_copy(before, c_count);
            gemm.c = c;
            ck_assert_int_eq(versions[version](&gemm, pools[pool]), DDP_OK);
            double worst = largest_difference(c, expected, c_count);
            ck_assert_msg(worst <= product_tolerance(k),
                          "%lld x %lld x %lld, version %zu: differs by %g", (long long)m,
                          (long long)n, (long long)k, version, worst);
            if (!first) {
                first = c;
                continue;
            }
            ck_assert_msg(same_bits(c, first, c_count),
                          "%lld x %lld x %lld, version %zu: other bits on %d threads", (long long)m,
                          (long long)n, (long long)k, version, pool_threads[pool]);
            array_free(c, c_count);
        }
        array_free(first, c_count);
    }
    array_free(a, a_count);
    array_free(b, b_count);
    array_free(before, c_count);
    array_free(expected, c_count);
}

static const int64_t shapes[][3] = {
    {0, 0, 0},    {0, 3, 2},      {3, 0, 2},      {3, 2, 0},       {1, 1, 1},       {5, 15, 255},
    {6, 16, 256}, {7, 17, 257},   {32, 10, 64},   {47, 63, 31},    {48, 64, 256},   {49, 65, 257},
    {1, 512, 64}, {255, 383, 33}, {256, 384, 32}, {257, 385, 100}, {300, 128, 784}, {32, 512, 784},
};

START_TEST(test_shapes)
{
    random_seed((uint64_t)_i);
    for (int flags = 0; flags < 8; flags++)
        check_product(shapes[_i][0], shapes[_i][1], shapes[_i][2], flags & 1, flags & 2,
                      flags & 4 ? 1.0f : 0.0f, flags == 5 ? 3 : 0);
}
END_TEST

START_TEST(test_random_shapes)
{
    random_seed((uint64_t)_i + 100);
    for (int round = 0; round < 5; round++) {
        int64_t flags = random_below(8);
        check_product(1 + random_below(150), 1 + random_below(400), 1 + random_below(300),
                      flags & 1, flags & 2, flags & 4 ? 1.0f : 0.0f, random_below(3));
    }
}
END_TEST

/* With beta 0 what C held does not matter, NaN included; a NaN of an operand arrives. */
START_TEST(test_nan)
{
    for (size_t version = 0; version < sizeof versions / sizeof versions[0]; version++)
        for (int64_t k = 0; k < 2; k++) {
            float a[2] = {1, 1}, b[2] = {2, NAN}, c[4] = {NAN, NAN, NAN, NAN};
            struct ddp_gemm gemm = {
                .m = 2, .n = 2, .k = k, .a = a, .b = b, .c = c, .lda = 1, .ldb = 2, .ldc = 2};
            ck_assert_int_eq(versions[version](&gemm, NULL), DDP_OK);
            ck_assert(c[0] == (k ? 2 : 0) && c[2] == c[0]);
            ck_assert(k ? isnan(c[1]) && isnan(c[3]) : c[1] == 0 && c[3] == 0);
        }
}
END_TEST

static void add_one(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    float *c = arg;
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = column; j < column + columns; j++)
            c[i * 700 + j] += 1;
}

/* Each element of C passes through the epilogue once, after its product. */
START_TEST(test_epilogue)
{
    const int64_t m = 300, n = 700, k = 20;
    for (int version = 0; version < 3; version++)
        for (int64_t depth = 0; depth <= k; depth += k) {
            float *a = array_of(m * k), *b = array_of(k * n), *c = array_of(m * n),
                  *expected = array_of(m * n);
            struct ddp_gemm gemm = {.m = m, .n = n, .k = depth, .a = a, .b = b, .c = expected};
            gemm.lda = k;
            gemm.ldb = gemm.ldc = n;
            gemm_function *function = version == 2 ? ddp_gemm_reference : versions[version];
            ck_assert_int_eq(function(&gemm, NULL), DDP_OK);
            gemm.c = gemm.epilogue_arg = c;
            gemm.epilogue = add_one;
            ck_assert_int_eq(function(&gemm, pools[1]), DDP_OK);
            for (int64_t i = 0; i < m * n; i++)
                ck_assert_float_eq(c[i], expected[i] + 1);
            array_free(a, m * k);
            array_free(b, k * n);
            array_free(c, m * n);
            array_free(expected, m * n);
        }
}
END_TEST

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

START_TEST(test_arguments)
{
    float x[4] = {1, 2, 3, 4};
    const struct ddp_gemm good = {
        .m = 2, .n = 2, .k = 2, .a = x, .b = x, .c = x, .lda = 2, .ldb = 2, .ldc = 2};
    struct ddp_gemm bad[9];
    for (int i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].m = -1;
    bad[1].n = -1;
    bad[2].k = -1;
    bad[3].lda = 1;
    bad[4].ldb = 1;
    bad[5].ldc = 1;
    bad[6].a = NULL;
    bad[7].b = NULL;
    bad[8].c = NULL;
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(ddp_gemm(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_gemm_plain(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_gemm_serial(&bad[i]), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_gemm_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gemm");
    TCase *tc = kernel_case(suite, "gemm");
    tcase_add_loop_test(tc, test_shapes, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_loop_test(tc, test_random_shapes, 0, 4);
    tcase_add_test(tc, test_nan);
    tcase_add_test(tc, test_epilogue);
    tcase_add_test(tc, test_serial);
    tcase_add_test(tc, test_arguments);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * Sums and copies of arrays: every form, in place, over thread counts. */
#include "config.h"

#include "kernels/add.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const int64_t counts[] = {0, 1, 15, 16, 17, 32767, 32768, 32769, 100003};

START_TEST(test_forms)
{
    const int64_t n = counts[_i];
    random_seed((uint64_t)_i);
    float *a = array_of(n), *b = array_of(n), *before = array_of(n);
    for (int flags = 0; flags < 6; flags++) {
        struct ddp_add args = {.count = n, .a = a, .accumulate = flags & 1};
        args.scale = flags & 4 ? -0.3f : 0;
        args.b = flags & 2 ? b : NULL;
        float *expected = array_copy(before, n);
        args.y = expected;
        ck_assert_int_eq(ddp_add_reference(&args, NULL), DDP_OK);
        for (int64_t i = 0; i < n; i++) {
            float sum = flags & 2 ? a[i] + b[i] : flags & 4 ? -0.3f * a[i] : a[i];
            ck_assert_float_eq(expected[i], flags & 1 ? before[i] + sum : sum);
        }
        for (int pool = 0; pool < POOLS; pool++) {
            float *y = array_copy(before, n);
            args.y = y;
            ck_assert_int_eq(ddp_add(&args, pools[pool]), DDP_OK);
            ck_assert(same_bits(y, expected, n));
            array_free(y, n);
        }
        array_free(expected, n);
    }
    array_free(a, n);
    array_free(b, n);
    array_free(before, n);
}
END_TEST

START_TEST(test_in_place)
{
    enum { N = 1001 };
    random_seed(1);
    float *a = array_of(N), *b = array_of(N), *expected = array_of(N), *y;
    struct ddp_add args = {.count = N, .a = a, .b = b, .y = expected};
    ck_assert_int_eq(ddp_add_reference(&args, NULL), DDP_OK);
    for (int second = 0; second < 2; second++) {
        y = array_copy(second ? b : a, N);
        args.a = second ? a : y;
        args.b = second ? y : b;
        args.y = y;
        ck_assert_int_eq(ddp_add(&args, pools[1]), DDP_OK);
        ck_assert(same_bits(y, expected, N));
        array_free(y, N);
    }
    y = array_copy(a, N); /* a copy onto itself */
    args = (struct ddp_add){.count = N, .a = y, .y = y};
    ck_assert_int_eq(ddp_add(&args, NULL), DDP_OK);
    ck_assert(same_bits(y, a, N));
    array_free(y, N);
    array_free(a, N);
    array_free(b, N);
    array_free(expected, N);
}
END_TEST

START_TEST(test_arguments)
{
    float a = 1, y = 9;
    const struct ddp_add bad[] = {
        {.count = -1, .a = &a, .y = &y}, {.count = 1, .y = &y}, {.count = 1, .a = &a}};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ddp_add(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_add_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    a = NAN; /* what is overwritten may be anything */
    const struct ddp_add good = {.count = 1, .a = &y, .y = &a};
    ck_assert_int_eq(ddp_add(&good, NULL), DDP_OK);
    ck_assert(a == 9);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("add");
    TCase *tc = kernel_case(suite, "add");
    tcase_add_loop_test(tc, test_forms, 0, sizeof counts / sizeof counts[0]);
    tcase_add_test(tc, test_in_place);
    tcase_add_test(tc, test_arguments);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * The comparisons that other tests stand on: tests/kernels/kernels_test.h. */
#include "config.h"

#include "tests/kernels/kernels_test.h"

#define COUNT 5

/* A NaN on either side or on both, at each place: it is not forgotten at the next element. */
START_TEST(test_nan)
{
    for (int at = 0; at < COUNT; at++)
        for (int sides = 1; sides < 4; sides++) {
            float a[COUNT] = {1, 2, 3, 4, 5}, b[COUNT] = {1, 2, 3, 4, 5};
            a[at] = sides & 1 ? NAN : a[at];
            b[at] = sides & 2 ? -NAN : b[at];
            ck_assert(isinf(largest_difference(a, b, COUNT)));
        }
    ck_assert(isinf(larger(NAN, 1)) && isinf(larger(1, NAN)) && isinf(larger(NAN, NAN)));
}
END_TEST

START_TEST(test_numbers)
{
    const float a[COUNT] = {1, -2, 0, INFINITY, -INFINITY};
    const float b[COUNT] = {1.5f, -2.25f, -0.0f, INFINITY, -INFINITY};
    ck_assert(largest_difference(a, b, COUNT) == 0.5);
    ck_assert(largest_difference(b, a, COUNT) == 0.5);
    ck_assert(largest_difference(a + 1, b + 1, COUNT - 1) == 0.25);
    ck_assert(largest_difference(a, a, COUNT) == 0 && largest_difference(a, b, 0) == 0);
    ck_assert(isinf(largest_difference(a + 3, b + 4, 1)));
    ck_assert(isinf(largest_difference(a, b + 3, 1)));
    ck_assert(largest_size(b, 3) == 2.25 && largest_size(b, 0) == 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("difference");
    TCase *tc = test_case(suite, "difference", 10);
    tcase_add_test(tc, test_nan);
    tcase_add_test(tc, test_numbers);
    return suite;
}

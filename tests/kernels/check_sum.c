/* SPDX-License-Identifier: MIT
 *
 * The sum and its gradient. */
#include "config.h"

#include "kernels/sum.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const int64_t counts[] = {0,     1,     2,     15,    16,    17,      255,    16383,
                                 16384, 16385, 32768, 50001, 99999, 4194304, 5000003};

START_TEST(test_counts)
{
    const int64_t n = counts[_i];
    random_seed((uint64_t)_i);
    float *x = array_of(n), *dx = array_of(n), first = 0, dy = random_number();
    double exact = 0;
    for (int64_t i = 0; i < n; i++)
        exact += (double)x[i];
    for (int pool = 0; pool < POOLS; pool++) {
        float y = NAN;
        struct ddp_sum_forward forward = {.count = n, .x = x, .y = &y};
        ck_assert_int_eq(ddp_sum_forward(&forward, pools[pool]), DDP_OK);
        /* doubles lose nothing that a float would show, but for the last rounding */
        ck_assert(fabs((double)y - exact) <= fabs(exact) * 6e-8 + 1e-9);
        if (pool == 0)
            first = y;
        ck_assert_msg(same_bits(&y, &first, 1), "other bits on %d threads", pool_threads[pool]);
        ck_assert_int_eq(ddp_sum_forward_reference(&forward, NULL), DDP_OK);
        ck_assert_float_eq(y, (float)exact);

        struct ddp_sum_backward backward = {.count = n, .dy = &dy, .dx = dx};
        memset(dx, 0, (size_t)n * sizeof *dx);
        ck_assert_int_eq(
            (pool ? ddp_sum_backward : ddp_sum_backward_reference)(&backward, pools[pool]), DDP_OK);
        bool filled = true;
        for (int64_t i = 0; i < n; i++)
            filled = filled && dx[i] == dy;
        ck_assert(filled);
    }
    array_free(x, n);
    array_free(dx, n);
}
END_TEST

static double loss_of(void *arg)
{
    struct ddp_sum_forward *forward = arg;
    ck_assert_int_eq(ddp_sum_forward(forward, NULL), DDP_OK);
    return 0.75 * (double)*forward->y;
}

START_TEST(test_gradient)
{
    float x[9], dx[9], y, dy = 0.75f;
    random_seed(1);
    for (int i = 0; i < 9; i++)
        x[i] = random_number();
    struct ddp_sum_forward forward = {.count = 9, .x = x, .y = &y};
    struct ddp_sum_backward backward = {.count = 9, .dy = &dy, .dx = dx};
    ck_assert_int_eq(ddp_sum_backward(&backward, NULL), DDP_OK);
    check_gradient("x", x, dx, 9, loss_of, &forward, 1e-4);
}
END_TEST

START_TEST(test_arguments)
{
    float x = 1, y;
    struct ddp_sum_forward forward[] = {
        {-1, DDP_F32, &x, &y}, {1, DDP_F32, NULL, &y}, {1, DDP_F32, &x, NULL}};
    struct ddp_sum_backward backward[] = {
        {-1, DDP_F32, &y, &x}, {1, DDP_F32, NULL, &x}, {1, DDP_F32, &y, NULL}};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ddp_sum_forward(&forward[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_sum_forward_reference(&forward[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_sum_backward(&backward[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_sum_backward_reference(&backward[i], NULL), DDP_ERR_INVALID);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sum");
    TCase *tc = kernel_case(suite, "sum");
    tcase_add_loop_test(tc, test_counts, 0, sizeof counts / sizeof counts[0]);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_arguments);
    return suite;
}

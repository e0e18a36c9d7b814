/* SPDX-License-Identifier: MIT
 *
 * Mean squared error: against the reference in double and PyTorch, gradient, threads, in place. */
#include "config.h"

#include "kernels/mse.h"
#include "tests/kernels/kernels_golden.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const int64_t counts[] = {0,     1,     2,     15,    16,    17,     255,
                                 16383, 16384, 16385, 32768, 50001, 5000003};

START_TEST(test_counts)
{
    const int64_t n = counts[_i];
    random_seed((uint64_t)_i);
    float *x = array_of(n), *targets = array_of(n), *expected = array_of(n), *first = NULL;
    float expected_loss, loss, first_loss = 0;
    struct ddp_mse args = {.count = n, .x = x, .targets = targets};
    args.loss = &expected_loss;
    args.dx = expected;
    ck_assert_int_eq(ddp_mse_reference(&args, NULL), DDP_OK);
    args.loss = &loss;
    for (int pool = 0; pool < POOLS; pool++) {
        float *in_place = array_copy(x, n);
        loss = NAN;
        args.x = args.dx = in_place;
        ck_assert_int_eq(ddp_mse(&args, pools[pool]), DDP_OK);
        ck_assert_float_eq_tol(loss, expected_loss, 1e-7f * expected_loss + 1e-30f);
        ck_assert(largest_difference(in_place, expected, n) <= 6e-7 / (double)(n + 1));
        if (first) {
            ck_assert_msg(same_bits(in_place, first, n) && same_bits(&loss, &first_loss, 1),
                          "other bits on %d threads", pool_threads[pool]);
            array_free(in_place, n);
            continue;
        }
        first = in_place;
        first_loss = loss;
        args.x = x; /* nothing but the loss: the same loss */
        args.dx = NULL;
        ck_assert_int_eq(ddp_mse(&args, NULL), DDP_OK);
        ck_assert(same_bits(&loss, &first_loss, 1));
    }
    array_free(first, n);
    array_free(x, n);
    array_free(targets, n);
    array_free(expected, n);
}
END_TEST

static double loss_of(void *arg)
{
    struct ddp_mse *args = arg;
    ck_assert_int_eq(ddp_mse(args, NULL), DDP_OK);
    return (double)*args->loss;
}

START_TEST(test_gradient)
{
    float x[9], targets[9], dx[9], loss;
    random_seed(1);
    for (int i = 0; i < 9; i++) {
        x[i] = 2 * random_number();
        targets[i] = random_number();
    }
    struct ddp_mse args = {.count = 9, .x = x, .targets = targets, .loss = &loss, .dx = dx};
    ck_assert_int_eq(ddp_mse(&args, NULL), DDP_OK);
    args.dx = NULL;
    check_gradient("x", x, dx, 9, loss_of, &args, 5e-5);
    float scaled[9];
    args.dx = scaled;
    args.dloss = (const float[]){1024};
    ck_assert_int_eq(ddp_mse(&args, NULL), DDP_OK);
    for (int i = 0; i < 9; i++)
        ck_assert_float_eq(scaled[i], 1024 * dx[i]);
}
END_TEST

/* A value that is not finite is seen in the loss wherever it stands. */
START_TEST(test_not_finite)
{
    float x[40] = {0}, targets[40] = {0}, loss;
    struct ddp_mse args = {.count = 40, .x = x, .targets = targets, .loss = &loss};
    for (int i = 0; i < 40; i++) {
        x[i] = NAN;
        ck_assert(isnan(loss_of(&args)));
        x[i] = 0;
        targets[i] = INFINITY;
        ck_assert(isinf(loss_of(&args)));
        targets[i] = 0;
    }
}
END_TEST

static void run_golden(struct golden_case *c)
{
    golden_seed(c);
    const int64_t n = golden_number(c);
    float *x = array_of(n), *targets = array_of(n), *dx = array_of(n), loss;
    golden_draw(c, x, n);
    golden_draw(c, targets, n);
    struct ddp_mse args = {.count = n, .x = x, .targets = targets, .loss = &loss, .dx = dx};
    ck_assert_int_eq(ddp_mse(&args, NULL), DDP_OK);
    golden_compare(c, "loss", &loss, 1, 1e-7);
    golden_compare(c, "dx", dx, n, 1e-7 / (double)n);
    array_free(x, n);
    array_free(targets, n);
    array_free(dx, n);
}

START_TEST(test_pytorch)
{
    golden_run("kernels/golden/images.txt", "mse", run_golden);
}
END_TEST

START_TEST(test_arguments)
{
    float x = 1, y;
    struct ddp_mse args[] = {
        {-1, DDP_F32, &x, &x, &y, NULL, NULL},  {1, DDP_F32, NULL, &x, &y, NULL, NULL},
        {1, DDP_F32, &x, NULL, &y, NULL, NULL}, {1, DDP_F32, &x, &x, NULL, NULL, NULL},
        {1, DDP_BF16, &x, &x, &y, NULL, NULL},
    };
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(ddp_mse(&args[i], NULL), i < 4 ? DDP_ERR_INVALID : DDP_ERR_UNSUPPORTED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mse");
    TCase *tc = kernel_case(suite, "mse");
    tcase_add_loop_test(tc, test_counts, 0, sizeof counts / sizeof *counts);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_not_finite);
    tcase_add_test(tc, test_pytorch);
    tcase_add_test(tc, test_arguments);
    return suite;
}

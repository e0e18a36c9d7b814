/* SPDX-License-Identifier: MIT
 *
 * ReLU and transposition: against the reference, in place, accumulated, bits over thread counts,
 * bad arguments. */
#include "config.h"

#include "kernels/relu.h"
#include "kernels/transpose.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const int64_t counts[] = {0, 1, 15, 16, 17, 16383, 16384, 16385, 100003};

START_TEST(test_relu)
{
    random_seed((uint64_t)_i);
    const int64_t n = counts[_i];
    float *x = array_of(n), *dy = array_of(n), *expected = array_of(n), *kept = array_of(n);
    if (n > 3) {
        x[0] = NAN;
        x[1] = 0;
        x[2] = -INFINITY;
    }
    struct ddp_relu_forward forward = {n, DDP_F32, x, expected};
    ck_assert_int_eq(ddp_relu_forward_reference(&forward, NULL), DDP_OK);
    if (n > 3)
        ck_assert(isnan(expected[0]) && expected[1] == 0 && expected[2] == 0);
    for (int i = 0; i < 2 * POOLS; i++) {
        const bool add = i % 2;
        float *y = array_copy(x, n), *dx = array_copy(kept, n), *expected_dx = array_copy(kept, n);
        for (int64_t j = 0; !add && j < n; j++)
            dx[j] = NAN;
        forward = (struct ddp_relu_forward){n, DDP_F32, y, y}; /* in place */
        ck_assert_int_eq(ddp_relu_forward(&forward, pools[i / 2]), DDP_OK);
        ck_assert(same_bits(y, expected, n));
        struct ddp_relu_backward backward = {n, DDP_F32, y, dy, dx, add};
        ck_assert_int_eq(ddp_relu_backward(&backward, pools[i / 2]), DDP_OK);
        backward.dx = expected_dx;
        ck_assert_int_eq(ddp_relu_backward_reference(&backward, NULL), DDP_OK);
        ck_assert(same_bits(dx, expected_dx, n));
        bool right = true;
        for (int64_t j = 3; j < n; j++)
            right &= dx[j] == (add ? kept[j] : 0) + (x[j] > 0 ? dy[j] : 0);
        ck_assert(right);
        array_free(y, n);
        array_free(dx, n);
        array_free(expected_dx, n);
    }
    array_free(x, n);
    array_free(dy, n);
    array_free(expected, n);
    array_free(kept, n);
}
END_TEST

static const int64_t matrices[][3] = {{0, 3, 4},    {2, 0, 4},   {1, 1, 1},    {3, 2, 5},
                                      {2, 63, 65},  {2, 64, 64}, {70, 3, 100}, {1, 130, 1},
                                      {5, 1024, 3}, {2, 65, 66}, {1, 500, 700}};

START_TEST(test_transpose)
{
    random_seed((uint64_t)_i);
    const int64_t batch = matrices[_i][0], rows = matrices[_i][1], columns = matrices[_i][2];
    const int64_t n = batch * rows * columns;
    float *x = array_of(n), *kept = array_of(n);
    for (int i = 0; i < 2 * POOLS; i++) {
        const bool add = i % 2;
        float *y = array_copy(kept, n), *expected = array_copy(kept, n);
        struct ddp_transpose args = {batch, rows, columns, DDP_F32, x, expected, add};
        ck_assert_int_eq(ddp_transpose_reference(&args, NULL), DDP_OK);
        args.y = y;
        ck_assert_int_eq(ddp_transpose(&args, pools[i / 2]), DDP_OK);
        ck_assert(same_bits(y, expected, n));
        bool right = true; /* one ck_assert() for each element would take seconds */
        for (int64_t b = 0; b < batch; b++)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < columns; c++) {
                    const int64_t to = (b * columns + c) * rows + r;
                    right &= y[to] == (add ? kept[to] : 0) + x[(b * rows + r) * columns + c];
                }
        ck_assert(right);
        args = (struct ddp_transpose){batch, columns,  rows, DDP_F32,
                                      y,     expected, false}; /* and back */
        ck_assert_int_eq(ddp_transpose(&args, pools[i / 2]), DDP_OK);
        if (!add)
            ck_assert(same_bits(expected, x, n));
        array_free(y, n);
        array_free(expected, n);
    }
    array_free(x, n);
    array_free(kept, n);
}
END_TEST

START_TEST(test_arguments)
{
    float v[4] = {0};
    struct ddp_relu_forward forward = {-1, DDP_F32, v, v};
    ck_assert_int_eq(ddp_relu_forward(&forward, NULL), DDP_ERR_INVALID);
    forward = (struct ddp_relu_forward){1, DDP_F32, NULL, v};
    ck_assert_int_eq(ddp_relu_forward_reference(&forward, NULL), DDP_ERR_INVALID);
    struct ddp_relu_backward backward = {1, DDP_F32, v, NULL, v, false};
    ck_assert_int_eq(ddp_relu_backward(&backward, NULL), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_relu_backward_reference(&backward, NULL), DDP_ERR_INVALID);
    const struct ddp_transpose bad[] = {{-1, 2, 2, DDP_F32, v, v, false},
                                        {1, -2, 2, DDP_F32, v, v, false},
                                        {1, 2, 2, DDP_F32, NULL, v, false},
                                        {INT64_MAX, INT64_MAX, 2, DDP_F32, v, v, false}};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ddp_transpose(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_transpose_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("relu");
    TCase *tc = kernel_case(suite, "relu");
    tcase_add_loop_test(tc, test_relu, 0, (int)(sizeof counts / sizeof *counts));
    tcase_add_loop_test(tc, test_transpose, 0, (int)(sizeof matrices / sizeof *matrices));
    tcase_add_test(tc, test_arguments);
    return suite;
}

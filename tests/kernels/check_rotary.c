/* SPDX-License-Identifier: MIT
 *
 * Rotary positions: against the reference in double, back again, in place, accumulated, bits over
 * thread counts, positions after others, bad arguments. */
#include "config.h"

#include "kernels/rotary.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

/* B, T, H, D, R, first position */
static const int64_t shapes[][6] = {
    {0, 3, 2, 8, 8, 0},      {2, 0, 2, 8, 8, 0},     {1, 1, 1, 2, 2, 0},     {2, 3, 2, 6, 4, 1},
    {1, 5, 3, 31, 30, 0},    {2, 3, 2, 32, 32, 7},   {1, 7, 1, 33, 32, 0},   {2, 9, 3, 64, 64, 0},
    {3, 1, 2, 128, 128, 40}, {2, 130, 4, 96, 48, 0}, {1, 700, 3, 34, 34, 3}, {1, 2, 2, 8, 0, 0},
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

static struct ddp_rotary args_of(const int64_t *s, const float *table)
{
    return (struct ddp_rotary){.batch = s[0],
                               .length = s[1],
                               .heads = s[2],
                               .head_size = s[3],
                               .size = s[4],
                               .first = s[5],
                               .positions = s[5] + s[1],
                               .table = table};
}

/* Cosines and sines of one angle each. */
static float *table_of(int64_t positions, int64_t size)
{
    float *table = array_of(positions * size);
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < size / 2; i++) {
            const double angle = 3 * (double)table[p * size + i];
            table[p * size + i] = (float)cos(angle);
            table[p * size + size / 2 + i] = (float)sin(angle);
        }
    return table;
}

START_TEST(test_shapes)
{
    random_seed((uint64_t)_i);
    const int64_t *s = shapes[_i], n = s[0] * s[1] * s[2] * s[3];
    float *table = table_of(s[5] + s[1], s[4]), *x = array_of(n), *kept = array_of(n);
    struct ddp_rotary args = args_of(s, table);
    for (int flags = 0; flags < 4; flags++) {
        float *expected = array_copy(kept, n), *first = NULL;
        args.inverse = flags & 1;
        args.accumulate = flags & 2;
        args.x = x;
        args.y = expected;
        ck_assert_int_eq(ddp_rotary_reference(&args, NULL), DDP_OK);
        for (int pool = 0; pool < POOLS; pool++) {
            float *y = array_copy(kept, n);
            for (int64_t i = 0; !args.accumulate && i < n; i++)
                y[i] = NAN;
            args.y = y;
            ck_assert_int_eq(ddp_rotary(&args, pools[pool]), DDP_OK);
            ck_assert(largest_difference(y, expected, n) <= 3e-7);
            first = first ? first : array_copy(y, n);
            ck_assert_msg(same_bits(y, first, n), "other bits on %d threads", pool_threads[pool]);
            array_free(y, n);
        }
        array_free(first, n);
        array_free(expected, n);
    }
    array_free(table, (s[5] + s[1]) * s[4]);
    array_free(x, n);
    array_free(kept, n);
}
END_TEST

/* y may be x, and turning back gives x: the inverse is the gradient of a rotation. */
START_TEST(test_back)
{
    random_seed((uint64_t)_i);
    const int64_t *s = shapes[_i], n = s[0] * s[1] * s[2] * s[3];
    float *table = table_of(s[5] + s[1], s[4]), *x = array_of(n), *y = array_of(n);
    float *turned = array_copy(x, n);
    struct ddp_rotary args = args_of(s, table);
    args.x = x;
    args.y = y;
    ck_assert_int_eq(ddp_rotary(&args, pools[1]), DDP_OK);
    args.x = args.y = turned;
    ck_assert_int_eq(ddp_rotary(&args, pools[2]), DDP_OK);
    ck_assert(same_bits(turned, y, n));
    args.inverse = true;
    ck_assert_int_eq(ddp_rotary(&args, pools[3]), DDP_OK);
    ck_assert(largest_difference(turned, x, n) <= 6e-7);
    array_free(table, (s[5] + s[1]) * s[4]);
    array_free(x, n);
    array_free(y, n);
    array_free(turned, n);
}
END_TEST

struct subject {
    struct ddp_rotary args;
    const float *dy;
    int64_t n;
};

static double loss_of(void *arg)
{
    const struct subject *s = arg;
    double loss = 0;
    ck_assert_int_eq(ddp_rotary(&s->args, NULL), DDP_OK);
    for (int64_t i = 0; i < s->n; i++)
        loss += (double)s->dy[i] * (double)((const float *)s->args.y)[i];
    return loss;
}

START_TEST(test_gradient)
{
    static const int64_t shape[] = {2, 3, 2, 7, 6, 2};
    enum { N = 84 };
    random_seed(5);
    float *table = table_of(5, 6), *x = array_of(N), *y = array_of(N), *dy = array_of(N);
    float *dx = array_of(N);
    struct subject s = {args_of(shape, table), dy, N};
    struct ddp_rotary backward = s.args;
    backward.inverse = true;
    backward.x = dy;
    backward.y = dx;
    ck_assert_int_eq(ddp_rotary(&backward, NULL), DDP_OK);
    s.args.x = x;
    s.args.y = y;
    check_gradient("x", x, dx, N, loss_of, &s, 2e-4);
    array_free(table, 30);
    float *const all[] = {x, y, dy, dx};
    for (int j = 0; j < 4; j++)
        array_free(all[j], N);
}
END_TEST

START_TEST(test_arguments)
{
    float v[16] = {0};
    const int64_t shape[] = {1, 2, 1, 4, 4, 0};
    struct ddp_rotary good = args_of(shape, v), bad[12];
    good.x = good.y = v;
    ck_assert_int_eq(ddp_rotary(&good, NULL), DDP_OK);
    for (int i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].batch = -1;
    bad[1].length = -1;
    bad[2].heads = -1;
    bad[3].head_size = -4;
    bad[4].size = 3;
    bad[5].size = 6;
    bad[6].first = -1;
    bad[7].first = 1;
    bad[8].batch = INT64_MAX;
    bad[9].table = NULL;
    bad[10].x = NULL;
    bad[11].y = NULL;
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(ddp_rotary(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_rotary_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    good.dtype = DDP_BF16;
    ck_assert_int_eq(ddp_rotary(&good, NULL), DDP_ERR_UNSUPPORTED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rotary");
    TCase *tc = kernel_case(suite, "rotary");
    tcase_add_loop_test(tc, test_shapes, 0, SHAPES);
    tcase_add_loop_test(tc, test_back, 0, SHAPES);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_arguments);
    return suite;
}

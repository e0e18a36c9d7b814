/* SPDX-License-Identifier: MIT
 *
 * Pooling: against the reference, ties, NaN and infinities as PyTorch treats them, gradients by
 * differences, accumulation, bits over thread counts, bad arguments. */
#include "config.h"

#include "kernels/conv2d/conv2d.h"
#include "kernels/pool2d.h"
#include "tests/kernels/kernels_golden.h"
#include "tests/kernels/reference/reference.h"

static const struct ddp_pool2d_shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},    {2, 4, 4, 3, 2, 2, 2, 0},  {3, 5, 7, 16, 2, 2, 2, 0},
    {2, 6, 6, 17, 3, 3, 2, 1},   {2, 8, 9, 33, 3, 2, 1, 1}, {5, 8, 8, 64, 8, 8, 1, 0},
    {2, 12, 11, 5, 5, 4, 3, 2},  {0, 3, 3, 2, 2, 2, 1, 0},  {1, 40, 300, 8, 16, 16, 16, 8},
    {70, 7, 7, 512, 7, 7, 7, 0}, {1, 9, 9, 1, 2, 3, 4, 1},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

static int64_t outputs_of(const struct ddp_pool2d_shape *s)
{
    return s->batch * s->channels *
           ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1) *
           ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1);
}

START_TEST(test_max)
{
    const struct ddp_pool2d_shape *s = &shapes[_i];
    random_seed((uint64_t)_i);
    const int64_t count = s->batch * s->height * s->width * s->channels, outputs = outputs_of(s);
    float *x = array_of(count), *dy = array_of(outputs), *expected = array_of(outputs);
    for (int64_t i = 0; i < count; i++) { /* many ties, some NaN and infinities */
        const int64_t kind = random_below(40);
        x[i] = kind == 0 ? NAN : kind < 3 ? -INFINITY : (float)(int)(x[i] * 4);
    }
    float *dx = array_of(count);
    float *expected_dx = array_copy(dx, count);
    uint8_t *chosen = malloc((size_t)outputs + 1), *expected_chosen = malloc((size_t)outputs + 1);
    struct ddp_max_pool2d_forward forward = {*s, DDP_F32, x, expected, expected_chosen};
    ck_assert_int_eq(ddp_max_pool2d_forward_reference(&forward, NULL), DDP_OK);
    const bool add = _i % 2;
    struct ddp_max_pool2d_backward backward = {*s, DDP_F32, dy, expected_chosen, expected_dx, add};
    ck_assert_int_eq(ddp_max_pool2d_backward_reference(&backward, NULL), DDP_OK);
    for (int pool = 0; pool < POOLS; pool++) {
        float *y = array_of(outputs), *other = array_copy(dx, count);
        for (int64_t i = 0; !add && i < count; i++)
            other[i] = NAN;
        forward = (struct ddp_max_pool2d_forward){*s, DDP_F32, x, y, NULL};
        ck_assert_int_eq(ddp_max_pool2d_forward(&forward, pools[pool]), DDP_OK);
        ck_assert(same_bits(y, expected, outputs));
        forward.chosen = chosen;
        ck_assert_int_eq(ddp_max_pool2d_forward(&forward, pools[pool]), DDP_OK);
        ck_assert(same_bits(y, expected, outputs));
        ck_assert(memcmp(chosen, expected_chosen, (size_t)outputs) == 0);
        backward = (struct ddp_max_pool2d_backward){*s, DDP_F32, dy, chosen, other, add};
        ck_assert_int_eq(ddp_max_pool2d_backward(&backward, pools[pool]), DDP_OK);
        ck_assert(largest_difference(other, expected_dx, count) == 0); /* -0 and 0 are equal */
        array_free(y, outputs);
        array_free(other, count);
    }
    array_free(x, count);
    array_free(dy, outputs);
    array_free(expected, outputs);
    array_free(dx, count);
    array_free(expected_dx, count);
    free(chosen);
    free(expected_chosen);
}
END_TEST

START_TEST(test_avg)
{
    const struct ddp_pool2d_shape *s = &shapes[_i];
    random_seed((uint64_t)_i);
    const int64_t count = s->batch * s->height * s->width * s->channels, outputs = outputs_of(s);
    float *x = array_of(count), *dy = array_of(outputs), *expected = array_of(outputs);
    float *dx = array_of(count), *first = NULL, *first_dx = NULL;
    float *expected_dx = array_copy(dx, count);
    struct ddp_avg_pool2d_forward forward = {*s, DDP_F32, x, expected};
    ck_assert_int_eq(ddp_avg_pool2d_forward_reference(&forward, NULL), DDP_OK);
    const bool add = _i % 2;
    struct ddp_avg_pool2d_backward backward = {*s, DDP_F32, dy, expected_dx, add};
    ck_assert_int_eq(ddp_avg_pool2d_backward_reference(&backward, NULL), DDP_OK);
    for (int pool = 0; pool < POOLS; pool++) {
        float *y = array_of(outputs), *other = array_copy(dx, count);
        for (int64_t i = 0; !add && i < count; i++)
            other[i] = NAN;
        forward.y = y;
        ck_assert_int_eq(ddp_avg_pool2d_forward(&forward, pools[pool]), DDP_OK);
        ck_assert(largest_difference(y, expected, outputs) <= product_tolerance(1));
        backward.dx = other;
        ck_assert_int_eq(ddp_avg_pool2d_backward(&backward, pools[pool]), DDP_OK);
        ck_assert(largest_difference(other, expected_dx, count) <= product_tolerance(1));
        if (pool == 0) {
            first = y;
            first_dx = other;
            continue;
        }
        ck_assert(same_bits(y, first, outputs) && same_bits(other, first_dx, count));
        array_free(y, outputs);
        array_free(other, count);
    }
    array_free(first, outputs);
    array_free(first_dx, count);
    array_free(x, count);
    array_free(dy, outputs);
    array_free(expected, outputs);
    array_free(dx, count);
    array_free(expected_dx, count);
}
END_TEST

struct probe {
    struct ddp_pool2d_shape shape;
    const float *x, *dy;
    float *y;
    bool max;
};

static double loss_of(void *arg)
{
    struct probe *probe = arg;
    struct ddp_max_pool2d_forward max = {probe->shape, DDP_F32, probe->x, probe->y, NULL};
    struct ddp_avg_pool2d_forward avg = {probe->shape, DDP_F32, probe->x, probe->y};
    ck_assert_int_eq(probe->max ? ddp_max_pool2d_forward(&max, NULL)
                                : ddp_avg_pool2d_forward(&avg, NULL),
                     DDP_OK);
    double loss = 0;
    for (int64_t i = 0; i < outputs_of(&probe->shape); i++)
        loss += (double)probe->dy[i] * (double)probe->y[i];
    return loss;
}

START_TEST(test_gradient)
{
    random_seed((uint64_t)_i);
    const struct ddp_pool2d_shape s = {2, 6, 5, 3, 3, 3, 2, 1};
    const int64_t count = 2 * 6 * 5 * 3, outputs = outputs_of(&s);
    float *x = array_of(count), *dy = array_of(outputs), *y = array_of(outputs);
    float *dx = array_of(count);
    uint8_t chosen[2 * 6 * 5 * 3];
    for (int64_t i = 0; i < count; i++) /* no two so near that a difference changes their order */
        x[i] = (float)(i * 37 % count) * 0.05f;
    struct ddp_max_pool2d_forward forward = {s, DDP_F32, x, y, chosen};
    struct ddp_max_pool2d_backward max = {s, DDP_F32, dy, chosen, dx, false};
    struct ddp_avg_pool2d_backward avg = {s, DDP_F32, dy, dx, false};
    ck_assert_int_eq(ddp_max_pool2d_forward(&forward, NULL), DDP_OK);
    ck_assert_int_eq(_i ? ddp_max_pool2d_backward(&max, NULL) : ddp_avg_pool2d_backward(&avg, NULL),
                     DDP_OK);
    struct probe probe = {s, x, dy, y, _i};
    check_gradient("x", x, dx, count, loss_of, &probe, 1e-3);
    array_free(x, count);
    array_free(dy, outputs);
    array_free(y, outputs);
    array_free(dx, count);
}
END_TEST

START_TEST(test_arguments)
{
    float v[64] = {0};
    uint8_t chosen[64];
    struct ddp_max_pool2d_forward good = {{1, 4, 4, 1, 2, 2, 2, 0}, DDP_F32, v, v, chosen}, bad[9];
    for (int i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].shape.batch = -1;
    bad[1].shape.height = 0;
    bad[2].shape.channels = INT64_MAX;
    bad[3].shape.kernel_width = 0;
    bad[4].shape.stride = 0;
    bad[5].shape.padding = 2;
    bad[6].shape.kernel_height = 5;
    bad[7].x = NULL;
    bad[8].shape = (struct ddp_pool2d_shape){1, 20, 20, 1, 17, 17, 1, 0}; /* 289 positions */
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(ddp_max_pool2d_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_max_pool2d_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
        struct ddp_max_pool2d_backward backward = {bad[i].shape, DDP_F32, bad[i].x,
                                                   chosen,       v,       false};
        ck_assert_int_eq(ddp_max_pool2d_backward(&backward, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_max_pool2d_backward_reference(&backward, NULL), DDP_ERR_INVALID);
        if (i == 8)
            break;
        struct ddp_avg_pool2d_forward avg = {bad[i].shape, DDP_F32, bad[i].x, v};
        ck_assert_int_eq(ddp_avg_pool2d_forward(&avg, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_avg_pool2d_forward_reference(&avg, NULL), DDP_ERR_INVALID);
        struct ddp_avg_pool2d_backward back = {bad[i].shape, DDP_F32, bad[i].x, v, false};
        ck_assert_int_eq(ddp_avg_pool2d_backward(&back, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_avg_pool2d_backward_reference(&back, NULL), DDP_ERR_INVALID);
    }
}
END_TEST

static void run_golden(struct golden_case *c)
{
    const bool max = strcmp(c->line->words[0], "max_pool2d") == 0;
    golden_seed(c);
    struct ddp_pool2d_shape s = {.batch = golden_number(c)};
    s.height = golden_number(c);
    s.width = golden_number(c);
    s.channels = golden_number(c);
    s.kernel_height = golden_number(c);
    s.kernel_width = golden_number(c);
    s.stride = golden_number(c);
    s.padding = golden_number(c);
    const int64_t count = s.batch * s.height * s.width * s.channels, outputs = outputs_of(&s);
    float *x = array_of(count), *dx = array_of(count), *y = array_of(outputs);
    float *dy = array_of(outputs);
    uint8_t *chosen = calloc((size_t)outputs + 1, 1);
    golden_draw(c, x, count);
    golden_draw(c, dy, outputs);
    for (int64_t i = 0; max && i < count; i++)
        x[i] = rintf(x[i] * 4);
    if (max) {
        struct ddp_max_pool2d_forward forward = {s, DDP_F32, x, y, chosen};
        struct ddp_max_pool2d_backward backward = {s, DDP_F32, dy, chosen, dx, false};
        ck_assert_int_eq(ddp_max_pool2d_forward(&forward, NULL), DDP_OK);
        ck_assert_int_eq(ddp_max_pool2d_backward(&backward, NULL), DDP_OK);
    } else {
        struct ddp_avg_pool2d_forward forward = {s, DDP_F32, x, y};
        struct ddp_avg_pool2d_backward backward = {s, DDP_F32, dy, dx, false};
        ck_assert_int_eq(ddp_avg_pool2d_forward(&forward, NULL), DDP_OK);
        ck_assert_int_eq(ddp_avg_pool2d_backward(&backward, NULL), DDP_OK);
    }
    golden_compare(c, "y", y, outputs, 2e-7);
    golden_compare(c, "dx", dx, count, 5e-7);
    array_free(x, count);
    array_free(dx, count);
    array_free(y, outputs);
    array_free(dy, outputs);
    free(chosen);
}

START_TEST(test_pytorch)
{
    golden_run("kernels/golden/images.txt", _i ? "max_pool2d" : "avg_pool2d", run_golden);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pool2d");
    TCase *tc = kernel_case(suite, "pool2d");
    tcase_add_loop_test(tc, test_max, 0, SHAPES);
    tcase_add_loop_test(tc, test_avg, 0, SHAPES);
    tcase_add_loop_test(tc, test_gradient, 0, 2);
    tcase_add_loop_test(tc, test_pytorch, 0, 2);
    tcase_add_test(tc, test_arguments);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * The optimizer's step: fast against reference bit for bit, and both against the formulas of
 * torch.optim.SGD. */
#include "config.h"

#include "kernels/sgd.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const struct ddp_sgd variants[] = {
    {.scale = 1, .rate = 0.1f},
    {.scale = 0.125f, .rate = 0.1f, .weight_decay = 0.01f},
    {.scale = 1, .rate = 0.01f, .momentum = 0.9f, .first_step = true},
    {.scale = 0.5f, .rate = 0.01f, .momentum = 0.9f, .weight_decay = 0.01f},
    {.scale = 0.5f, .rate = 0.01f, .momentum = 0.9f, .nesterov = true, .first_step = true},
    {.scale = 0.25f, .rate = 0.01f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true},
};
static const int64_t counts[] = {0, 1, 15, 16, 17, 16383, 16384, 16385, 70001};

START_TEST(test_variants)
{
    random_seed((uint64_t)_i);
    for (size_t at = 0; at < sizeof counts / sizeof counts[0]; at++) {
        const int64_t n = counts[at];
        float *weight = array_of(n), *gradient = array_of(n), *velocity = array_of(n);
        float *expected_w = array_copy(weight, n), *expected_v = array_copy(velocity, n);
        struct ddp_sgd sgd = variants[_i];
        sgd.count = n;
        sgd.gradient = gradient;
        sgd.weight = expected_w;
        sgd.velocity = sgd.momentum == 0 ? NULL : expected_v;
        ck_assert_int_eq(ddp_sgd_reference(&sgd, NULL), DDP_OK);
        for (int pool = 0; pool < POOLS; pool++) {
            float *w = array_copy(weight, n), *v = array_copy(velocity, n);
            if (sgd.first_step) /* what velocity holds does not matter then */
                for (int64_t i = 0; i < n; i++)
                    v[i] = NAN;
            sgd.weight = w;
            sgd.velocity = sgd.momentum == 0 ? NULL : v;
            ck_assert_int_eq(ddp_sgd(&sgd, pools[pool]), DDP_OK);
            ck_assert_msg(same_bits(w, expected_w, n), "weights, %d threads, %lld elements",
                          pool_threads[pool], (long long)n);
            ck_assert(sgd.momentum == 0 || same_bits(v, expected_v, n));
            array_free(w, n);
            array_free(v, n);
        }
        array_free(weight, n);
        array_free(gradient, n);
        array_free(velocity, n);
        array_free(expected_w, n);
        array_free(expected_v, n);
    }
}
END_TEST

/* Three steps by the formulas, in double. */
START_TEST(test_formulas)
{
    struct ddp_sgd sgd = variants[_i];
    float weight = 0.5f, gradient, velocity = NAN;
    double w = 0.5, v = 0;
    sgd.count = 1;
    sgd.weight = &weight;
    sgd.gradient = &gradient;
    sgd.velocity = &velocity;
    for (int step = 0; step < 3; step++) {
        gradient = 0.3f - 0.2f * (float)step;
        sgd.first_step = step == 0;
        ck_assert_int_eq(ddp_sgd(&sgd, NULL), DDP_OK);
        double g = (double)sgd.scale * (double)gradient + (double)sgd.weight_decay * w;
        double m = (double)sgd.momentum;
        v = step == 0 ? g : m * v + g;
        w -= (double)sgd.rate * (sgd.nesterov ? g + m * v : m > 0 ? v : g);
        ck_assert_double_eq_tol((double)weight, w, 1e-6);
    }
}
END_TEST

START_TEST(test_arguments)
{
    float x[3] = {1, 1, 1};
    const struct ddp_sgd good = {
        .count = 1, .weight = &x[0], .gradient = &x[1], .velocity = &x[2], .momentum = 0.5f};
    struct ddp_sgd bad[] = {good, good, good, good, good, good, good};
    bad[0].count = -1;
    bad[1].weight = NULL;
    bad[2].gradient = NULL;
    bad[3].velocity = NULL;
    bad[4].momentum = -0.5f;
    bad[5].momentum = NAN;
    bad[6].momentum = 0;
    bad[6].nesterov = true;
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(ddp_sgd(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_sgd_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    ck_assert_float_eq(x[0], 1);
    ck_assert_int_eq(ddp_sgd(&good, NULL), DDP_OK);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sgd");
    TCase *tc = kernel_case(suite, "sgd");
    tcase_add_loop_test(tc, test_variants, 0, sizeof variants / sizeof variants[0]);
    tcase_add_loop_test(tc, test_formulas, 0, sizeof variants / sizeof variants[0]);
    tcase_add_test(tc, test_arguments);
    return suite;
}

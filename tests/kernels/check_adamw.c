/* SPDX-License-Identifier: MIT
 *
 * The steps of Adam and AdamW: fast against plain bit for bit, in one part or several, with and
 * without weight decay and a bf16 copy; both against what PyTorch gave. */
#include "config.h"

#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/bf16.h"
#include "tests/lib/golden.h"
#include "optim/optim.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const struct ddp_range spans[] = {
    {3, 5}, {16, 48}, {1000, 1001}, {1001, 20000}, {60000, 70001}};

static const struct ddp_adamw variants[] = {
    {.scale = 1, .rate = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decoupled = true},
    {.scale = 0.125f,
     .rate = 0.01,
     .beta1 = 0.9,
     .beta2 = 0.95,
     .eps = 1e-8,
     .weight_decay = 0.1,
     .decoupled = true,
     .step = 3},
    {.scale = 1,
     .rate = 0.01,
     .beta1 = 0.2,
     .beta2 = 0.5,
     .eps = 1e-3,
     .weight_decay = 0.1,
     .decoupled = true,
     .step = 1,
     .no_decay = spans,
     .no_decay_count = 5},
    {.scale = 0.5f, .rate = 0.01, .beta1 = 0, .beta2 = 0, .eps = 1e-6, .step = 9},
    {.scale = 0.25f,
     .rate = 0.01,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8,
     .weight_decay = 0.01,
     .step = 100000,
     .no_decay = spans,
     .no_decay_count = 5},
    {.scale = 0.25f, .rate = 0.01, .beta1 = 0.5, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
};
static const int64_t counts[] = {0, 1, 15, 16, 17, 16383, 16384, 16385, 70001};

/* What a step works on. */
struct arrays {
    int64_t n;
    float *w, *g, *m, *v;
    uint16_t *half;
};

static struct arrays arrays_random(int64_t n)
{
    struct arrays a = {n, array_of(n), array_of(n), array_of(n), array_of(n), NULL};
    for (int64_t i = 0; i < n; i++)
        a.v[i] = a.v[i] * a.v[i];
    a.half = calloc((size_t)n + 1, sizeof *a.half);
    ck_assert_ptr_nonnull(a.half);
    return a;
}

static struct arrays arrays_copy(const struct arrays *from)
{
    struct arrays a = arrays_random(from->n);
    memcpy(a.w, from->w, (size_t)a.n * sizeof(float));
    memcpy(a.g, from->g, (size_t)a.n * sizeof(float));
    memcpy(a.m, from->m, (size_t)a.n * sizeof(float));
    memcpy(a.v, from->v, (size_t)a.n * sizeof(float));
    return a;
}

static void arrays_free(struct arrays *a)
{
    ck_assert_uint_eq(a->half[a->n], 0);
    array_free(a->w, a->n);
    array_free(a->g, a->n);
    array_free(a->m, a->n);
    array_free(a->v, a->n);
    free(a->half);
}

/* The variant's step over [begin, end) of the arrays. */
static struct ddp_adamw step_of(const struct ddp_adamw *variant, const struct arrays *a,
                                int64_t begin, int64_t end, bool half)
{
    struct ddp_adamw step = *variant;
    step.count = end - begin;
    step.first = begin;
    step.weight = a->w + begin;
    step.weight_bf16 = half ? a->half + begin : NULL;
    step.gradient = a->g + begin;
    step.exp_avg = a->m + begin;
    step.exp_avg_sq = a->v + begin;
    return step;
}

static void compare(const struct arrays *a, const struct arrays *expected, bool half)
{
    ck_assert(same_bits(a->w, expected->w, a->n));
    ck_assert(same_bits(a->m, expected->m, a->n));
    ck_assert(same_bits(a->v, expected->v, a->n));
    for (int64_t i = 0; i < a->n; i++)
        ck_assert_uint_eq(a->half[i], half ? ddp_bf16_of(a->w[i]) : 0);
}

START_TEST(fast_as_plain)
{
    random_seed((uint64_t)_i);
    for (size_t at = 0; at < sizeof counts / sizeof counts[0]; at++) {
        const int64_t n = counts[at];
        const bool half = at & 1;
        struct arrays start = arrays_random(n), expected = arrays_copy(&start);
        struct ddp_adamw step = step_of(&variants[_i], &expected, 0, n, half);
        ck_assert_int_eq(ddp_adamw_reference(&step, NULL), DDP_OK);
        ck_assert(n == 0 || !same_bits(start.w, expected.w, n));
        for (int pool = 0; pool < POOLS; pool++) {
            struct arrays a = arrays_copy(&start);
            step = step_of(&variants[_i], &a, 0, n, half);
            ck_assert_int_eq(ddp_adamw(&step, pools[pool]), DDP_OK);
            compare(&a, &expected, half);
            arrays_free(&a);
        }
        struct arrays a = arrays_copy(&start); /* in parts */
        for (int64_t begin = 0, end; begin < n; begin = end) {
            end = n - begin < 5 ? n : begin + 1 + random_below(n - begin);
            step = step_of(&variants[_i], &a, begin, end, half);
            ck_assert_int_eq(ddp_adamw(&step, pools[1]), DDP_OK);
        }
        compare(&a, &expected, half);
        arrays_free(&a);
        arrays_free(&start);
        arrays_free(&expected);
    }
}
END_TEST

/* A weight within spans ends as one without weight decay, others as with it. */
START_TEST(spans_have_no_decay)
{
    const int64_t n = 70001;
    random_seed(5);
    for (int l2 = 0; l2 < 2; l2++) {
        struct arrays start = arrays_random(n), with = arrays_copy(&start),
                      without = arrays_copy(&start), mixed = arrays_copy(&start);
        struct ddp_adamw variant = variants[1];
        variant.decoupled = !l2;
        struct ddp_adamw step = step_of(&variant, &with, 0, n, false);
        ck_assert_int_eq(ddp_adamw(&step, NULL), DDP_OK);
        variant.weight_decay = 0;
        step = step_of(&variant, &without, 0, n, false);
        ck_assert_int_eq(ddp_adamw(&step, NULL), DDP_OK);
        variant.weight_decay = variants[1].weight_decay;
        variant.no_decay = spans;
        variant.no_decay_count = 5;
        step = step_of(&variant, &mixed, 0, n, false);
        ck_assert_int_eq(ddp_adamw(&step, NULL), DDP_OK);
        for (int64_t i = 0; i < n; i++) {
            bool inside = false;
            for (int s = 0; s < 5; s++)
                inside = inside || (i >= spans[s].begin && i < spans[s].end);
            ck_assert(same_bits(&mixed.w[i], inside ? &without.w[i] : &with.w[i], 1));
        }
        arrays_free(&start);
        arrays_free(&with);
        arrays_free(&without);
        arrays_free(&mixed);
    }
}
END_TEST

static double number(const char *text)
{
    return strtod(text, NULL);
}

/* Bits of floats after one another. */
static void check_bits(const struct golden *g, int first, const float *values, int64_t n,
                       const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = (uint32_t)strtoul(g->answer[first + i], NULL, 16);
        float expected;
        memcpy(&expected, &word, sizeof expected);
        double difference = fabs((double)values[i] - (double)expected);
        ck_assert_msg(difference <= 5e-7 * fabs((double)expected) + 1e-7,
                      "%s: %s[%lld] is %.9g, not %.9g", g->name, what, (long long)i,
                      (double)values[i], (double)expected);
    }
}

static void run_golden(const struct golden *g)
{
    struct ddp_rng rng;
    const int64_t n = strtoll(g->words[2], NULL, 10), steps = strtoll(g->words[3], NULL, 10);
    struct arrays a = arrays_random(n);
    ddp_rng_seed(&rng, strtoull(g->words[1], NULL, 10));
    ddp_rng_fill_uniform01(&rng, a.w, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        a.w[i] -= 0.5f;
        a.m[i] = a.v[i] = 0;
    }
    struct ddp_adamw variant = {.scale = 1,
                                .rate = number(g->words[4]),
                                .beta1 = number(g->words[5]),
                                .beta2 = number(g->words[6]),
                                .eps = number(g->words[7]),
                                .weight_decay = number(g->words[8]),
                                .decoupled = strcmp(g->words[0], "adamw") == 0};
    for (; variant.step < steps; variant.step++) {
        ddp_rng_fill_uniform01(&rng, a.g, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            a.g[i] -= 0.5f;
        struct ddp_adamw step = step_of(&variant, &a, 0, n, false);
        ck_assert_int_eq(ddp_adamw(&step, NULL), DDP_OK);
    }
    ck_assert_int_eq(g->answer_count, 3 * n);
    check_bits(g, 0, a.w, n, "weight");
    check_bits(g, (int)n, a.m, n, "exp_avg");
    check_bits(g, (int)(2 * n), a.v, n, "exp_avg_sq");
    arrays_free(&a);
}

START_TEST(as_pytorch)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("kernels/golden/optim.txt");
    while (golden_next(file, &g)) {
        if (strncmp(g.words[0], "adam", 4) == 0) {
            run_golden(&g);
            cases++;
        }
        golden_free(&g);
    }
    fclose(file);
    ck_assert_int_ge(cases, 30);
}
END_TEST

START_TEST(bad_arguments)
{
    float x[4] = {1, 1, 1, 1};
    const struct ddp_range empty = {4, 4};
    const struct ddp_adamw good = {
        .count = 1, .weight = &x[0], .gradient = &x[1], .exp_avg = &x[2], .exp_avg_sq = &x[3]};
    struct ddp_adamw bad[14];
    for (int i = 0; i < 14; i++)
        bad[i] = good;
    bad[0].count = -1;
    bad[1].weight = NULL;
    bad[2].gradient = NULL;
    bad[3].exp_avg = NULL;
    bad[4].exp_avg_sq = NULL;
    bad[5].beta1 = 1;
    bad[6].beta2 = -0.1;
    bad[7].beta1 = NAN;
    bad[8].eps = -1;
    bad[9].weight_decay = INFINITY;
    bad[10].step = -1;
    bad[11].no_decay_count = 1;
    bad[12].no_decay_count = 1;
    bad[12].no_decay = &empty;
    bad[13].first = -1;
    for (int i = 0; i < 14; i++) {
        ck_assert_int_eq(ddp_adamw(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_adamw_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    ck_assert_float_eq(x[0], 1);
    ck_assert_int_eq(ddp_adamw(&good, NULL), DDP_OK);
}
END_TEST

/* Adam adds the decay to the gradient, AdamW takes it from the weight. */
START_TEST(as_named)
{
    const char *const names[] = {"adam", "adamw"};
    const struct ddp_optimizer_config config = {
        .name = names[_i], .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.5};
    float weights[2][1] = {{2}, {2}}, gradient = 0.25f, state[2] = {0};
    const struct ddp_adamw expected = {.count = 1,
                                       .weight = weights[0],
                                       .gradient = &gradient,
                                       .exp_avg = &state[0],
                                       .exp_avg_sq = &state[1],
                                       .scale = 1,
                                       .rate = 0.125,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .eps = 1e-8,
                                       .weight_decay = 0.5,
                                       .decoupled = _i == 1};
    const struct ddp_optimizer_step step = {
        .end = 1, .weights = weights[1], .gradients = &gradient, .scale = 1, .rate = 0.125};
    ddp_device *device;
    ddp_optimizer *optimizer;
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_optimizer_create(&optimizer, device, 1, &config, NULL), DDP_OK);
    ck_assert_int_eq(ddp_optimizer_run(optimizer, &step), DDP_OK);
    ck_assert_int_eq(ddp_adamw(&expected, NULL), DDP_OK);
    ck_assert(same_bits(weights[0], weights[1], 1));
    ddp_optimizer_destroy(optimizer);
    ddp_device_close(device);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("adamw");
    TCase *tc = kernel_case(suite, "adamw");
    tcase_add_loop_test(tc, fast_as_plain, 0, sizeof variants / sizeof variants[0]);
    tcase_add_test(tc, spans_have_no_decay);
    tcase_add_test(tc, as_pytorch);
    tcase_add_loop_test(tc, as_named, 0, 2);
    tcase_add_test(tc, bad_arguments);
    return suite;
}

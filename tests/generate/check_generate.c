/* SPDX-License-Identifier: MIT
 *
 * Generating with a cache: the logits of full passes, also after the context was full; texts that
 * do not depend on how many there are; a context of one token; drawing. */
#include "config.h"

#include "tests/generate/generate_test.h"

static ddp_device *device;

static void open_device(void)
{
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 2), DDP_OK);
}

static void close_device(void)
{
    ddp_device_close(device);
}

/* Heads of 16, 5 and 64 features. */
static const int64_t shapes[][2] = {{2, 32}, {3, 15}, {1, 64}};

START_TEST(test_logits)
{
    struct generation g = gen_open(device, shapes[_i][0], shapes[_i][1]);
    gen_check_logits(&g, 1e-5);
    gen_close(&g);
}
END_TEST

START_TEST(test_company)
{
    struct generation g = gen_open(device, shapes[_i][0], shapes[_i][1]);
    gen_check_company(&g, 1, GEN_SAMPLES);
    gen_close(&g);
}
END_TEST

START_TEST(test_llama)
{
    const struct ddp_llama llama = gen_llama(_i);
    struct generation g = gen_open_shape(device, NULL, &llama);
    gen_check_logits(&g, 1e-5);
    gen_check_company(&g, 1, GEN_SAMPLES);
    gen_close(&g);
}
END_TEST

/* Each token is then drawn from the one before. */
START_TEST(test_short_context)
{
    struct generation g = gen_open(device, 2, 32);
    float expected[GEN_VOCABULARY];
    struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&g.config.own);
    gpt2->context = g.config.dims[0] = 1;
    ddp_generator *generator = gen_generator(&g, 1);
    for (int64_t at = GEN_PROMPT; at < GEN_PROMPT + 5; at++) {
        ck_assert_int_eq(ddp_generator_next(generator), DDP_OK);
        gen_full_pass(&g, ddp_generator_tokens(generator, 0) + at - 1, 1, expected);
        ck_assert(memcmp(ddp_generator_logits(generator, 0), expected, sizeof expected) == 0);
    }
    ddp_generator_destroy(generator);
    gen_close(&g);
}
END_TEST

START_TEST(test_not_finite)
{
    struct generation g = gen_open(device, 2, 32);
    g.weights[g.bytes / sizeof(float) / 2] = NAN;
    ddp_generator *generator = gen_generator(&g, 1);
    ck_assert_int_eq(ddp_generator_next(generator), DDP_ERR_FORMAT);
    ddp_generator_destroy(generator);
    gen_close(&g);
}
END_TEST

/* The same by going through all orders, slowly. */
static int32_t draw_slowly(const float *logits, int32_t count, double temperature, int32_t kept,
                           double uniform)
{
    bool taken[64] = {false};
    double weights[64], sum = 0, passed = 0;
    int32_t order[64];
    for (int32_t i = 0; i < kept; i++) {
        order[i] = -1;
        for (int32_t j = 0; j < count; j++)
            if (!taken[j] && (order[i] < 0 || logits[j] > logits[order[i]]))
                order[i] = j;
        taken[order[i]] = true;
        weights[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / temperature);
        sum += weights[i];
    }
    for (int32_t i = 0; i < kept - 1; i++) {
        passed += weights[i];
        if (uniform * sum < passed)
            return order[i];
    }
    return order[kept - 1];
}

START_TEST(test_draw)
{
    struct ddp_rng rng;
    float logits[64];
    int32_t order[64];
    ddp_rng_seed(&rng, 3);
    for (int round = 0; round < 2000; round++) {
        const int32_t count = 1 + round % 64, top_k = round % 7 == 0 ? 0 : 1 + round % count;
        ddp_rng_fill_normal(&rng, logits, (size_t)count, 0, 1);
        for (int32_t i = 0; i < count; i++) /* many are equal */
            logits[i] = roundf(3 * logits[i]);
        const double uniform = (round * 37 % 1000) / 1000.0;
        ck_assert_int_eq(ddp_generator_draw(logits, count, 1.5, top_k, uniform, order),
                         draw_slowly(logits, count, 1.5, top_k ? top_k : count, uniform));
        ck_assert_int_eq(ddp_generator_draw(logits, count, 0, top_k, uniform, order),
                         draw_slowly(logits, count, 1, 1, 0));
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("generate");
    TCase *tc = tcase_create("generate");
    tcase_add_checked_fixture(tc, open_device, close_device);
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_logits, 0, 3);
    tcase_add_loop_test(tc, test_company, 0, 3);
    tcase_add_loop_test(tc, test_llama, 0, 2);
    tcase_add_test(tc, test_short_context);
    tcase_add_test(tc, test_not_finite);
    tcase_add_test(tc, test_draw);
    suite_add_tcase(suite, tc);
    return suite;
}

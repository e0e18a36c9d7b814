/* SPDX-License-Identifier: MIT
 *
 * core/rng against PyTorch's own answers (golden/rng.txt), bit for bit. */
#include "config.h"

#include "core/rng.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"

#include <math.h>

#define MOST 500000

static float values[MOST];
static uint32_t order[MOST];

static uint64_t fnv(const void *data, size_t bytes)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        value = (value ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return value;
}

static void same_floats(const struct golden *g, int count)
{
    ck_assert_msg(g->answer_count == count, "%s: %d numbers, not %d", g->name, g->answer_count,
                  count);
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        uint32_t wanted = (uint32_t)strtoul(g->answer[i], NULL, 16);
        ck_assert_msg(bits == wanted, "%s: number %d is %08x, PyTorch has %08x", g->name, i, bits,
                      wanted);
    }
}

static void same_hash(const struct golden *g, const void *data, size_t bytes)
{
    uint64_t wanted = strtoull(g->answer[0], NULL, 16);
    ck_assert_msg(fnv(data, bytes) == wanted, "%s: other bits than PyTorch's", g->name);
}

static void same_order(const struct golden *g, int count)
{
    ck_assert_int_ge(g->answer_count, count);
    for (int i = 0; i < count; i++)
        ck_assert_msg(order[i] == strtoul(g->answer[i], NULL, 10), "%s: other order", g->name);
}

static size_t fill_linear(struct ddp_rng *rng, size_t fan_in, size_t out)
{
    ck_assert_uint_le(fan_in * out + out, (size_t)MOST);
    ddp_rng_fill_linear_weight(rng, values, fan_in * out, fan_in);
    ddp_rng_fill_linear_bias(rng, values + fan_in * out, out, fan_in);
    return fan_in * out + out;
}

static void check_case(const struct golden *g)
{
    struct ddp_rng rng;
    const char *kind = g->words[0];
    long a = strtol(g->words[2], NULL, 10), b = g->words[3] ? strtol(g->words[3], NULL, 10) : 0;
    bool hashed = strstr(kind, "-hash") != NULL;
    ddp_rng_seed(&rng, strtoull(g->words[1], NULL, 10));
    if (strcmp(kind, "rand") == 0) {
        ddp_rng_fill_uniform01(&rng, values, (size_t)a);
        same_floats(g, (int)a);
    } else if (strcmp(kind, "uniform") == 0) {
        ddp_rng_fill_uniform(&rng, values, (size_t)a, strtod(g->words[3], NULL),
                             strtod(g->words[4], NULL));
        same_floats(g, (int)a);
    } else if (strncmp(kind, "randperm", 8) == 0) {
        ck_assert_int_eq(ddp_rng_permutation(&rng, a, order), DDP_OK);
        if (hashed)
            same_hash(g, order, (size_t)a * sizeof *order);
        else
            same_order(g, (int)a);
    } else if (strcmp(kind, "then") == 0) {
        ck_assert_int_eq(ddp_rng_permutation(&rng, a, order), DDP_OK);
        same_order(g, (int)a);
        ddp_rng_fill_uniform01(&rng, values, 2);
        struct golden rest = {
            .name = g->name, .answer = g->answer + a, .answer_count = g->answer_count - (int)a};
        same_floats(&rest, 2);
    } else if (strcmp(kind, "normal") == 0) {
        double mean = strtod(g->words[4], NULL), std = strtod(g->words[5], NULL);
        ddp_rng_fill_normal(&rng, values, (size_t)a, mean, std);
        ddp_rng_fill_normal(&rng, values + a, (size_t)b, mean, std);
        same_floats(g, (int)(a + b));
    } else if (strcmp(kind, "normal-hash") == 0) {
        ddp_rng_fill_normal(&rng, values, (size_t)a, 0, 1);
        same_hash(g, values, (size_t)a * sizeof *values);
    } else if (strncmp(kind, "linear", 6) == 0) {
        size_t count = fill_linear(&rng, (size_t)a, (size_t)b);
        if (hashed)
            same_hash(g, values, count * sizeof *values);
        else
            same_floats(g, (int)count);
    } else {
        ck_abort_msg("unknown kind of case: %s", kind);
    }
}

START_TEST(pytorch_gives_the_same_bits)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("core/golden/rng.txt");
    for (; golden_next(file, &g); golden_free(&g), cases++)
        check_case(&g);
    fclose(file);
    ck_assert_int_ge(cases, 90);
}
END_TEST

START_TEST(published_first_numbers)
{
    /* The reference program of MT19937 with its default seed: draws 1 and 10000. */
    struct ddp_rng rng;
    ddp_rng_seed(&rng, 5489);
    ck_assert_uint_eq(ddp_rng_u32(&rng), 3499211612u);
    for (int i = 2; i < 10000; i++)
        ddp_rng_u32(&rng);
    ck_assert_uint_eq(ddp_rng_u32(&rng), 4123659995u);
}
END_TEST

START_TEST(only_the_low_seed_bits_count)
{
    struct ddp_rng a, b;
    ddp_rng_seed(&a, 7);
    ddp_rng_seed(&b, 7 + (1ull << 32));
    for (int i = 0; i < 1000; i++)
        ck_assert_uint_eq(ddp_rng_u32(&a), ddp_rng_u32(&b));
}
END_TEST

START_TEST(permutation_limits)
{
    struct ddp_rng rng;
    ddp_rng_seed(&rng, 1);
    ck_assert_int_eq(ddp_rng_permutation(&rng, 0, order), DDP_OK);
    ck_assert_int_eq(ddp_rng_permutation(&rng, 1, order), DDP_OK);
    ck_assert_uint_eq(order[0], 0);
    ck_assert_int_eq(ddp_rng_permutation(&rng, -1, order), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_rng_permutation(&rng, 1ll << 32, order), DDP_ERR_INVALID);
}
END_TEST

START_TEST(normal_numbers_are_normal)
{
    struct ddp_rng rng;
    double sum = 0, squares = 0;
    ddp_rng_seed(&rng, 11);
    ddp_rng_fill_normal(&rng, values, MOST, 3, 2);
    for (int i = 0; i < MOST; i++) {
        ck_assert(isfinite(values[i]));
        sum += values[i];
        squares += (values[i] - 3.0) * (values[i] - 3.0);
    }
    ck_assert_double_eq_tol(sum / MOST, 3, 0.02);
    ck_assert_double_eq_tol(sqrt(squares / MOST), 2, 0.02);
}
END_TEST

/* A normal number that is left over from before is not kept. */
START_TEST(seeded_anew)
{
    struct ddp_rng used, fresh;
    float a[2], b[2];
    ddp_rng_seed(&used, 1);
    ddp_rng_fill_normal(&used, a, 1, 0, 1);
    ddp_rng_seed(&used, 7);
    ddp_rng_seed(&fresh, 7);
    ddp_rng_fill_normal(&used, a, 2, 0, 1);
    ddp_rng_fill_normal(&fresh, b, 2, 0, 1);
    ck_assert(memcmp(a, b, sizeof a) == 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rng");
    TCase *tc = test_case(suite, "rng", 60);
    tcase_add_test(tc, pytorch_gives_the_same_bits);
    tcase_add_test(tc, published_first_numbers);
    tcase_add_test(tc, only_the_low_seed_bits_count);
    tcase_add_test(tc, permutation_limits);
    tcase_add_test(tc, normal_numbers_are_normal);
    tcase_add_test(tc, seeded_anew);
    return suite;
}

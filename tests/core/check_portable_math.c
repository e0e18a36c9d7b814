/* SPDX-License-Identifier: MIT
 *
 * core/portable_math: below one unit of the last place beside the C library in long double, and the
 * bits of 100,000 results of each function, which are the same wherever this runs. core/fma: the C
 * library's results. */
#include "config.h"

#include "core/fma.h"
#include "core/hash.h"
#include "core/portable_math.h"
#include "core/rng.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT 100000

static double sine_of(double x)
{
    double sine, cosine;
    ddp_math_sin_cos(x, &sine, &cosine);
    return sine;
}

static double cosine_of(double x)
{
    double sine, cosine;
    ddp_math_sin_cos(x, &sine, &cosine);
    return cosine;
}

/* Powers of numbers from 0.5 to 1.5: what optimizers and schedules ask for. */
static const double exponents[] = {-3000.25, -1, 0.3, 2, 1000, 0x1p-20};

static double exponent_for(double x)
{
    return exponents[(int)fmod(x * 0x1p30, 6)];
}

static double power_of(double x)
{
    return ddp_math_pow(x, exponent_for(x));
}

static long double exact_power(long double x)
{
    return powl(x, (long double)exponent_for((double)x));
}

static double binade(double x)
{
    return ldexp(1 + fmod(fabs(x), 1), (int)fmod(x, 1070));
}

static const struct {
    const char *name;
    double (*function)(double x);
    long double (*exact)(long double x);
    double low, high;
    bool all_binades; /* arguments of every size */
    uint64_t hash;
} functions[] = {
    {"exp", ddp_math_exp, expl, -745, 709.7, false, 0xcd8330fc60da58dd},
    {"exp near 0", ddp_math_exp, expl, -1, 1, false, 0x8883b5d9258225a6},
    {"log", ddp_math_log, logl, -1070, 1020, true, 0x8d6d3e06a6ed26c4},
    {"log near 1", ddp_math_log, logl, 0.5, 2, false, 0x3a82aa44289122a7},
    {"sin", sine_of, sinl, -1e4, 1e4, false, 0x2884662b29998f6c},
    {"cos", cosine_of, cosl, -1e4, 1e4, false, 0xc1a620b38959c43c},
    {"sin of much", sine_of, sinl, 1e6, 1e12, false, 0xc09ea5b5ab729947},
    {"cos near 0", cosine_of, cosl, -1, 1, false, 0xc8fcdcf6b39bcf14},
    {"pow", power_of, exact_power, 0.8, 1.25, false, 0xa67be80670bb3d91},
};

START_TEST(test_functions)
{
    static double results[COUNT];
    struct ddp_rng rng;
    double worst = 0, at = 0;
    ddp_rng_seed(&rng, 28);
    for (int i = 0; i < COUNT; i++) {
        const double part = (double)(ddp_rng_u64(&rng) >> 11) * 0x1p-53;
        double x = functions[_i].low + (functions[_i].high - functions[_i].low) * part;
        if (functions[_i].all_binades)
            x = binade(x);
        const long double exact = functions[_i].exact(x);
        const double y = results[i] = functions[_i].function(x), size = fabs((double)exact);
        const double ulp = fmax(nextafter(size, INFINITY) - size, 0x1p-1074);
        const double error = (double)(fabsl(y - exact) / ulp);
        if (!(error <= worst)) {
            worst = error;
            at = x;
        }
    }
    const uint64_t hash = ddp_hash(results, sizeof results);
    ck_assert_msg(worst < 1, "%s(%.17g) is %.3f units of the last place off", functions[_i].name,
                  at, worst);
    ck_assert_msg(hash == functions[_i].hash, "%s: hash %016llx, off by %.3f", functions[_i].name,
                  (unsigned long long)hash, worst);
}
END_TEST

START_TEST(test_special)
{
    double s, c;
    ck_assert(ddp_math_exp(0) == 1 && ddp_math_exp(-0.0) == 1 && ddp_math_exp(-INFINITY) == 0);
    ck_assert(ddp_math_exp(INFINITY) == INFINITY && ddp_math_exp(709.79) == INFINITY &&
              ddp_math_exp(-746) == 0);
    ck_assert(ddp_math_exp(-745) == 0x1p-1074 && isfinite(ddp_math_exp(709.78)) &&
              isnan(ddp_math_exp(NAN)));
    ck_assert(ddp_math_log(1) == 0 && ddp_math_log(0) == -INFINITY &&
              ddp_math_log(INFINITY) == INFINITY);
    ck_assert(isnan(ddp_math_log(-1)) && isnan(ddp_math_log(NAN)) &&
              ddp_math_log(0x1p-1074) < -744);
    ck_assert(ddp_math_pow(0, 0) == 1 && ddp_math_pow(0, 3) == 0 &&
              ddp_math_pow(0, -1) == INFINITY);
    ck_assert(ddp_math_pow(1, INFINITY) == 1 && ddp_math_pow(2, 10) == 1024 &&
              ddp_math_pow(7, 1) == 7);
    ck_assert(ddp_math_pow(0.9, 1e300) == 0 && ddp_math_pow(1.1, 1e300) == INFINITY);
    ck_assert(ddp_math_pow(0.5, -INFINITY) == INFINITY && ddp_math_pow(INFINITY, 2) == INFINITY);
    ck_assert(isnan(ddp_math_pow(-1, 2)) && isnan(ddp_math_pow(NAN, 2)) &&
              isnan(ddp_math_pow(2, NAN)));
    ddp_math_sin_cos(0, &s, &c);
    ck_assert(s == 0 && c == 1);
    ddp_math_sin_cos(INFINITY, &s, &c);
    ck_assert(isnan(s) && isnan(c));
    ddp_math_sin_cos(0x1.921fb54442d18p1, &s, &c); /* the number that is nearest to pi */
    ck_assert(s == 0x1.1a62633145c07p-53 && c == -1);
}
END_TEST

/* --- fused multiply-add --- */

/* Every bit at random, or the few high ones, near 1, subnormal, or not finite. */
static float any_float(struct ddp_rng *rng)
{
    uint32_t bits = ddp_rng_u32(rng);
    float value;
    switch (ddp_rng_u32(rng) % 8) {
    case 0:
        bits &= 0xffff0000;
        break;
    case 1:
        bits = (bits & 0x807fffff) | (120 + ddp_rng_u32(rng) % 16) << 23;
        break;
    case 2:
        bits &= 0x80ffffff;
        break;
    case 3:
        bits &= 0xff800000;
        break;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Compares with the C library. Whether a product and a sum in double give another float. */
static bool rounds_twice(float x, float y, float c)
{
    const float expected = fmaf(x, y, c), got = ddp_fma_f32(x, y, c);
    const float twice = (float)((double)x * (double)y + (double)c);
    if (isnan(expected))
        ck_assert_msg(isnan(got), "%a * %a + %a = %a, not NaN", x, y, c, got);
    else
        ck_assert_msg(memcmp(&got, &expected, sizeof got) == 0, "%a * %a + %a = %a, not %a", x, y,
                      c, got, expected);
    return memcmp(&twice, &expected, sizeof twice) != 0 && !isnan(expected);
}

START_TEST(test_fma)
{
    struct ddp_rng rng;
    int twice = 0;
    ddp_rng_seed(&rng, 1);
    for (int i = 0; i < 10 * COUNT; i++)
        rounds_twice(any_float(&rng), any_float(&rng), any_float(&rng));
    for (int i = 0; i < COUNT; i++) { /* sums that cancel */
        const float x = any_float(&rng), y = any_float(&rng);
        rounds_twice(x, y, -x * y);
    }
    /* Just below half of the last place, by less than double has. */
    for (int exponent = -100; exponent <= 100; exponent++) {
        const float x = ldexpf(0x1.000002p0f, exponent - 24), y = 0x1.fffffcp-1f;
        twice += rounds_twice(x, y, ldexpf(0x1.000002p0f, exponent));
        twice += rounds_twice(-x, y, ldexpf(-0x1.000002p0f, exponent));
        twice += rounds_twice(-x, y, ldexpf(0x1.fffffep0f, exponent));
    }
    ck_assert_int_eq(twice, 3 * 201);
    ck_assert(rounds_twice(0x1.000002p-75f, 0x1.fffffcp-76f, 0x1p-127f + 0x1p-149f));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("portable_math");
    TCase *tc = test_case(suite, "portable_math", 60);
    tcase_add_loop_test(tc, test_functions, 0, sizeof functions / sizeof functions[0]);
    tcase_add_test(tc, test_special);
    tcase_add_test(tc, test_fma);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * The math of the kernels against the C library in double, over the whole range of float32. */
#include "config.h"

#include "kernels/cpu/vmath.h"
#include "tests/kernels/kernels_test.h"

typedef void function16(const float *x, float *y);

#define FUNCTION(name)                                                                             \
    DDP_INLINE void name##_inline(const float *x, float *y)                                        \
    {                                                                                              \
        ddp_store16(y, ddp_##name(ddp_load16(x)));                                                 \
    }                                                                                              \
    DDP_MULTIVERSION                                                                               \
    static void name##_of(const float *x, float *y)                                                \
    {                                                                                              \
        name##_inline(x, y);                                                                       \
    }
FUNCTION(exp16)
FUNCTION(exp16_negative)
FUNCTION(normal16)
FUNCTION(gelu16)
FUNCTION(gelu16_derivative)
FUNCTION(gelu16_tanh)
FUNCTION(gelu16_tanh_derivative)

static double normal_of(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu_of(double x)
{
    return x < -30 ? -0.0 : x * normal_of(x);
}

static double gelu_derivative_of(double x)
{
    return fabs(x) > 30 ? x > 0 : normal_of(x) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

static double gelu_tanh_of(double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return fabs(x) > 30 ? fmax(x, -0.0) : 0.5 * x * (1 + tanh(u));
}

static double gelu_tanh_derivative_of(double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = tanh(u);
    return fabs(x) > 30 ? x > 0
                        : 0.5 * (1 + t) +
                              0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static const struct {
    const char *name;
    function16 *function;
    double (*exact)(double x);
    double ulps;     /* of the exact result */
    double absolute; /* or this far */
    double from, to; /* and beyond: what it is at infinity */
} functions[] = {
    {"exp", exp16_of, exp, 1.3, 0, -INFINITY, INFINITY},
    {"exp of negatives", exp16_negative_of, exp, 1.3, 0x1p-126, -INFINITY, 0},
    {"normal", normal16_of, normal_of, 2.5, 4e-8, -INFINITY, INFINITY},
    {"gelu", gelu16_of, gelu_of, 2, 6e-8, -INFINITY, 1e30},
    {"gelu'", gelu16_derivative_of, gelu_derivative_of, 2, 1.5e-7, -1e15, 1e15},
    {"gelu tanh", gelu16_tanh_of, gelu_tanh_of, 2, 1e-7, -1e12, 1e12},
    {"gelu tanh'", gelu16_tanh_derivative_of, gelu_tanh_derivative_of, 2, 3e-7, -1e12, 1e12},
};

static double ulp_of(double y)
{
    float at = fabsf((float)y);
    if (isinf(at))
        return INFINITY;
    return at < 0x1p-126f ? 0x1p-149 : (double)(nextafterf(at, INFINITY) - at);
}

/* Every 911th of all float32 numbers: each binade about 9,000 times. */
START_TEST(test_accuracy)
{
    double worst_ulps = 0, worst_absolute = 0, at = 0;
    for (uint64_t first = 0; first < UINT32_MAX; first += 911 * DDP_LANES) {
        float x[DDP_LANES], y[DDP_LANES];
        for (int lane = 0; lane < DDP_LANES; lane++) {
            uint32_t bits = (uint32_t)(first + 911 * (uint64_t)lane);
            memcpy(&x[lane], &bits, sizeof bits);
        }
        functions[_i].function(x, y);
        for (int lane = 0; lane < DDP_LANES; lane++) {
            double in = (double)x[lane];
            if (isnan(in)) {
                ck_assert_msg(isnan(y[lane]), "%s of NaN is %g", functions[_i].name,
                              (double)y[lane]);
                continue;
            }
            if (in < functions[_i].from || in > functions[_i].to)
                continue;
            double exact = functions[_i].exact(in);
            if ((double)y[lane] == exact || (float)exact == y[lane])
                continue;
            double difference = fabs((double)y[lane] - exact), ulps = difference / ulp_of(exact);
            ck_assert_msg(ulps <= functions[_i].ulps || difference <= functions[_i].absolute,
                          "%s(%.9g) is %.9g, should be %.9g: %.2f ulps", functions[_i].name, in,
                          (double)y[lane], exact, ulps);
            if (difference > functions[_i].absolute && ulps > worst_ulps) {
                worst_ulps = ulps;
                at = in;
            }
            worst_absolute = fmax(worst_absolute, ulps > functions[_i].ulps ? difference : 0);
        }
    }
    if (getenv("DDP_TEST_VERBOSE"))
        printf("%s: %.3f ulps at %g, else %g\n", functions[_i].name, worst_ulps, at,
               worst_absolute);
}
END_TEST

static float one_of(function16 *function, float x)
{
    float in[DDP_LANES] = {0}, out[DDP_LANES];
    in[7] = x;
    function(in, out);
    return out[7];
}

START_TEST(test_special)
{
    ck_assert(one_of(exp16_of, INFINITY) == INFINITY && one_of(exp16_of, -INFINITY) == 0);
    ck_assert(one_of(exp16_of, 0) == 1 && one_of(exp16_of, -0.0f) == 1);
    ck_assert(one_of(exp16_of, 88.73f) == INFINITY && one_of(exp16_of, 1e30f) == INFINITY);
    ck_assert(one_of(exp16_of, -103.9f) == 0 || one_of(exp16_of, -103.9f) == 0x1p-149f);
    ck_assert(one_of(exp16_of, -100) > 0 && one_of(exp16_of, -1e30f) == 0);
    ck_assert(one_of(exp16_negative_of, -INFINITY) == 0 && one_of(exp16_negative_of, 0) == 1);
    ck_assert(one_of(normal16_of, INFINITY) == 1 && one_of(normal16_of, -INFINITY) == 0);
    ck_assert(one_of(gelu16_of, INFINITY) == INFINITY && one_of(gelu16_of, 0) == 0);
    ck_assert(one_of(gelu16_tanh_of, INFINITY) == INFINITY && one_of(gelu16_tanh_of, 0) == 0);
    ck_assert(one_of(gelu16_of, -1e20f) == 0 && one_of(gelu16_tanh_of, -1e20f) == 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("vmath");
    TCase *tc = test_case(suite, "vmath", 120);
    tcase_add_loop_test(tc, test_accuracy, 0, sizeof functions / sizeof functions[0]);
    tcase_add_test(tc, test_special);
    return suite;
}

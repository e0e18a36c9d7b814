/* SPDX-License-Identifier: MIT
 *
 * What the kernels' tests share: random arrays with guards behind them, comparisons, pools of
 * several sizes, and gradients by central differences. */
#ifndef DDP_TESTS_KERNELS_TEST_H
#define DDP_TESTS_KERNELS_TEST_H

#include "core/pool.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 12345.678f /* the element behind each array: nobody writes there */

static uint64_t random_state;

static inline void random_seed(uint64_t seed)
{
    random_state = seed * 2 + 1;
}

/* In [-1, 1). */
static inline float random_number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(random_state >> 40) / 8388608.0f - 1.0f;
}

static inline int64_t random_below(int64_t limit)
{
    random_number();
    return (int64_t)((random_state >> 33) % (uint64_t)limit);
}

static inline float *array_of(int64_t count)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = random_number();
    values[count] = GUARD;
    return values;
}

static inline float *array_copy(const float *from, int64_t count)
{
    float *values = array_of(count);
    memcpy(values, from, (size_t)(count + 1) * sizeof *values);
    return values;
}

static inline void array_free(float *values, int64_t count)
{
    ck_assert_msg(values[count] == GUARD, "written behind the end of %lld elements",
                  (long long)count);
    free(values);
}

static inline bool same_bits(const float *a, const float *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* The larger of two sizes. NaN counts as infinitely large and is never forgotten. */
static inline double larger(double a, double b)
{
    if (isnan(a) || isnan(b))
        return INFINITY;
    return a > b ? a : b;
}

/* NaN is infinitely far from everything, another NaN included. */
static inline double largest_difference(const float *a, const float *b, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const double difference = a[i] == b[i] ? 0 : fabs((double)a[i] - (double)b[i]);
        largest = larger(largest, difference);
    }
    return largest;
}

/* The largest absolute value: what a tolerance is a share of, and so it must be finite. */
static inline double largest_size(const float *values, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = larger(largest, fabs((double)values[i]));
    ck_assert_msg(isfinite(largest), "a tolerance cannot be a share of NaN or infinity");
    return largest;
}

/* How far two float sums of k products of numbers in [-1, 1] may differ, the same products taken in
 * different order: each of the k additions rounds a running sum of about sqrt(k)/3 by up to 2^-24
 * of it, at random, so the largest difference over a matrix grows with k. The worst seen over all
 * shapes of check_gemm and check_linear, in units of 2^-24: 2 at k = 2, 8 at 7, 32 at 31, 160 at
 * 160, 208 at 235, 432 at 784. This allows 2.5 to 4.5 times that. */
static inline double product_tolerance(int64_t k)
{
    return 0x1p-24 * (4 + 2.5 * (double)k);
}

/* Every kernel gives the same bits with each of these. */
#define POOLS 4
static const int pool_threads[POOLS] = {1, 2, 3, 5};
static ddp_pool *pools[POOLS];

static inline void pools_create(void)
{
    for (int i = 0; i < POOLS; i++)
        ck_assert_int_eq(ddp_pool_create(&pools[i], pool_threads[i]), DDP_OK);
}

static inline void pools_destroy(void)
{
    for (int i = 0; i < POOLS; i++)
        ddp_pool_destroy(pools[i]);
}

static inline TCase *kernel_case(Suite *suite, const char *name)
{
    TCase *tc = test_case(suite, name, 60);
    tcase_add_checked_fixture(tc, pools_create, pools_destroy);
    return tc;
}

/* The gradient of loss(arg) against gradient[0..count), by central differences at `values`, which
 * loss() reads. The loss is a double, computed in double from the operation's float outputs: what
 * limits the step is their rounding, about 1e-7 of their size. */
static inline void check_gradient(const char *name, float *values, const float *gradient,
                                  int64_t count, double (*loss)(void *arg), void *arg,
                                  double tolerance)
{
    for (int64_t i = 0; i < count; i++) {
        const float kept = values[i];
        volatile float up = kept + 0x1p-7f, down = kept - 0x1p-7f; /* as they really are */
        values[i] = up;
        double above = loss(arg);
        values[i] = down;
        double below = loss(arg);
        values[i] = kept;
        double expected = (above - below) / ((double)up - (double)down);
        ck_assert_msg(fabs(expected - (double)gradient[i]) <= tolerance,
                      "gradient of %s[%lld] is %g, differences give %g", name, (long long)i,
                      (double)gradient[i], expected);
    }
}

#endif

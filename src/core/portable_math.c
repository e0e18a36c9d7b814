/* SPDX-License-Identifier: MIT
 *
 * See portable_math.h. Taylor's series after a reduction of the argument; where a rounding would
 * cost more than a fraction of the last place, a value is a sum of two numbers, high and low. All C
 * libraries agree on fma(), which rounds once, whether the processor has it or not. */
#include "config.h"

#include "core/portable_math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct sum {
    double high, low;
};

/* ln 2 and pi / 2, as sums. */
static const struct sum ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static const double half_pi[] = {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54,
                                 -0x1.f1976b7ed8fbcp-110};

/* The rounded integers from -2^51 to 2^51: in the last bits of the sum. */
static double rounded(double x)
{
    const double round_off = 0x1.8p52;
    return x + round_off - round_off;
}

/* a + b without error for |a| >= |b|, or a = 0. */
static struct sum add(double a, double b)
{
    const double high = a + b;
    return (struct sum){high, b - (high - a)};
}

static struct sum multiply(double a, double b)
{
    const double high = a * b;
    return (struct sum){high, fma(a, b, -high)};
}

/* The coefficient of the highest power comes first. */
static double polynomial(double x, const double *coefficients, int count)
{
    double y = coefficients[0];
    for (int i = 1; i < count; i++)
        y = y * x + coefficients[i];
    return y;
}

/* 2^n for a normal number. */
static double power_of_two(int64_t n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- exponential and logarithm ---------------------------------------------------------------- */

/* e^(x + low) for a low below the last place of x. x is n ln 2 and a rest of at most ln 2 / 2; the
 * even and the odd powers are two chains, which a processor computes at once. */
static double exp_of(double x, double low)
{
    static const double even[] = {1.0 / 87178291200, 1.0 / 479001600, 1.0 / 3628800, 1.0 / 40320,
                                  1.0 / 720,         1.0 / 24,        1.0 / 2};
    static const double odd[] = {1.0 / 6227020800, 1.0 / 39916800, 1.0 / 362880,
                                 1.0 / 5040,       1.0 / 120,      1.0 / 6};
    if (x != x)
        return x;
    if (x > 710)
        return INFINITY;
    if (x < -746)
        return 0;
    const double n = rounded(x * 0x1.71547652b82fep0); /* 1 / ln 2 */
    const struct sum r = add(fma(-n, ln2.high, x), low - n * ln2.low);
    const double z = r.high * r.high;
    const double p = z * (polynomial(z, even, 7) + r.high * polynomial(z, odd, 6));
    const double y = 1 + (r.high + (p + r.low));
    const int64_t half = (int64_t)n / 2; /* in two steps, neither out of range */
    return y * power_of_two(half) * power_of_two((int64_t)n - half);
}

/* ln x for a positive finite x = 2^n m, where sqrt(1/2) < m < sqrt 2: n ln 2 + 2 artanh s,
 * s = (m - 1) / (m + 1), with s and s^3 / 3 as sums. */
static struct sum log_of(double x)
{
    static const double powers[] = {2.0 / 27, 2.0 / 25, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17,
                                    2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5};
    const struct sum two_thirds = {2.0 / 3, 0x1.5555555555555p-55};
    const int64_t below = x < 0x1p-1022 ? 54 : 0; /* a subnormal number is made a normal one */
    uint64_t bits;
    x *= power_of_two(below);
    memcpy(&bits, &x, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52) - 1023 - below;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) {
        m *= 0.5;
        exponent++;
    }
    const double n = (double)exponent, over = m - 1, under = m + 1;
    struct sum s = {over / under, 0};
    s.low = (fma(-s.high, under, over) - s.high * (m - (under - 1))) / under;
    struct sum z = multiply(s.high, s.high);
    z.low += 2 * s.high * s.low;
    struct sum cube = multiply(s.high, z.high);
    cube.low += s.high * z.low + s.low * z.high;
    struct sum third = multiply(cube.high, two_thirds.high);
    third.low += cube.high * two_thirds.low + cube.low * two_thirds.high;
    const double rest = cube.high * z.high * polynomial(z.high, powers, 12);
    const struct sum whole = multiply(n, ln2.high);
    const struct sum first = add(whole.high, 2 * s.high), second = add(first.high, third.high);
    const double low = whole.low + n * ln2.low + first.low + second.low + 2 * s.low + third.low;
    return add(second.high, low + rest);
}

double ddp_math_exp(double x)
{
    return exp_of(x, 0);
}

double ddp_math_log(double x)
{
    if (!(x > 0) || x == INFINITY)
        return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    const struct sum y = log_of(x);
    return y.high + y.low;
}

double ddp_math_pow(double x, double y)
{
    if (y == 0 || x == 1)
        return 1;
    if (!(x > 0) || x == INFINITY) {
        if (x < 0 || x != x || y != y)
            return NAN;
        return (x == 0) == (y > 0) ? 0 : INFINITY;
    }
    const struct sum l = log_of(x);
    const struct sum p = multiply(y, l.high);
    if (!(fabs(p.high) < 800)) /* far out of range, where the low part means nothing */
        return exp_of(p.high, 0);
    return exp_of(p.high, p.low + y * l.low);
}

/* --- sine and cosine -------------------------------------------------------------------------- */

void ddp_math_sin_cos(double x, double *sine, double *cosine)
{
    static const double odd[] = {
        1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
        1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
    static const double even[] = {
        -1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
        -1.0 / 3628800,          1.0 / 40320,          -1.0 / 720,         1.0 / 24};
    if (!(fabs(x) <= 0x1p45)) {
        *sine = *cosine = NAN;
        return;
    }
    /* x is n quarter turns and a rest, whose first subtraction is exact. */
    const double n = rounded(x * 0x1.45f306dc9c883p-1);
    const struct sum p = multiply(n, half_pi[1]);
    const double first = fma(-n, half_pi[0], x), high = first - p.high, back = high - first;
    const double low = first - (high - back) - (p.high + back);
    const struct sum r = add(high, low - p.low - n * half_pi[2]);
    const double z = r.high * r.high, half = 0.5 * z, w = 1 - half;
    const double s = r.high + (r.high * z * polynomial(z, odd, 8) + r.low * w);
    const double c = w + (1 - w - half + (z * z * polynomial(z, even, 8) - r.high * r.low));
    const unsigned quarter = (unsigned)(int64_t)n & 3;
    const double across = quarter & 1 ? c : s, along = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -across : across;
    *cosine = quarter == 1 || quarter == 2 ? -along : along;
}

/* SPDX-License-Identifier: MIT
 *
 * Instructions on floats and doubles: PTX ISA, "Floating Point Instructions". Rounded to nearest,
 * to even, unless they say otherwise; .ftz flushes subnormal numbers of the operands and the result
 * to zero, .sat clamps the result to [0, 1], NaN to 0. What is approximate on a GPU is exact to a
 * bit or so here: tests compare with a tolerance. */
#include "config.h"

#include "tests/ptxsim/machine.h"

#include <float.h>
#include <math.h>
#include <string.h>

static float flushed(const struct ptx_ins *i, float value)
{
    return i->flush && fabsf(value) < FLT_MIN ? copysignf(0, value) : value;
}

static float result(const struct ptx_ins *i, float value)
{
    value = flushed(i, value);
    return !i->saturate ? value : value > 0 ? fminf(value, 1) : 0;
}

#define UNARY(name, type, value)                                                                   \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)                  \
    {                                                                                              \
        type *d = (type *)(w->registers + i->o[0].at);                                             \
        const type *x = (const type *)(w->registers + i->o[1].at);                                 \
        PTX_EACH(lanes, const type a = x[l]; d[l] = (value));                                      \
    }
#define BINARY(name, type, value)                                                                  \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)                  \
    {                                                                                              \
        type *d = (type *)(w->registers + i->o[0].at);                                             \
        const type *x = (const type *)(w->registers + i->o[1].at);                                 \
        const type *y = (const type *)(w->registers + i->o[2].at);                                 \
        PTX_EACH(lanes, const type a = x[l]; const type b = y[l]; d[l] = (value));                 \
    }

BINARY(add_f32, float, a + b)
BINARY(sub_f32, float, a - b)
BINARY(mul_f32, float, a *b)
BINARY(div_f32, float, a / b)
BINARY(add_f64, double, a + b)
BINARY(sub_f64, double, a - b)
BINARY(mul_f64, double, a *b)
BINARY(div_f64, double, a / b)
UNARY(neg_f32, float, -a)
UNARY(neg_f64, double, -a)
UNARY(abs_f32, float, fabsf(a))
UNARY(abs_f64, double, fabs(a))
UNARY(sqrt_f32, float, sqrtf(a))
UNARY(sqrt_f64, double, sqrt(a))
UNARY(rcp_f32, float, result(i, 1 / flushed(i, a)))
/* rcp.approx.ftz.f64: 20 bits, the lower half of the result is zero. */
static double rough(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~(uint64_t)UINT32_MAX;
    memcpy(&value, &bits, sizeof bits);
    return value;
}
UNARY(rcp_f64, double, i->flush ? rough(1 / a) : 1 / a)
UNARY(exp2_f32, float, result(i, (float)exp2((double)flushed(i, a))))
/* "copysign: copies sign bit of a into value of b" */
BINARY(copysign_f32, float, copysignf(b, a))

/* "If one of the inputs is NaN, the result is the other"; with .NaN it is NaN. -0 < +0. */
static float larger(const struct ptx_ins *i, float a, float b)
{
    if (isnan(a) || isnan(b))
        return i->propagate_nan ? NAN : isnan(a) ? b : a;
    return a > b || (a == b && signbit(b)) ? a : b;
}
BINARY(max_f32, float, larger(i, a, b))
BINARY(min_f32, float, -larger(i, -a, -b))

/* fma.rm: towards minus infinity. The exact product and c in double, with what is lost. */
static float fused_down(float a, float b, float c)
{
    const double product = (double)a * b, sum = product + c, part = sum - product;
    const double lost = (product - (sum - part)) + (c - part);
    const float near = (float)sum;
    return (double)near > sum || ((double)near == sum && lost < 0) ? nextafterf(near, -INFINITY)
                                                                   : near;
}

static void fma_f32(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    float *d = PTX_F32(w, i->o[0]);
    const float *a = PTX_F32(w, i->o[1]), *b = PTX_F32(w, i->o[2]), *c = PTX_F32(w, i->o[3]);
    if (i->rounding == PTX_RM)
        PTX_EACH(lanes, d[l] = fused_down(a[l], b[l], c[l]));
    else
        PTX_EACH(lanes, d[l] = __builtin_fmaf(a[l], b[l], c[l]));
}

static void fma_f64(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    double *d = PTX_F64(w, i->o[0]);
    const double *a = PTX_F64(w, i->o[1]), *b = PTX_F64(w, i->o[2]), *c = PTX_F64(w, i->o[3]);
    PTX_EACH(lanes, d[l] = __builtin_fma(a[l], b[l], c[l]));
}

/* The comparison of decode.c's list: six that are false, six that are true where an operand is NaN,
 * num and nan. */
#define COMPARE(suffix, type)                                                                      \
    static void set_##suffix(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)          \
    {                                                                                              \
        const type *x = (const type *)(w->registers + i->o[1].at);                                 \
        const type *y = (const type *)(w->registers + i->o[2].at);                                 \
        uint32_t less = 0, equal = 0, more = 0, value = 0;                                         \
        for (int l = 0; l < PTX_WARP; l++) {                                                       \
            less |= (uint32_t)(x[l] < y[l]) << l;                                                  \
            equal |= (uint32_t)(x[l] == y[l]) << l;                                                \
            more |= (uint32_t)(x[l] > y[l]) << l;                                                  \
        }                                                                                          \
        const uint32_t ordered = less | equal | more;                                              \
        const uint32_t values[] = {equal, less | more,  less,   less | equal,                      \
                                   more,  more | equal, ordered};                                  \
        value = i->mode >= 12 ? values[6] : values[i->mode % 6];                                   \
        if (i->mode >= 6 && i->mode < 12)                                                          \
            value |= ~ordered;                                                                     \
        ptx_set_predicate(w, &i->o[0], i->mode == 13 ? ~ordered : value, lanes);                   \
    }
COMPARE(f32, float)
COMPARE(f64, double)

const struct ptx_operation ptx_floats[] = {
    {"add.f32", "444", add_f32},  {"sub.f32", "444", sub_f32},
    {"mul.f32", "444", mul_f32},  {"div.f32", "444", div_f32},
    {"fma.f32", "4444", fma_f32}, {"add.f64", "888", add_f64},
    {"sub.f64", "888", sub_f64},  {"mul.f64", "888", mul_f64},
    {"div.f64", "888", div_f64},  {"fma.f64", "8888", fma_f64},
    {"neg.f32", "44", neg_f32},   {"neg.f64", "88", neg_f64},
    {"abs.f32", "44", abs_f32},   {"abs.f64", "88", abs_f64},
    {"sqrt.f32", "44", sqrt_f32}, {"sqrt.f64", "88", sqrt_f64},
    {"rcp.f32", "44", rcp_f32},   {"rcp.f64", "88", rcp_f64},
    {"ex2.f32", "44", exp2_f32},  {"copysign.f32", "444", copysign_f32},
    {"max.f32", "444", max_f32},  {"min.f32", "444", min_f32},
    {"setp.f32", "p44", set_f32}, {"setp.f64", "p88", set_f64},
    {NULL, NULL, NULL},
};

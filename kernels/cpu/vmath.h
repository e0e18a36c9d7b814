/* SPDX-License-Identifier: MIT
 *
 * exp, tanh, erf and GELU on sixteen lanes, in plain C: the same bits on every instruction set, at
 * every place of an array (a tail goes through a padded block), whatever the C library. Errors are
 * those that check_vmath measures over the whole range of float32. */
#ifndef DDP_KERNELS_CPU_VMATH_H
#define DDP_KERNELS_CPU_VMATH_H

#include "kernels/cpu/cpu.h"

#include <math.h>

/* Everything here is inlined: no vector is passed the way that the warning is about. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

DDP_INLINE ddp_f32x16 ddp_load16(const float *p)
{
    ddp_f32x16 value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* Sixteen of bf16, as float32. */
DDP_INLINE ddp_f32x16 ddp_load16_bf16(const uint16_t *p)
{
    typedef uint16_t halves __attribute__((vector_size(32)));
    halves upper;
    ddp_f32x16 value;
    memcpy(&upper, p, sizeof upper);
    const ddp_u32x16 bits = __builtin_convertvector(upper, ddp_u32x16) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DDP_INLINE void ddp_store16(float *p, ddp_f32x16 value)
{
    memcpy(p, &value, sizeof value);
}

/* The last n < 16 elements of a row; `rest` fills the other lanes. */
DDP_INLINE ddp_f32x16 ddp_load16_tail(const float *p, int64_t n, float rest)
{
    float lanes[DDP_LANES];
    for (int lane = 0; lane < DDP_LANES; lane++)
        lanes[lane] = lane < n ? p[lane] : rest;
    return ddp_load16(lanes);
}

DDP_INLINE void ddp_store16_tail(float *p, int64_t n, ddp_f32x16 value)
{
    float lanes[DDP_LANES];
    ddp_store16(lanes, value);
    for (int64_t lane = 0; lane < n; lane++)
        p[lane] = lanes[lane];
}

DDP_INLINE ddp_f32x16 ddp_splat16(float value)
{
    return (ddp_f32x16){0} + value;
}

DDP_INLINE ddp_f32x16 ddp_select16(ddp_i32x16 mask, ddp_f32x16 yes, ddp_f32x16 no)
{
    return (ddp_f32x16)((mask & (ddp_i32x16)yes) | (~mask & (ddp_i32x16)no));
}

/* b where it is larger, so NaN in b is lost and NaN in a stays. */
DDP_INLINE ddp_f32x16 ddp_max16(ddp_f32x16 a, ddp_f32x16 b)
{
    return ddp_select16(b > a, b, a);
}

DDP_INLINE ddp_f32x16 ddp_abs16(ddp_f32x16 x)
{
    return (ddp_f32x16)((ddp_i32x16)x & 0x7fffffff);
}

/* The lanes' sum: halves are added, then their halves. */
DDP_INLINE float ddp_sum16(ddp_f32x16 x)
{
    float lanes[DDP_LANES];
    ddp_store16(lanes, x);
    for (int half = DDP_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

DDP_INLINE float ddp_largest16(ddp_f32x16 x)
{
    float lanes[DDP_LANES];
    ddp_store16(lanes, x);
    float max = -INFINITY;
    for (int lane = 0; lane < DDP_LANES; lane++)
        max = lanes[lane] > max ? lanes[lane] : max;
    return max;
}

/* x = n ln 2 + r with |r| <= ln 2 / 2; returns e^r by Cephes' polynomial of degree 7. *n has the
 * integer in its low bits, from 0x4b400000 on. */
DDP_INLINE ddp_f32x16 ddp_exp16_reduced(ddp_f32x16 x, ddp_u32x16 *bits)
{
    const float round_off = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    ddp_f32x16 shifted = x * 1.44269504f + round_off;
    ddp_f32x16 n = shifted - round_off;
    ddp_f32x16 r = x - n * ln2_high;
    r = r - n * ln2_low;
    ddp_f32x16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    *bits = (ddp_u32x16)shifted - 0x4b400000u;
    return (p * r) * r + r + 1.0f;
}

/* e^x for x <= 0; 0 where the result would be subnormal, NaN for NaN. */
DDP_INLINE ddp_f32x16 ddp_exp16_negative(ddp_f32x16 x)
{
    const ddp_f32x16 zero = {0};
    const float lowest = -87.33654475f; /* e^x is the smallest normal number */
    ddp_u32x16 n;
    ddp_f32x16 p = ddp_exp16_reduced(x, &n);
    return ddp_select16(x < lowest, zero, p * (ddp_f32x16)((n + 127u) << 23));
}

/* e^x over the whole range, subnormal results too. */
DDP_INLINE ddp_f32x16 ddp_exp16(ddp_f32x16 x)
{
    const ddp_f32x16 zero = {0};
    ddp_u32x16 n;
    ddp_f32x16 p = ddp_exp16_reduced(x, &n);
    ddp_u32x16 half = (ddp_u32x16)((ddp_i32x16)n >> 1); /* 2^n in two steps, neither out of range */
    p = p * (ddp_f32x16)((half + 127u) << 23) * (ddp_f32x16)((n - half + 127u) << 23);
    p = ddp_select16(x < -104.0f, zero, p);
    return ddp_select16(x > 88.8f, zero + INFINITY, p);
}

/* What erf and the normal distribution share: erf(x) for small x; and 1 - erf(|x|) for the rest,
 * accurate for itself up to 4 and small enough beyond. */
#define DDP_ERF_SMALL 0.921875f

DDP_INLINE ddp_f32x16 ddp_erf16_small(ddp_f32x16 x)
{
    ddp_f32x16 s = x * x;
    ddp_f32x16 p = s * 8.3700992597e-5f - 8.14270395117e-4f;
    p = p * s + 5.20103225078e-3f;
    p = p * s - 2.68593982375e-2f;
    p = p * s + 1.12836954933e-1f;
    p = p * s - 3.7612633735e-1f;
    p = p * s + 1.28379166637e-1f;
    return p * x + x;
}

DDP_INLINE ddp_f32x16 ddp_erfc16_large(ddp_f32x16 t)
{
    const ddp_f32x16 far = ddp_splat16(10);
    t = ddp_select16(t > 10.0f, far, t); /* where the polynomial still falls */
    ddp_f32x16 p = t * -1.13037451749e-5f + 3.2352856029e-4f;
    p = p * t - 3.64540414398e-3f;
    p = p * t + 2.37682884435e-2f;
    p = p * t - 1.06244101044e-1f;
    p = p * t - 6.35146951466e-1f;
    p = p * t - 1.28649564350e-1f;
    return ddp_exp16_negative(p * t - t);
}

/* The normal distribution: (1 + erf(x / sqrt 2)) / 2. */
DDP_INLINE ddp_f32x16 ddp_normal16(ddp_f32x16 x)
{
    const ddp_f32x16 zero = {0};
    ddp_f32x16 u = x * 0.70710678f, t = ddp_abs16(u);
    ddp_f32x16 tail = 0.5f * ddp_erfc16_large(t);
    ddp_f32x16 large = ddp_select16(u < zero, tail, 1.0f - tail);
    return ddp_select16(t < DDP_ERF_SMALL, 0.5f + 0.5f * ddp_erf16_small(u), large);
}

DDP_INLINE ddp_f32x16 ddp_gelu16(ddp_f32x16 x)
{
    return x * ddp_normal16(x);
}

/* Its derivative: normal(x) + x e^(-x^2/2) / sqrt(2 pi). */
DDP_INLINE ddp_f32x16 ddp_gelu16_derivative(ddp_f32x16 x)
{
    const ddp_f32x16 far = ddp_splat16(-100);
    ddp_f32x16 exponent = x * x * -0.5f;
    exponent = ddp_select16(exponent < far, far, exponent); /* no infinity times 0 */
    return ddp_normal16(x) + x * (ddp_exp16_negative(exponent) * 0.39894228f);
}

/* By tanh: x (1 + tanh u) / 2 = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). Returns
 * 1 / (1 + e^(-2u)); *slope is its derivative by 2u, e^(-2u) / (1 + e^(-2u))^2. */
DDP_INLINE ddp_f32x16 ddp_gelu16_sigmoid(ddp_f32x16 x, ddp_f32x16 *slope)
{
    const ddp_f32x16 zero = {0}, one = ddp_splat16(1);
    ddp_f32x16 u2 = x * (1.59576912f + 0.0713548163f * x * x);
    ddp_f32x16 e = ddp_exp16_negative(-ddp_abs16(u2));
    ddp_f32x16 r = 1.0f / (1.0f + e);
    *slope = e * r * r;
    return ddp_select16(u2 < zero, e, one) * r;
}

DDP_INLINE ddp_f32x16 ddp_gelu16_tanh(ddp_f32x16 x)
{
    ddp_f32x16 slope;
    return x * ddp_gelu16_sigmoid(x, &slope);
}

DDP_INLINE ddp_f32x16 ddp_gelu16_tanh_derivative(ddp_f32x16 x)
{
    ddp_f32x16 slope, s = ddp_gelu16_sigmoid(x, &slope);
    return s + x * slope * (1.59576912f + 0.214064449f * x * x);
}

#pragma GCC diagnostic pop

#endif

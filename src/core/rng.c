/* SPDX-License-Identifier: MIT
 *
 * See rng.h. MT19937 as published by Matsumoto and Nishimura (1998, initialisation of 2002). */
#include "config.h"

#include "core/rng.h"

#include "core/log.h"
#include "core/multiversion.h"
#include "core/portable_math.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define MIDDLE 397

/* From this many numbers on, PyTorch shuffles with 64-bit draws, to keep the bias of a remainder
 * small. */
#define WIDE_PERMUTATION (UINT32_MAX / 20)

static const double pi = 3.14159265358979323846;

void ddp_rng_seed(struct ddp_rng *rng, uint64_t seed)
{
    uint32_t word = (uint32_t)seed;
    rng->words[0] = word;
    for (uint32_t i = 1; i < DDP_RNG_WORDS; i++) {
        word = 1812433253u * (word ^ (word >> 30)) + i;
        rng->words[i] = word;
    }
    rng->next = DDP_RNG_WORDS;
    rng->has_normal = false;
    rng->kept_normal = 0;
}

static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ (-(low & 1u) & 0x9908b0dfu);
}

static void next_block(struct ddp_rng *rng)
{
    uint32_t *w = rng->words;
    int i = 0;
    for (; i < DDP_RNG_WORDS - MIDDLE; i++)
        w[i] = w[i + MIDDLE] ^ twist(w[i], w[i + 1]);
    for (; i < DDP_RNG_WORDS - 1; i++)
        w[i] = w[i + MIDDLE - DDP_RNG_WORDS] ^ twist(w[i], w[i + 1]);
    w[i] = w[i + MIDDLE - DDP_RNG_WORDS] ^ twist(w[i], w[0]);
    rng->next = 0;
}

uint32_t ddp_rng_u32(struct ddp_rng *rng)
{
    if (rng->next >= DDP_RNG_WORDS)
        next_block(rng);
    uint32_t y = rng->words[rng->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t ddp_rng_u64(struct ddp_rng *rng)
{
    uint64_t high = ddp_rng_u32(rng);
    return high << 32 | ddp_rng_u32(rng);
}

static float uniform01(struct ddp_rng *rng)
{
    return (float)(ddp_rng_u32(rng) & 0xffffffu) * 0x1p-24f;
}

void ddp_rng_fill_uniform01(struct ddp_rng *rng, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = uniform01(rng);
}

void ddp_rng_fill_uniform(struct ddp_rng *rng, float *out, size_t count, double lo, double hi)
{
    float base = (float)lo;
    float range = (float)hi - base;
    for (size_t i = 0; i < count; i++)
        out[i] = fmaf(uniform01(rng), range, base); /* PyTorch is built with fused multiply-add */
}

/* --- normal numbers --------------------------------------------------------------------------- */

static double uniform01_double(struct ddp_rng *rng)
{
    return (double)(ddp_rng_u64(rng) & ((1ull << 53) - 1)) * 0x1p-53;
}

static double normal_double(struct ddp_rng *rng)
{
    if (rng->has_normal) {
        rng->has_normal = false;
        return rng->kept_normal;
    }
    double u1 = uniform01_double(rng);
    double u2 = uniform01_double(rng);
    double radius = sqrt(-2 * ddp_math_log(1 - u2)); /* a difference without rounding */
    double sine, cosine;
    ddp_math_sin_cos(2 * pi * u1, &sine, &cosine);
    rng->kept_normal = radius * sine;
    rng->has_normal = true;
    return radius * cosine;
}

/* The single-precision functions below are those of Moshier's Cephes library with every multiply
 * and add fused that PyTorch's compiler fuses. libm is as exact, but its last bit differs, also
 * from one machine to another. */

/* x * p(x) with the leading coefficient first. */
static inline float polynomial(float x, const float *coefficients, int count)
{
    float y = coefficients[0];
    for (int i = 1; i < count; i++)
        y = fmaf(y, x, coefficients[i]);
    return y * x;
}

/* Natural logarithm for 2^-126 <= x <= 1; less counts as 2^-126. */
static inline float cephes_log(float x)
{
    static const float p[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                              2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    uint32_t bits;
    x = x < 0x1p-126f ? 0x1p-126f : x;
    memcpy(&bits, &x, sizeof bits);
    float exponent = (float)((int)(bits >> 23) - 126);
    bits = (bits & 0x007fffffu) | 0x3f000000u; /* the mantissa as a number in [0.5, 1) */
    memcpy(&x, &bits, sizeof bits);
    bool low = x < 0.707106781186547524f;
    exponent -= low ? 1.0f : 0.0f;
    x = (x - 1) + (low ? x : 0.0f);
    float z = x * x;
    float y = fmaf(polynomial(x, p, 9), z, exponent * -2.12194440e-4f);
    y = fmaf(z, -0.5f, y);
    return fmaf(exponent, 0.693359375f, x + y);
}

/* Sine and cosine of an angle from 0 to 2 pi. */
static inline void cephes_sincos(float angle, float *sine, float *cosine)
{
    static const float sine_p[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
    static const float cosine_p[] = {2.443315711809948e-5f, -1.388731625493765e-3f,
                                     4.166664568298827e-2f};
    int octant = ((int)(angle * 1.27323954473516f) + 1) & ~1;
    float n = (float)octant;
    float x = fmaf(n, -3.77489497744594108e-8f,
                   fmaf(n, -2.4187564849853515625e-4f, fmaf(n, -0.78515625f, angle)));
    float z = x * x;
    float c = fmaf(polynomial(z, cosine_p, 3), z, z * -0.5f) + 1;
    float s = fmaf(polynomial(z, sine_p, 3), x, x);
    bool swap = octant & 2;
    float sine_part = swap ? c : s, cosine_part = swap ? s : c;
    *sine = octant & 4 ? -sine_part : sine_part;
    *cosine = (octant + 2) & 4 ? -cosine_part : cosine_part;
}

/* Turns each 16 uniform numbers into 16 normal ones. */
DDP_MULTIVERSION
static void normal_blocks(float *v, size_t blocks, float mean, float std)
{
    for (; blocks > 0; blocks--, v += 16)
        for (int j = 0; j < 8; j++) {
            float sine, cosine;
            float radius = sqrtf(-2 * cephes_log(1 - v[j]));
            cephes_sincos((float)(2 * pi) * v[j + 8], &sine, &cosine);
            v[j] = fmaf(radius * cosine, std, mean);
            v[j + 8] = fmaf(radius * sine, std, mean);
        }
}

void ddp_rng_fill_normal(struct ddp_rng *rng, float *out, size_t count, double mean, double std)
{
    if (count < 16) {
        for (size_t i = 0; i < count; i++)
            out[i] = (float)(normal_double(rng) * std + mean);
        return;
    }
    ddp_rng_fill_uniform01(rng, out, count);
    normal_blocks(out, count / 16, (float)mean, (float)std);
    if (count % 16) { /* the last 16 are drawn again, over normal numbers that were ready */
        ddp_rng_fill_uniform01(rng, out + count - 16, 16);
        normal_blocks(out + count - 16, 1, (float)mean, (float)std);
    }
}

/* --- permutations ----------------------------------------------------------------------------- */

enum ddp_status ddp_rng_permutation(struct ddp_rng *rng, int64_t n, uint32_t *out)
{
    if (n < 0 || n > UINT32_MAX)
        return ddp_fail(
            DDP_ERR_INVALID,
            "cannot shuffle %lld samples: at most %u are possible, use an unshuffled order",
            (long long)n, UINT32_MAX);
    if (n < WIDE_PERMUTATION) {
        for (uint32_t i = 0; i < n; i++)
            out[i] = i;
        for (uint32_t i = 0; i + 1 < n; i++) {
            uint32_t other = i + ddp_rng_u32(rng) % (uint32_t)(n - i);
            uint32_t swapped = out[i];
            out[i] = out[other];
            out[other] = swapped;
        }
        return DDP_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t other = ddp_rng_u64(rng) % (uint64_t)(i + 1);
        out[i] = (uint32_t)i;
        out[i] = out[other];
        out[other] = (uint32_t)i;
    }
    return DDP_OK;
}

/* --- initial values of layers ----------------------------------------------------------------- */

void ddp_rng_fill_linear_weight(struct ddp_rng *rng, float *out, size_t count, size_t fan_in)
{
    assert(fan_in > 0);
    /* torch.nn.init.kaiming_uniform_(a=sqrt(5)), rounding as it does. */
    double slope = sqrt(5.0);
    double gain = sqrt(2.0 / (1 + slope * slope));
    double bound = sqrt(3.0) * (gain / sqrt((double)fan_in));
    ddp_rng_fill_uniform(rng, out, count, -bound, bound);
}

void ddp_rng_fill_linear_bias(struct ddp_rng *rng, float *out, size_t count, size_t fan_in)
{
    assert(fan_in > 0);
    double bound = 1 / sqrt((double)fan_in);
    ddp_rng_fill_uniform(rng, out, count, -bound, bound);
}

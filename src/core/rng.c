/* SPDX-License-Identifier: MIT
 *
 * See rng.h. MT19937 as published by Matsumoto and Nishimura (1998, initialisation of 2002). */
#include "config.h"

#include "core/rng.h"

#include "core/log.h"

#include <assert.h>
#include <math.h>

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

/* --- normal numbers
 * ---------------------------------------------------------------------------------- */

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
    double radius = sqrt(-2 * log1p(-u2));
    double angle = 2 * pi * u1;
    rng->kept_normal = radius * sin(angle);
    rng->has_normal = true;
    return radius * cos(angle);
}

/* Turns 16 uniform numbers into 16 normal ones. */
static void normal_block(float *v, float mean, float std)
{
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2 * logf(1 - v[j]));
        float angle = (float)(2 * pi) * v[j + 8];
        v[j] = fmaf(radius * cosf(angle), std, mean);
        v[j + 8] = fmaf(radius * sinf(angle), std, mean);
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
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        normal_block(out + i, (float)mean, (float)std);
    if (i < count) { /* the last 16 are drawn again, over normal numbers that were ready */
        ddp_rng_fill_uniform01(rng, out + count - 16, 16);
        normal_block(out + count - 16, (float)mean, (float)std);
    }
}

/* --- permutations
 * ------------------------------------------------------------------------------------ */

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

/* --- initial values of layers
 * --------------------------------------------------------------------------- */

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

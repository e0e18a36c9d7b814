/* SPDX-License-Identifier: MIT
 *
 * See rope.h. Powers are computed in double and rounded, the rest in float32, step by step as
 * PyTorch does (which divides a number by a tensor as its reciprocal times the number): angles grow
 * large, and differences in the last place with them. */
#include "config.h"

#include "model/rope.h"

#include "core/log.h"
#include "core/portable_math.h"

#include <math.h>

#define PI 3.14159265358979323846

static enum ddp_status check(const struct ddp_rope *rope)
{
    const bool long_context = rope->kind == DDP_ROPE_LLAMA3 || rope->kind == DDP_ROPE_YARN;
    if (rope->kind < DDP_ROPE_DEFAULT || rope->kind > DDP_ROPE_YARN)
        return ddp_fail(DDP_ERR_INVALID, "rope: there is no kind %lld", (long long)rope->kind);
    if (rope->size < 2 || rope->size % 2)
        return ddp_fail(DDP_ERR_INVALID, "rope: %lld features of a head cannot turn in pairs",
                        (long long)rope->size);
    if (!(rope->theta > 1) || !isfinite(rope->theta))
        return ddp_fail(DDP_ERR_INVALID, "rope: rope_theta is %g: it must be larger than 1",
                        rope->theta);
    if (rope->kind != DDP_ROPE_DEFAULT && (!(rope->factor > 0) || !isfinite(rope->factor)))
        return ddp_fail(DDP_ERR_INVALID, "rope: factor is %g: it must be positive", rope->factor);
    if (long_context && rope->original < 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "rope: original_max_position_embeddings is %lld: it must be positive",
                        (long long)rope->original);
    if (rope->kind == DDP_ROPE_LLAMA3 &&
        (!(rope->low_factor > 0) || !(rope->high_factor > rope->low_factor) ||
         !isfinite(rope->high_factor)))
        return ddp_fail(DDP_ERR_INVALID,
                        "rope: low_freq_factor %g and high_freq_factor %g: the first must be "
                        "positive, the second larger",
                        rope->low_factor, rope->high_factor);
    if (rope->kind == DDP_ROPE_YARN &&
        (!(rope->beta_slow > 0) || !(rope->beta_fast >= rope->beta_slow) ||
         !isfinite(rope->beta_fast)))
        return ddp_fail(DDP_ERR_INVALID,
                        "rope: beta_slow %g and beta_fast %g: the first must be positive, the "
                        "second not smaller",
                        rope->beta_slow, rope->beta_fast);
    return DDP_OK;
}

/* Waves longer than the original context turn `factor` times slower, short ones as before. */
static float llama3_frequency(const struct ddp_rope *rope, float plain)
{
    const double original = (double)rope->original;
    const float wave = 1 / plain * (float)(2 * PI), factor = (float)rope->factor;
    if (wave < (float)(original / rope->high_factor))
        return plain;
    if (wave > (float)(original / rope->low_factor))
        return plain / factor;
    const float share = (1 / wave * (float)original - (float)rope->low_factor) /
                        (float)(rope->high_factor - rope->low_factor);
    return (1 - share) * plain / factor + share * plain;
}

/* The pair, not rounded, that turns so many times within the original context. */
static double pair_of(const struct ddp_rope *rope, double turns)
{
    return (double)rope->size * ddp_math_log((double)rope->original / (turns * 2 * PI)) /
           (2 * ddp_math_log(rope->theta));
}

/* Where yarn's ramp from plain to slowed frequencies begins and ends, in pairs. */
static void find_ramp(const struct ddp_rope *rope, double *low, double *high)
{
    *low = pair_of(rope, rope->beta_fast);
    *high = pair_of(rope, rope->beta_slow);
    if (!rope->untruncated) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, (double)rope->size - 1);
    if (*low == *high)
        *high += 0.001;
}

static float yarn_frequency(const struct ddp_rope *rope, float power, float ramp)
{
    const float plain = 1 / power, slowed = 1 / ((float)rope->factor * power), rest = 1 - ramp;
    return slowed * (1 - rest) + plain * rest;
}

enum ddp_status ddp_rope_frequencies(const struct ddp_rope *rope, float *frequencies)
{
    const enum ddp_status status = check(rope);
    double low = 0, high = 1;
    if (status != DDP_OK)
        return status;
    if (rope->kind == DDP_ROPE_YARN)
        find_ramp(rope, &low, &high);
    for (int64_t i = 0; i < rope->size / 2; i++) {
        const float exponent = (float)(2 * i) / (float)rope->size;
        const float power = (float)ddp_math_pow((double)(float)rope->theta, (double)exponent);
        const float plain = 1 / power;
        const float ramp = ((float)i - (float)low) / (float)(high - low);
        if (rope->kind == DDP_ROPE_LLAMA3)
            frequencies[i] = llama3_frequency(rope, plain);
        else if (rope->kind == DDP_ROPE_YARN)
            frequencies[i] = yarn_frequency(rope, power, fminf(fmaxf(ramp, 0), 1));
        else
            frequencies[i] = rope->kind == DDP_ROPE_LINEAR ? plain / (float)rope->factor : plain;
    }
    return DDP_OK;
}

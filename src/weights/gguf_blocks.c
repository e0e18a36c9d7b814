/* SPDX-License-Identifier: MIT
 *
 * The values of GGUF's tensors: floats, and blocks of small integers with a scale. Products and
 * sums are rounded one by one, as in ggml's reference. */
#include "config.h"

#include "core/bf16.h"
#include "weights/gguf.h"

#include <math.h>

#define BLOCK 32  /* values in a block of Q4_0, Q5_0 or Q8_0 */
#define SUPER 256 /* of Q4_K or Q6_K */

static float half_at(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return ddp_f16_to_f32(half);
}

/* --- decoding --------------------------------------------------------------------------------- */

static void decode_q8_0(const uint8_t *raw, float *values)
{
    const float scale = half_at(raw);
    for (int i = 0; i < BLOCK; i++)
        values[i] = (float)(int8_t)raw[2 + i] * scale;
}

static void decode_q4_0(const uint8_t *raw, float *values)
{
    const float scale = half_at(raw);
    for (int i = 0; i < BLOCK / 2; i++) {
        values[i] = (float)((raw[2 + i] & 15) - 8) * scale;
        values[i + BLOCK / 2] = (float)((raw[2 + i] >> 4) - 8) * scale;
    }
}

/* As Q4_0, with the fifth bits of all values in one word. */
static void decode_q5_0(const uint8_t *raw, float *values)
{
    const float scale = half_at(raw);
    uint32_t high;
    memcpy(&high, raw + 2, sizeof high);
    for (int i = 0; i < BLOCK / 2; i++) {
        const int low = raw[6 + i];
        values[i] = (float)(((low & 15) | (int)(high >> i & 1) << 4) - 16) * scale;
        values[i + BLOCK / 2] =
            (float)((low >> 4 | (int)(high >> (i + BLOCK / 2) & 1) << 4) - 16) * scale;
    }
}

/* Eight sub-blocks of 32, each with a scale and a minimum of 6 bits. */
static void decode_q4_k(const uint8_t *raw, float *values)
{
    const float scale = half_at(raw), least = half_at(raw + 2);
    const uint8_t *s = raw + 4, *q = raw + 16;
    for (int j = 0; j < SUPER / BLOCK; j++) {
        const int high = j < 4 ? 0 : s[j - 4] >> 6 << 4, high_min = j < 4 ? 0 : s[j] >> 6 << 4;
        const int sub = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | high;
        const int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | high_min;
        const float step = scale * (float)sub, from = least * (float)min;
        for (int i = 0; i < BLOCK; i++)
            values[BLOCK * j + i] =
                step * (float)(q[BLOCK * (j / 2) + i] >> 4 * (j & 1) & 15) - from;
    }
}

/* Sixteen sub-blocks of 16, with scales of 8 bits; low and high bits of values apart. */
static void decode_q6_k(const uint8_t *raw, float *values)
{
    const uint8_t *low = raw, *high = raw + 128, *scales = raw + 192;
    const float scale = half_at(raw + 208);
    for (int e = 0; e < SUPER; e++) {
        const int half = e / 128, k = e % 128 / 32, l = e % 32;
        const int lo = low[64 * half + 32 * (k & 1) + l] >> 4 * (k >> 1) & 15;
        const int hi = high[32 * half + l] >> 2 * k & 3;
        values[e] = scale * (float)(int8_t)scales[e / 16] * (float)((lo | hi << 4) - 32);
    }
}

void ddp_gguf_decode(int type, const void *raw, int64_t count, float *values)
{
    static void (*const decoders[])(const uint8_t *raw, float *values) = {
        [DDP_GGUF_Q4_0] = decode_q4_0, [DDP_GGUF_Q5_0] = decode_q5_0, [DDP_GGUF_Q8_0] = decode_q8_0,
        [DDP_GGUF_Q4_K] = decode_q4_k, [DDP_GGUF_Q6_K] = decode_q6_k,
    };
    const struct ddp_gguf_block *block = ddp_gguf_block(type);
    const uint8_t *at = raw;
    if (block->values == 1)
        ddp_hf_values_convert(values, raw,
                              type == DDP_GGUF_F32   ? "F32"
                              : type == DDP_GGUF_F16 ? "F16"
                                                     : "BF16",
                              (size_t)count);
    else
        for (int64_t i = 0; i < count; i += block->values, at += block->bytes)
            decoders[type](at, values + i);
}

/* --- encoding --------------------------------------------------------------------------------- */

/* The value that is largest without its sign, the first of several. */
static float largest_of(const float *values)
{
    float largest = 0;
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(values[i]) > fabsf(largest))
            largest = values[i];
    return largest;
}

static float begin_block(float scale, uint8_t *raw)
{
    const uint16_t half = ddp_f16_of(scale);
    memcpy(raw, &half, sizeof half);
    return scale != 0 ? 1 / scale : 0;
}

static void encode_q8_0(const float *values, uint8_t *raw)
{
    const float inverse = begin_block(fabsf(largest_of(values)) / 127, raw);
    for (int i = 0; i < BLOCK; i++)
        raw[2 + i] = (uint8_t)(int8_t)roundf(values[i] * inverse);
}

static uint8_t nibble(float value)
{
    const int step = (int)(value + 8.5f);
    return (uint8_t)(step < 15 ? step : 15);
}

static void encode_q4_0(const float *values, uint8_t *raw)
{
    const float inverse = begin_block(largest_of(values) / -8, raw);
    for (int i = 0; i < BLOCK / 2; i++)
        raw[2 + i] =
            (uint8_t)(nibble(values[i] * inverse) | nibble(values[i + BLOCK / 2] * inverse) << 4);
}

void ddp_gguf_encode(int type, const float *values, int64_t count, void *raw)
{
    uint16_t *halves = raw;
    uint8_t *at = raw;
    if (type == DDP_GGUF_F32)
        memcpy(raw, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count && type == DDP_GGUF_F16; i++)
        halves[i] = ddp_f16_of(values[i]);
    for (int64_t i = 0; i < count && type == DDP_GGUF_BF16; i++)
        halves[i] = ddp_bf16_of(values[i]);
    for (int64_t i = 0; i < count && type == DDP_GGUF_Q8_0; i += BLOCK, at += 2 + BLOCK)
        encode_q8_0(values + i, at);
    for (int64_t i = 0; i < count && type == DDP_GGUF_Q4_0; i += BLOCK, at += 2 + BLOCK / 2)
        encode_q4_0(values + i, at);
}

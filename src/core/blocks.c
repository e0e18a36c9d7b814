/* SPDX-License-Identifier: MIT
 *
 * See blocks.h. */
#include "config.h"

#include "core/blocks.h"

#include "core/bf16.h"
#include "core/multiversion.h"

#include <math.h>
#include <string.h>

#define SMALL 32  /* values in a block of Q4_0 or Q8_0 */
#define SUPER 256 /* of Q4_K or Q6_K */

#define NF4_BYTES (sizeof(float) + DDP_NF4_VALUES / 2)

/* --- NF4 -------------------------------------------------------------------------------------- */

#define C0  -1.0f
#define C1  -0.6961928009986877f
#define C2  -0.5250730514526367f
#define C3  -0.39491748809814453f
#define C4  -0.28444138169288635f
#define C5  -0.18477343022823334f
#define C6  -0.09105003625154495f
#define C7  0.0f
#define C8  0.07958029955625534f
#define C9  0.16093020141124725f
#define C10 0.24611230194568634f
#define C11 0.33791524171829224f
#define C12 0.44070982933044434f
#define C13 0.5626170039176941f
#define C14 0.7229568362236023f
#define C15 1.0f

const float ddp_nf4_codes[16] = {C0, C1, C2,  C3,  C4,  C5,  C6,  C7,
                                 C8, C9, C10, C11, C12, C13, C14, C15};

/* Both values of a byte. */
#define PAIRS(high)                                                                                \
    {high, C0}, {high, C1}, {high, C2}, {high, C3}, {high, C4}, {high, C5}, {high, C6},            \
        {high, C7}, {high, C8}, {high, C9}, {high, C10}, {high, C11}, {high, C12}, {high, C13},    \
        {high, C14},                                                                               \
    {                                                                                              \
        high, C15                                                                                  \
    }
static const float pairs[256][2] = {
    PAIRS(C0), PAIRS(C1), PAIRS(C2),  PAIRS(C3),  PAIRS(C4),  PAIRS(C5),  PAIRS(C6),  PAIRS(C7),
    PAIRS(C8), PAIRS(C9), PAIRS(C10), PAIRS(C11), PAIRS(C12), PAIRS(C13), PAIRS(C14), PAIRS(C15)};

DDP_INLINE void nf4_values(const uint8_t *block, float *values)
{
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (int i = 0; i < DDP_NF4_VALUES / 2; i++)
        memcpy(values + 2 * i, pairs[block[sizeof scale + i]], sizeof pairs[0]);
    for (int i = 0; i < DDP_NF4_VALUES; i++)
        values[i] *= scale;
}

DDP_MULTIVERSION
static void unpack_nf4(const uint8_t *block, float *values)
{
    nf4_values(block, values);
}

DDP_MULTIVERSION
static void unpack_nf4_bf16(const uint8_t *block, float *values)
{
    nf4_values(block, values);
    for (int i = 0; i < DDP_NF4_VALUES; i++)
        values[i] = ddp_bf16_to_f32(ddp_bf16_of(values[i]));
}

/* A block has sixteen values: they are rounded once, and looked up by the bytes of codes. */
#define HALF (DDP_NF4_VALUES / 4) /* bytes of codes that are looked up at once */
#ifndef __clang__
typedef uint8_t bytes16 __attribute__((vector_size(HALF)));
typedef uint16_t halves8 __attribute__((vector_size(HALF)));

#define LOW_BYTES  ((bytes16){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23})
#define HIGH_BYTES ((bytes16){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31})
#define LOW_HALVES ((halves8){0, 8, 1, 9, 2, 10, 3, 11})
#define TOP_HALVES ((halves8){4, 12, 5, 13, 6, 14, 7, 15})

/* The values of 32 codes, of each byte the upper one first. */
DDP_INLINE void look_up(const uint8_t *low, const uint8_t *high, const uint8_t *codes, uint16_t *to)
{
    bytes16 lower, upper, both;
    memcpy(&lower, low, sizeof lower);
    memcpy(&upper, high, sizeof upper);
    memcpy(&both, codes, sizeof both);
    const bytes16 first = both >> 4, second = both & 15;
    const bytes16 first_low = __builtin_shuffle(lower, first);
    const bytes16 first_high = __builtin_shuffle(upper, first);
    const bytes16 second_low = __builtin_shuffle(lower, second);
    const bytes16 second_high = __builtin_shuffle(upper, second);
    const halves8 a = (halves8)__builtin_shuffle(first_low, first_high, LOW_BYTES);
    const halves8 b = (halves8)__builtin_shuffle(second_low, second_high, LOW_BYTES);
    const halves8 c = (halves8)__builtin_shuffle(first_low, first_high, HIGH_BYTES);
    const halves8 d = (halves8)__builtin_shuffle(second_low, second_high, HIGH_BYTES);
    const halves8 values[] = {
        __builtin_shuffle(a, b, LOW_HALVES), __builtin_shuffle(a, b, TOP_HALVES),
        __builtin_shuffle(c, d, LOW_HALVES), __builtin_shuffle(c, d, TOP_HALVES)};
    memcpy(to, values, sizeof values[0]);
    memcpy(to + 8, values + 1, sizeof values[0]);
    memcpy(to + 16, values + 2, sizeof values[0]);
    memcpy(to + 24, values + 3, sizeof values[0]);
}
#else
DDP_INLINE void look_up(const uint8_t *low, const uint8_t *high, const uint8_t *codes, uint16_t *to)
{
    for (int i = 0; i < 2 * HALF; i++) {
        const int code = codes[i / 2] >> 4 * (~i & 1) & 15;
        to[i] = (uint16_t)(low[code] | high[code] << 8);
    }
}
#endif

DDP_MULTIVERSION
static void halve_nf4(const uint8_t *blocks, int64_t count, uint16_t *halves)
{
    for (int64_t n = 0; n < count; n++) {
        const uint8_t *block = blocks + n * NF4_BYTES;
        uint8_t low[16], high[16];
        float scale;
        memcpy(&scale, block, sizeof scale);
        for (int i = 0; i < 16; i++) {
            const float value = ddp_bf16_round(ddp_nf4_codes[i] * scale);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            low[i] = (uint8_t)(bits >> 16);
            high[i] = (uint8_t)(bits >> 24);
        }
        look_up(low, high, block + sizeof scale, halves);
        look_up(low, high, block + sizeof scale + HALF, halves + 2 * HALF);
        halves += DDP_NF4_VALUES;
    }
}

/* A code is the number of midpoints below a value: on one it is the lower neighbour's. */
DDP_MULTIVERSION
static void pack_nf4(const float *values, uint8_t *block)
{
    float scale = 0;
    int codes[DDP_NF4_VALUES] = {0};
    for (int i = 0; i < DDP_NF4_VALUES; i++)
        scale = fabsf(values[i]) > scale ? fabsf(values[i]) : scale;
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (int code = 0; code < 15; code++) {
        const float middle = (ddp_nf4_codes[code] + ddp_nf4_codes[code + 1]) / 2;
        for (int i = 0; i < DDP_NF4_VALUES; i++)
            codes[i] += values[i] * inverse > middle;
    }
    memcpy(block, &scale, sizeof scale);
    for (int i = 0; i < DDP_NF4_VALUES / 2; i++)
        block[sizeof scale + (size_t)i] = (uint8_t)(codes[2 * i] << 4 | codes[2 * i + 1]);
}

/* --- ggml ------------------------------------------------------------------------------------- */

static float half_at(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return ddp_f16_to_f32(half);
}

DDP_MULTIVERSION
static void unpack_q8_0(const uint8_t *block, float *values)
{
    const float scale = half_at(block);
    for (int i = 0; i < SMALL; i++)
        values[i] = (float)(int8_t)block[2 + i] * scale;
}

DDP_MULTIVERSION
static void unpack_q4_0(const uint8_t *block, float *values)
{
    const float scale = half_at(block);
    for (int i = 0; i < SMALL / 2; i++) {
        values[i] = (float)((block[2 + i] & 15) - 8) * scale;
        values[i + SMALL / 2] = (float)((block[2 + i] >> 4) - 8) * scale;
    }
}

/* Eight sub-blocks of 32, each with a scale and a minimum of 6 bits. */
DDP_MULTIVERSION
static void unpack_q4_k(const uint8_t *block, float *values)
{
    const float scale = half_at(block), least = half_at(block + 2);
    const uint8_t *s = block + 4, *q = block + 16;
    for (int j = 0; j < SUPER / SMALL; j++) {
        const int high = j < 4 ? 0 : s[j - 4] >> 6 << 4, high_min = j < 4 ? 0 : s[j] >> 6 << 4;
        const int sub = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | high;
        const int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | high_min;
        const float step = scale * (float)sub, from = least * (float)min;
        for (int i = 0; i < SMALL; i++)
            values[SMALL * j + i] =
                step * (float)(q[SMALL * (j / 2) + i] >> 4 * (j & 1) & 15) - from;
    }
}

/* Sixteen sub-blocks of 16, with scales of 8 bits; low and high bits of values apart. */
DDP_MULTIVERSION
static void unpack_q6_k(const uint8_t *block, float *values)
{
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    const float scale = half_at(block + 208);
    for (int e = 0; e < SUPER; e++) {
        const int half = e / 128, k = e % 128 / 32, l = e % 32;
        const int lo = low[64 * half + 32 * (k & 1) + l] >> 4 * (k >> 1) & 15;
        const int hi = high[32 * half + l] >> 2 * k & 3;
        values[e] = scale * (float)(int8_t)scales[e / 16] * (float)((lo | hi << 4) - 32);
    }
}

/* The value that is largest without its sign, the first of several. */
static float largest_of(const float *values)
{
    float largest = 0;
    for (int i = 0; i < SMALL; i++)
        if (fabsf(values[i]) > fabsf(largest))
            largest = values[i];
    return largest;
}

static float begin_block(float scale, uint8_t *block)
{
    const uint16_t half = ddp_f16_of(scale);
    memcpy(block, &half, sizeof half);
    return fabsf(scale) > 0x1p-128f ? 1 / scale : 0;
}

static void pack_q8_0(const float *values, uint8_t *block)
{
    const float inverse = begin_block(fabsf(largest_of(values)) / 127, block);
    for (int i = 0; i < SMALL; i++)
        block[2 + i] = (uint8_t)(int8_t)roundf(values[i] * inverse);
}

static uint8_t nibble(float value)
{
    const int step = (int)(value + 8.5f);
    return (uint8_t)(step < 15 ? step : 15);
}

static void pack_q4_0(const float *values, uint8_t *block)
{
    const float inverse = begin_block(largest_of(values) / -8, block);
    for (int i = 0; i < SMALL / 2; i++)
        block[2 + i] =
            (uint8_t)(nibble(values[i] * inverse) | nibble(values[i + SMALL / 2] * inverse) << 4);
}

/* --- all of them ------------------------------------------------------------------------------ */

const struct ddp_block *ddp_block_of(enum ddp_dtype dtype)
{
    static const struct ddp_block blocks[] = {
        [DDP_NF4] = {"nf4", DDP_NF4_VALUES, NF4_BYTES, true, unpack_nf4, pack_nf4, halve_nf4},
        [DDP_NF4_BF16] = {"nf4", DDP_NF4_VALUES, NF4_BYTES, true, unpack_nf4_bf16, pack_nf4,
                          halve_nf4},
        [DDP_Q8_0] = {"q8_0", SMALL, 34, false, unpack_q8_0, pack_q8_0, NULL},
        [DDP_Q4_0] = {"q4_0", SMALL, 18, false, unpack_q4_0, pack_q4_0, NULL},
        [DDP_Q4_K] = {"q4_k", SUPER, 144, false, unpack_q4_k, NULL, NULL},
        [DDP_Q6_K] = {"q6_k", SUPER, 210, false, unpack_q6_k, NULL, NULL},
    };
    const size_t at = (size_t)dtype;
    return at < sizeof blocks / sizeof blocks[0] && blocks[at].name ? &blocks[at] : NULL;
}

size_t ddp_values_bytes(enum ddp_dtype dtype, int64_t count)
{
    const struct ddp_block *block = ddp_block_of(dtype);
    return block ? (size_t)((count + block->values - 1) / block->values * block->bytes)
                 : (size_t)count * ddp_dtype_bytes(dtype);
}

void ddp_blocks_unpack(const struct ddp_block *block, const void *from, int64_t first,
                       int64_t count, float *to)
{
    const uint8_t *at = (const uint8_t *)from + first / block->values * block->bytes;
    float values[DDP_BLOCK_MOST];
    for (int64_t skip = first % block->values, some; count > 0; count -= some, skip = 0) {
        some = block->values - skip < count ? block->values - skip : count;
        if (some == block->values) {
            block->unpack(at, to);
        } else {
            block->unpack(at, values);
            memcpy(to, values + skip, (size_t)some * sizeof *to);
        }
        to += some;
        at += block->bytes;
    }
}

DDP_MULTIVERSION
static void round_values(const float *values, int64_t count, uint16_t *halves)
{
    for (int64_t i = 0; i < count; i++) {
        const float value = ddp_bf16_round(values[i]);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
}

void ddp_blocks_round(const struct ddp_block *block, const void *from, int64_t first, int64_t count,
                      uint16_t *to)
{
    const uint8_t *at = (const uint8_t *)from + first / block->values * block->bytes;
    float values[DDP_BLOCK_MOST];
    for (int64_t skip = first % block->values, some; count > 0; count -= some, skip = 0) {
        const int64_t whole = block->halve && skip == 0 ? count / block->values : 0;
        if (whole > 0) {
            block->halve(at, whole, to);
            some = whole * block->values;
        } else {
            some = block->values - skip < count ? block->values - skip : count;
            block->unpack(at, values);
            round_values(values + skip, some, to);
        }
        to += some;
        at += (skip + some) / block->values * block->bytes;
    }
}

void ddp_values_unpack(enum ddp_dtype dtype, const void *from, int64_t first, int64_t count,
                       float *to)
{
    const struct ddp_block *block = ddp_block_of(dtype);
    const uint16_t *halves = (const uint16_t *)from + first;
    if (block)
        ddp_blocks_unpack(block, from, first, count, to);
    else if (dtype == DDP_F32)
        memcpy(to, (const float *)from + first, (size_t)count * sizeof *to);
    for (int64_t i = 0; dtype == DDP_BF16 && i < count; i++)
        to[i] = ddp_bf16_to_f32(halves[i]);
}

static void pack_block(const struct ddp_block *block, const float *values, uint8_t *to)
{
    for (int64_t i = 0; i < block->values; i++)
        if (!block->pack || !isfinite(values[i])) {
            memset(to, 0xff, (size_t)block->bytes); /* its scale is NaN */
            return;
        }
    block->pack(values, to);
}

static void pack_blocks(const struct ddp_block *block, const float *values, int64_t count,
                        uint8_t *to)
{
    float last[DDP_BLOCK_MOST] = {0};
    for (; count >= block->values; count -= block->values) {
        pack_block(block, values, to);
        values += block->values;
        to += block->bytes;
    }
    if (count == 0)
        return;
    memcpy(last, values, (size_t)count * sizeof *last);
    pack_block(block, last, to);
}

void ddp_values_pack(enum ddp_dtype dtype, const float *values, int64_t count, void *to)
{
    const struct ddp_block *block = ddp_block_of(dtype);
    if (block)
        pack_blocks(block, values, count, to);
    else if (dtype == DDP_F32)
        memcpy(to, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; dtype == DDP_BF16 && i < count; i++)
        ((uint16_t *)to)[i] = ddp_bf16_of(values[i]);
}

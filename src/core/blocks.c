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

#define NF4_BYTES  (sizeof(float) + DDP_NF4_VALUES / 2)
#define Q4_K_BYTES 144
#define Q6_K_BYTES 210

/* --- NF4 -------------------------------------------------------------------------------------- */

const float ddp_nf4_codes[16] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};

/* The values of eight codes, of each byte the upper one first. */
#ifndef __clang__
typedef float floats8 __attribute__((vector_size(32)));
typedef uint32_t words8 __attribute__((vector_size(32)));

DDP_INLINE void pick(const float *table, const uint8_t *codes, float *to)
{
    floats8 low, high;
    uint32_t word;
    memcpy(&low, table, sizeof low);
    memcpy(&high, table + 8, sizeof high);
    memcpy(&word, codes, sizeof word);
    const words8 at = (((words8){0} + word) >> (words8){4, 0, 12, 8, 20, 16, 28, 24}) & 15;
    const floats8 values = __builtin_shuffle(low, high, at);
    memcpy(to, &values, sizeof values);
}
#else
DDP_INLINE void pick(const float *table, const uint8_t *codes, float *to)
{
    for (int i = 0; i < 8; i++)
        to[i] = table[codes[i / 2] >> 4 * (~i & 1) & 15];
}
#endif

/* A block has sixteen values, which are made once. */
DDP_INLINE void nf4_table(const uint8_t *block, bool bf16, float table[16])
{
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (int i = 0; i < 16; i++)
        table[i] = bf16 ? ddp_bf16_round(ddp_nf4_codes[i] * scale) : ddp_nf4_codes[i] * scale;
}

DDP_INLINE void nf4_values(const uint8_t *blocks, int64_t count, bool bf16, float *values)
{
    for (; count > 0; count--, blocks += NF4_BYTES, values += DDP_NF4_VALUES) {
        float table[16];
        nf4_table(blocks, bf16, table);
        for (int i = 0; i < DDP_NF4_VALUES; i += 8)
            pick(table, blocks + sizeof(float) + i / 2, values + i);
    }
}

DDP_MULTIVERSION
static void unpack_nf4(const uint8_t *blocks, int64_t count, float *values)
{
    nf4_values(blocks, count, false, values);
}

DDP_MULTIVERSION
static void unpack_nf4_bf16(const uint8_t *blocks, int64_t count, float *values)
{
    nf4_values(blocks, count, true, values);
}

/* Rounded ones are looked up by the bytes of codes. */
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
        float table[16];
        nf4_table(block, true, table);
        for (int i = 0; i < 16; i++) {
            uint32_t bits;
            memcpy(&bits, table + i, sizeof bits);
            low[i] = (uint8_t)(bits >> 16);
            high[i] = (uint8_t)(bits >> 24);
        }
        look_up(low, high, block + sizeof(float), halves);
        look_up(low, high, block + sizeof(float) + HALF, halves + 2 * HALF);
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
static void unpack_q8_0(const uint8_t *restrict block, int64_t count, float *restrict values)
{
    for (; count > 0; count--, block += 2 + SMALL, values += SMALL) {
        const float scale = half_at(block);
        for (int i = 0; i < SMALL; i++)
            values[i] = (float)(int8_t)block[2 + i] * scale;
    }
}

DDP_MULTIVERSION
static void unpack_q4_0(const uint8_t *restrict block, int64_t count, float *restrict values)
{
    for (; count > 0; count--, block += 2 + SMALL / 2, values += SMALL) {
        const float scale = half_at(block);
        for (int i = 0; i < SMALL / 2; i++)
            values[i] = (float)((block[2 + i] & 15) - 8) * scale;
        for (int i = 0; i < SMALL / 2; i++)
            values[i + SMALL / 2] = (float)((block[2 + i] >> 4) - 8) * scale;
    }
}

/* Eight sub-blocks of 32, each with a scale and a minimum of 6 bits. */
DDP_INLINE void q4_k_values(const uint8_t *restrict block, float *restrict values)
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

DDP_MULTIVERSION
static void unpack_q4_k(const uint8_t *restrict block, int64_t count, float *restrict values)
{
    for (; count > 0; count--, block += Q4_K_BYTES, values += SUPER)
        q4_k_values(block, values);
}

/* Sixteen sub-blocks of 16, with scales of 8 bits; low and high bits of values apart. */
DDP_INLINE void q6_k_values(const uint8_t *restrict block, float *restrict values)
{
    const float scale = half_at(block + 208);
    for (int sub = 0; sub < SUPER / 16; sub++, values += 16) {
        const int half = sub / 8, k = sub % 8 / 2, l = sub % 2 * 16;
        const uint8_t *low = block + 64 * half + 32 * (k & 1) + l,
                      *high = block + 128 + 32 * half + l;
        const float step = scale * (float)(int8_t)block[192 + sub];
        for (int i = 0; i < 16; i++)
            values[i] =
                step * (float)(((low[i] >> 4 * (k >> 1) & 15) | (high[i] >> 2 * k & 3) << 4) - 32);
    }
}

DDP_MULTIVERSION
static void unpack_q6_k(const uint8_t *restrict block, int64_t count, float *restrict values)
{
    for (; count > 0; count--, block += Q6_K_BYTES, values += SUPER)
        q6_k_values(block, values);
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
        [DDP_Q4_K] = {"q4_k", SUPER, Q4_K_BYTES, false, unpack_q4_k, NULL, NULL},
        [DDP_Q6_K] = {"q6_k", SUPER, Q6_K_BYTES, false, unpack_q6_k, NULL, NULL},
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
    float values[DDP_BLOCK_MOST];
    for (int64_t some; count > 0; first += some, count -= some, to += some) {
        const uint8_t *at = (const uint8_t *)from + first / block->values * block->bytes;
        const int64_t skip = first % block->values, left = block->values - skip;
        if (skip || count < left) {
            some = left < count ? left : count;
            block->unpack(at, 1, values);
            memcpy(to, values + skip, (size_t)some * sizeof *to);
        } else {
            some = count - count % block->values;
            block->unpack(at, some / block->values, to);
        }
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
    float values[DDP_BLOCK_MOST];
    for (int64_t some; count > 0; first += some, count -= some, to += some) {
        const uint8_t *at = (const uint8_t *)from + first / block->values * block->bytes;
        const int64_t left = DDP_BLOCK_MOST - first % DDP_BLOCK_MOST;
        some = left < count ? left : count;
        if (block->halve && first % block->values == 0 && count >= block->values) {
            some = count - count % block->values;
            block->halve(at, some / block->values, to);
        } else {
            ddp_blocks_unpack(block, from, first, some, values);
            round_values(values, some, to);
        }
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

/* SPDX-License-Identifier: MIT
 *
 * bf16, the upper half of a float32: conversions of one element; and float16, of files and of the
 * operands of products. */
#ifndef DDP_CORE_BF16_H
#define DDP_CORE_BF16_H

#include <stdint.h>
#include <string.h>

/* Round to nearest, ties to even; NaN stays NaN (made quiet), with its sign. */
static inline uint16_t ddp_bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float ddp_bf16_to_f32(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* The nearest value that bf16 has; without a branch, so that loops are fast. */
static inline float ddp_bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t nan = bits | 0x400000u, number = bits + 0x7fffu + (bits >> 16 & 1u);
    bits = ((bits & 0x7fffffffu) > 0x7f800000u ? nan : number) & 0xffff0000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* A float16, exactly: its bits in the places of a float's give the value divided by 2^112, for
 * subnormal numbers too. Without a branch, so that loops are fast. */
static inline float ddp_f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t bits = (uint32_t)(half & 0x7fffu) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits |= (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0; /* infinite or not a number */
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The nearest float16, ties to even; infinite from 65520 on. */
static inline uint16_t ddp_f16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size >= 0x47800000u) /* 2^16 */
        return (uint16_t)(sign | (size > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (size >= 0x38800000u) /* 2^-14 */
        return (uint16_t)(sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13);
    memcpy(&value, &size, sizeof value);
    value += 0.5f; /* whose last place is the smallest float16 */
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000u));
}

/* The same as a float. Without a branch, so that loops are fast. */
static inline float ddp_f16_round(float value)
{
    uint32_t bits, tiny;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
    const uint32_t kept = (size + 0xfffu + (size >> 13 & 1u)) & ~0x1fffu;
    const uint32_t large = size > 0x7f800000u ? size | 0x400000u : 0x7f800000u;
    memcpy(&value, &size, sizeof value);
    value = value + 0.5f - 0.5f;
    memcpy(&tiny, &value, sizeof tiny);
    bits = sign | (size < 0x38800000u ? tiny : kept >= 0x47800000u ? large : kept);
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

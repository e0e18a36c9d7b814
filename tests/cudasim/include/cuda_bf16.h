/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed: bf16 as a type, rounded
 * to nearest even, a NaN to 0x7fff. */
#ifndef CUDASIM_CUDA_BF16_H
#define CUDASIM_CUDA_BF16_H

#ifdef __cplusplus

#include <stdint.h>
#include <string.h>

static inline unsigned short cudasim_round_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    unsigned short __x;

    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : __x(cudasim_round_bf16(value))
    {
    }
    __nv_bfloat16(const __nv_bfloat16_raw &raw) : __x(raw.x)
    {
    }
    operator float() const
    {
        uint32_t bits = (uint32_t)__x << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __nv_bfloat16(value);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __nv_bfloat16(value);
}

static inline float __bfloat162float(__nv_bfloat16 value)
{
    return value;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    __nv_bfloat162 both = {__nv_bfloat16(x), __nv_bfloat16(y)};
    return both;
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.__x;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 value;
    value.__x = bits;
    return value;
}

#endif
#endif

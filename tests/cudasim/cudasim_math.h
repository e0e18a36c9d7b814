/* SPDX-License-Identifier: MIT
 *
 * The part of cudasim.h that needs no scheduler: loads with a cache hint, intrinsics, and the
 * functions of arithmetic that CUDA declares and C++ does not. Accurate where a GPU approximates.
 */
#ifndef DDP_TESTS_CUDASIM_CUDASIM_MATH_H
#define DDP_TESTS_CUDASIM_CUDASIM_MATH_H

#ifdef __cplusplus

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

template <typename T> static inline T __ldg(const T *address)
{
    return *address;
}

template <typename T> static inline T __ldcs(const T *address)
{
    return *address;
}

template <typename T> static inline T __ldcg(const T *address)
{
    return *address;
}

template <typename T> static inline void __stcs(T *address, T value)
{
    *address = value;
}

template <typename T> static inline void __stcg(T *address, T value)
{
    *address = value;
}

using std::max;
using std::min;

#define CUDASIM_SAME_BITS(name, result, argument)                                                  \
    static inline result name(argument value)                                                      \
    {                                                                                              \
        static_assert(sizeof(result) == sizeof(argument), "same bits");                            \
        result bits;                                                                               \
        memcpy(&bits, &value, sizeof bits);                                                        \
        return bits;                                                                               \
    }
CUDASIM_SAME_BITS(__float_as_int, int, float)
CUDASIM_SAME_BITS(__float_as_uint, unsigned, float)
CUDASIM_SAME_BITS(__int_as_float, float, int)
CUDASIM_SAME_BITS(__uint_as_float, float, unsigned)
CUDASIM_SAME_BITS(__double_as_longlong, long long, double)
CUDASIM_SAME_BITS(__longlong_as_double, double, long long)
#undef CUDASIM_SAME_BITS

/* The C library declares these names for itself. */
#define __expf(x)    expf(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __powf(x, y) powf(x, y)

#define CUDASIM_ONE(name, expression)                                                              \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return expression;                                                                         \
    }
CUDASIM_ONE(rsqrtf, 1.0f / sqrtf(x))
CUDASIM_ONE(__frcp_rn, 1.0f / x)
CUDASIM_ONE(__fsqrt_rn, sqrtf(x))
CUDASIM_ONE(__frsqrt_rn, 1.0f / sqrtf(x))
CUDASIM_ONE(__saturatef, x > 0 ? (x < 1 ? x : 1.0f) : 0.0f)
#undef CUDASIM_ONE

static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

#define CUDASIM_TWO(name, type, expression)                                                        \
    static inline type name(type x, type y)                                                        \
    {                                                                                              \
        return expression;                                                                         \
    }
CUDASIM_TWO(__fadd_rn, float, x + y)
CUDASIM_TWO(__fsub_rn, float, x - y)
CUDASIM_TWO(__fmul_rn, float, x *y)
CUDASIM_TWO(__fdiv_rn, float, x / y)
CUDASIM_TWO(__fdividef, float, x / y)
CUDASIM_TWO(__dadd_rn, double, x + y)
CUDASIM_TWO(__dmul_rn, double, x *y)
CUDASIM_TWO(__ddiv_rn, double, x / y)
CUDASIM_TWO(__umulhi, unsigned, (unsigned)(((uint64_t)x * y) >> 32))
CUDASIM_TWO(__mulhi, int, (int)(((int64_t)x * y) >> 32))
#undef CUDASIM_TWO

static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}

static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline int __popcll(unsigned long long bits)
{
    return __builtin_popcountll(bits);
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline int __clz(int bits)
{
    return bits ? __builtin_clz((unsigned)bits) : 32;
}

static inline int __clzll(long long bits)
{
    return bits ? __builtin_clzll((unsigned long long)bits) : 64;
}

static inline unsigned __brev(unsigned bits)
{
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++)
        reversed |= (bits >> i & 1u) << (31 - i);
    return reversed;
}

static inline float __int2float_rn(int x)
{
    return (float)x;
}

static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

static inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}

static inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}

/* Kernels of this project use none; the tests of the simulation do. */
template <typename T> static inline T atomicAdd(T *address, T value)
{
    typedef typename std::conditional<sizeof(T) == 4, uint32_t, uint64_t>::type word;
    word *memory = reinterpret_cast<word *>(address),
         seen = __atomic_load_n(memory, __ATOMIC_RELAXED);
    T before, after;
    word replacement;
    do {
        memcpy(&before, &seen, sizeof before);
        after = before + value;
        memcpy(&replacement, &after, sizeof after);
    } while (!__atomic_compare_exchange_n(memory, &seen, replacement, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return before;
}

#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * See micro.h. The loops stand in micro.inc; here are the vectors of each set. They are intrinsics,
 * because fused multiply-add must be asked for by name: the build forbids the compiler to contract
 * a * b + c. */
#include "config.h"

#include "kernels/conv2d/micro.h"

#include "core/fma.h"
#include "kernels/cpu/cpu.h"

#define NOINLINE __attribute__((noinline))

#ifdef __x86_64__
#include <immintrin.h>

#define NAME(x)               avx512_##x
#define TARGET                DDP_TARGET_AVX512
#define VECTOR                __m512
#define ZERO()                _mm512_setzero_ps()
#define SPREAD(value)         _mm512_set1_ps(value)
#define LOAD(from)            _mm512_loadu_ps(from)
#define STORE(to, vector)     _mm512_storeu_ps(to, vector)
#define ADD(a, b)             _mm512_add_ps(a, b)
#define RELU(a)               _mm512_max_ps(_mm512_setzero_ps(), a) /* NaN stays */
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define PIXELS                8
#define VECTORS               2
#define VALUES                12
#define STRIP_SIZES(f, v)     f(1, v) f(2, v) f(3, v) f(4, v) f(5, v) f(6, v) f(7, v) f(8, v)
#define OUTER_SIZES(f, v)     f(1, v) f(2, v) f(4, v) f(8, v) f(9, v) f(12, v)
#include "kernels/conv2d/micro.inc"

struct halves {
    __m256 low, high;
};
#define AVX2_INLINE DDP_TARGET_AVX2 DDP_INLINE

AVX2_INLINE struct halves halves_spread(float value)
{
    return (struct halves){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}

AVX2_INLINE struct halves halves_load(const float *from)
{
    return (struct halves){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

AVX2_INLINE void halves_store(float *to, struct halves vector)
{
    _mm256_storeu_ps(to, vector.low);
    _mm256_storeu_ps(to + 8, vector.high);
}

AVX2_INLINE struct halves halves_add(struct halves a, struct halves b)
{
    return (struct halves){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

AVX2_INLINE struct halves halves_relu(struct halves a)
{
    const __m256 zero = _mm256_setzero_ps();
    return (struct halves){_mm256_max_ps(zero, a.low), _mm256_max_ps(zero, a.high)};
}

AVX2_INLINE struct halves halves_multiply_add(struct halves a, struct halves b, struct halves c)
{
    return (struct halves){_mm256_fmadd_ps(a.low, b.low, c.low),
                           _mm256_fmadd_ps(a.high, b.high, c.high)};
}

#define NAME(x)               avx2_##x
#define TARGET                DDP_TARGET_AVX2
#define VECTOR                struct halves
#define ZERO()                halves_spread(0)
#define SPREAD(value)         halves_spread(value)
#define LOAD(from)            halves_load(from)
#define STORE(to, vector)     halves_store(to, vector)
#define ADD(a, b)             halves_add(a, b)
#define RELU(a)               halves_relu(a)
#define MULTIPLY_ADD(a, b, c) halves_multiply_add(a, b, c)
#define PIXELS                6
#define VECTORS               1
#define VALUES                6
#define STRIP_SIZES(f, v)     f(1, v) f(2, v) f(3, v) f(4, v) f(5, v) f(6, v)
#define OUTER_SIZES(f, v)     f(1, v) f(2, v) f(4, v) f(6, v)
#include "kernels/conv2d/micro.inc"
#endif

/* Four vectors that every 64-bit machine has. AArch64's fuse; elsewhere it is done lane by lane. */
#ifdef __aarch64__
#include <arm_neon.h>
typedef float32x4_t quarter;
#define FUSED(a, b, c) vfmaq_f32(c, a, b)
#else
typedef float quarter __attribute__((vector_size(16)));
#define FUSED(a, b, c)                                                                             \
    ((quarter){ddp_fma_f32((a)[0], (b)[0], (c)[0]), ddp_fma_f32((a)[1], (b)[1], (c)[1]),           \
               ddp_fma_f32((a)[2], (b)[2], (c)[2]), ddp_fma_f32((a)[3], (b)[3], (c)[3])})
#endif
struct quarters {
    quarter q[4];
};

DDP_INLINE struct quarters quarters_spread(float value)
{
    const quarter all = {value, value, value, value};
    return (struct quarters){{all, all, all, all}};
}

DDP_INLINE struct quarters quarters_load(const float *from)
{
    struct quarters vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

DDP_INLINE void quarters_store(float *to, struct quarters vector)
{
    memcpy(to, &vector, sizeof vector);
}

DDP_INLINE struct quarters quarters_add(struct quarters a, struct quarters b)
{
    return (struct quarters){{a.q[0] + b.q[0], a.q[1] + b.q[1], a.q[2] + b.q[2], a.q[3] + b.q[3]}};
}

DDP_INLINE struct quarters quarters_relu(struct quarters a)
{
    float lanes[DDP_CONV_LANES];
    memcpy(lanes, &a, sizeof lanes);
    for (int l = 0; l < DDP_CONV_LANES; l++)
        lanes[l] = lanes[l] < 0 ? 0 : lanes[l];
    memcpy(&a, lanes, sizeof lanes);
    return a;
}

DDP_INLINE struct quarters quarters_multiply_add(struct quarters a, struct quarters b,
                                                 struct quarters c)
{
    return (struct quarters){{FUSED(a.q[0], b.q[0], c.q[0]), FUSED(a.q[1], b.q[1], c.q[1]),
                              FUSED(a.q[2], b.q[2], c.q[2]), FUSED(a.q[3], b.q[3], c.q[3])}};
}

#define NAME(x) plain_##x
#define TARGET
#define VECTOR                struct quarters
#define ZERO()                quarters_spread(0)
#define SPREAD(value)         quarters_spread(value)
#define LOAD(from)            quarters_load(from)
#define STORE(to, vector)     quarters_store(to, vector)
#define ADD(a, b)             quarters_add(a, b)
#define RELU(a)               quarters_relu(a)
#define MULTIPLY_ADD(a, b, c) quarters_multiply_add(a, b, c)
#ifdef __aarch64__ /* it has 32 registers */
#define PIXELS            6
#define VALUES            6
#define STRIP_SIZES(f, v) f(1, v) f(2, v) f(3, v) f(4, v) f(5, v) f(6, v)
#define OUTER_SIZES(f, v) f(1, v) f(2, v) f(4, v) f(6, v)
#else
#define PIXELS            2
#define VALUES            2
#define STRIP_SIZES(f, v) f(1, v) f(2, v)
#define OUTER_SIZES(f, v) f(1, v) f(2, v)
#endif
#define VECTORS 1
#include "kernels/conv2d/micro.inc"

const struct ddp_conv_micro *ddp_conv_micro(enum ddp_isa isa)
{
#ifdef __x86_64__
    if (isa >= DDP_ISA_AVX512)
        return &avx512_micro;
    if (isa >= DDP_ISA_AVX2)
        return &avx2_micro;
#endif
    (void)isa;
    return &plain_micro;
}

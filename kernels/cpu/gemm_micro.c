/* SPDX-License-Identifier: MIT
 *
 * See gemm_micro.h. The code stands in gemm_block.inc and gemm_pack.inc; here are the vectors of
 * each set. Fused multiply-add is asked for by name: the build forbids to contract a * b + c. */
#include "config.h"

#include "kernels/cpu/gemm_micro.h"

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"

#define SIX(f, v)      f(1, v) f(2, v) f(3, v) f(4, v) f(5, v) f(6, v)
#define EIGHT(f, v)    SIX(f, v) f(7, v) f(8, v)
#define FOURTEEN(f, v) EIGHT(f, v) f(9, v) f(10, v) f(11, v) f(12, v) f(13, v) f(14, v)

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET DDP_TARGET_AVX512
DDP_TARGET_AVX512 DDP_INLINE __m512 join16(const void *p0, const void *p1, const void *p2,
                                           const void *p3)
{
    const __m512 low =
        _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p0)), _mm_loadu_ps(p1), 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(low, _mm_loadu_ps(p2), 2), _mm_loadu_ps(p3), 3);
}

DDP_TARGET_AVX2 DDP_INLINE __m128i join_halves(const void *p0, const void *p1)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64(p0), _mm_loadl_epi64(p1));
}

DDP_TARGET_AVX512 DDP_INLINE __m512 wide_join16(const void *p0, const void *p1, const void *p2,
                                                const void *p3)
{
    const __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(join_halves(p0, p1)),
                                                   join_halves(p2, p3), 1);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

#define VECTOR                      __m512
#define LANES                       16
#define ROWS                        14
#define VECTORS                     2
#define WIDE                        8
#define FEW                         4
#define SPLAT(value)                _mm512_set1_ps(value)
#define LOW(a, b)                   _mm512_unpacklo_ps(a, b)
#define HIGH(a, b)                  _mm512_unpackhi_ps(a, b)
#define DOUBLES(a)                  _mm512_castps_pd(a)
#define LOW2(a, b)                  _mm512_castpd_ps(_mm512_unpacklo_pd(DOUBLES(a), DOUBLES(b)))
#define HIGH2(a, b)                 _mm512_castpd_ps(_mm512_unpackhi_pd(DOUBLES(a), DOUBLES(b)))
#define JOIN(at)                    join16(at(0), at(1), at(2), at(3))
#define WIDE_JOIN(at)               wide_join16(at(0), at(1), at(2), at(3))
#define WIDTHS(f)                   FOURTEEN(f, 1) FOURTEEN(f, 2) EIGHT(f, 3)
#define LOAD_SOME(from, mask)       _mm512_maskz_loadu_ps((__mmask16)(mask), from)
#define STORE_SOME(to, mask, value) _mm512_mask_storeu_ps(to, (__mmask16)(mask), value)
#define NAME(x)                     avx512_##x
#define MULTIPLY_ADD(a, b, c)       _mm512_fmadd_ps(a, b, c)
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_pack.inc"
#undef TARGET
#undef NAME
#undef MULTIPLY_ADD

#define TARGET  DDP_TARGET_AVX512_BF16
#define NAME(x) pairs_##x
#define MULTIPLY_ADD(a, b, c)                                                                      \
    _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b))
#include "kernels/cpu/gemm_block.inc"
#undef TARGET
#undef NAME
#undef MULTIPLY_ADD
static const struct ddp_gemm_set pairs_set = {.lanes = LANES,
                                              .rows = ROWS,
                                              .vectors = VECTORS,
                                              .masks = true,
                                              .wide = WIDE,
                                              .kernels = pairs_kernels,
                                              .pack = avx512_pack};
#undef VECTOR
#undef LANES
#undef ROWS
#undef VECTORS
#undef WIDE
#undef FEW
#undef SPLAT
#undef LOAD_SOME
#undef STORE_SOME
#undef LOW
#undef HIGH
#undef DOUBLES
#undef LOW2
#undef HIGH2
#undef JOIN
#undef WIDE_JOIN
#undef WIDTHS

DDP_TARGET_AVX2 DDP_INLINE __m256 join8(const void *p0, const void *p1)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p0)), _mm_loadu_ps(p1), 1);
}

DDP_TARGET_AVX2 DDP_INLINE __m256 wide_join8(const void *p0, const void *p1)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(join_halves(p0, p1)), 16));
}

#define TARGET                DDP_TARGET_AVX2
#define VECTOR                __m256
#define LANES                 8
#define ROWS                  6
#define VECTORS               2
#define FEW                   16
#define SPLAT(value)          _mm256_set1_ps(value)
#define LOW(a, b)             _mm256_unpacklo_ps(a, b)
#define HIGH(a, b)            _mm256_unpackhi_ps(a, b)
#define DOUBLES(a)            _mm256_castps_pd(a)
#define LOW2(a, b)            _mm256_castpd_ps(_mm256_unpacklo_pd(DOUBLES(a), DOUBLES(b)))
#define HIGH2(a, b)           _mm256_castpd_ps(_mm256_unpackhi_pd(DOUBLES(a), DOUBLES(b)))
#define JOIN(at)              join8(at(0), at(1))
#define WIDE_JOIN(at)         wide_join8(at(0), at(1))
#define WIDTHS(f)             SIX(f, 1) SIX(f, 2)
#define NAME(x)               avx2_##x
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_pack.inc"

const struct ddp_gemm_set *ddp_gemm_set(enum ddp_isa isa)
{
    return isa >= DDP_ISA_AVX512 ? &avx512_set : isa == DDP_ISA_AVX2 ? &avx2_set : NULL;
}

const struct ddp_gemm_set *ddp_gemm_pairs_set(enum ddp_isa isa)
{
    return isa == DDP_ISA_AVX512_BF16 ? &pairs_set : NULL;
}

#elif defined(__aarch64__)
#include <arm_neon.h>

DDP_INLINE float32x4_t wide_join4(const void *p0)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p0), 16));
}

#define TARGET
#define VECTOR                float32x4_t
#define LANES                 4
#define ROWS                  8
#define VECTORS               3
#define FEW                   4
#define SPLAT(value)          vdupq_n_f32(value)
#define LOW(a, b)             vzip1q_f32(a, b)
#define HIGH(a, b)            vzip2q_f32(a, b)
#define DOUBLES(a)            vreinterpretq_f64_f32(a)
#define LOW2(a, b)            vreinterpretq_f32_f64(vzip1q_f64(DOUBLES(a), DOUBLES(b)))
#define HIGH2(a, b)           vreinterpretq_f32_f64(vzip2q_f64(DOUBLES(a), DOUBLES(b)))
#define JOIN(at)              vld1q_f32((const void *)(at(0)))
#define WIDE_JOIN(at)         wide_join4(at(0))
#define WIDTHS(f)             EIGHT(f, 1) EIGHT(f, 2) EIGHT(f, 3)
#define NAME(x)               neon_##x
#define MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_pack.inc"

const struct ddp_gemm_set *ddp_gemm_set(enum ddp_isa isa)
{
    return isa == DDP_ISA_NEON ? &neon_set : NULL;
}

const struct ddp_gemm_set *ddp_gemm_pairs_set(enum ddp_isa isa)
{
    (void)isa;
    return NULL;
}
#else
const struct ddp_gemm_set *ddp_gemm_set(enum ddp_isa isa)
{
    (void)isa;
    return NULL;
}

const struct ddp_gemm_set *ddp_gemm_pairs_set(enum ddp_isa isa)
{
    (void)isa;
    return NULL;
}
#endif

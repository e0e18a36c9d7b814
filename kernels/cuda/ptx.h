/* SPDX-License-Identifier: MIT
 *
 * Products of matrices of bf16 or float16 by the tensor cores, a warp at a time, and what feeds
 * them from shared memory. bf16 needs compute capability 8.0, float16 7.5; kernels for older ones
 * are empty where they call these, and are not launched. The simulation has them with the same
 * distribution over lanes, so that a kernel's indices are tested without a GPU: lanes see each
 * other's registers, and an asynchronous copy happens when it is waited for. Exponentials and
 * reciprocals, to about 2^-22. Float16.
 *
 * Lane l holds, with g = l / 4 and t = l % 4, two neighbouring elements in a word:
 *   a  16 x 16  words: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8)
 *   b  16 x 8   words: (2t and 2t + 1, g) (2t + 8 and 2t + 9, g)
 *   c  16 x 8   float32: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1) */
#ifndef DDP_KERNELS_CUDA_PTX_H
#define DDP_KERNELS_CUDA_PTX_H

#include "core/bf16.h"
#include "kernels/cuda/cuda.h"

#include <float.h>
#include <math.h>

/* --- float16 ---------------------------------------------------------------------------------- */

/* What operands of products alone are held in. By the rules of core/bf16.h, but which NaN a NaN
 * becomes. */
struct ddp_half {
    uint16_t bits;
};

static __device__ inline float ddp_cuda_f32_of(ddp_half half)
{
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
    return value;
#else
    return ddp_f16_to_f32(half.bits);
#endif
}

static __device__ inline void ddp_cuda_round_to(ddp_half *to, float value)
{
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
#else
    to->bits = ddp_f16_of(value);
#endif
}

/* Two elements in a word, the first in its lower half. */
static __device__ inline unsigned ddp_cuda_f16_pair(float first, float second)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    ddp_half low, high;
    ddp_cuda_round_to(&low, first);
    ddp_cuda_round_to(&high, second);
    return (unsigned)low.bits | (unsigned)high.bits << 16;
#endif
}

template <int W>
static __device__ inline void ddp_write(ddp_half *to, const ddp_pack<float, W> &values)
{
    if constexpr (W == 1) {
        ddp_cuda_round_to(to, values.at[0]);
    } else {
        ddp_words<W / 2> words;
        for (int i = 0; i < W / 2; i++)
            words.at[i] = ddp_cuda_f16_pair(values.at[2 * i], values.at[2 * i + 1]);
        *reinterpret_cast<ddp_words<W / 2> *>(to) = words;
    }
}

/* --- products --------------------------------------------------------------------------------- */

/* Compute capabilities that have them. */
#define DDP_MMA_CAPABILITY     80
#define DDP_MMA_F16_CAPABILITY 75

/* Operands of T: uint16_t, which is bf16, or ddp_half. */
template <typename T> inline constexpr bool ddp_is_half = false;
template <> inline constexpr bool ddp_is_half<ddp_half> = true;

template <typename T> static __device__ inline unsigned ddp_mma_pair(float first, float second)
{
    return ddp_is_half<T> ? ddp_cuda_f16_pair(first, second) : ddp_cuda_bf16_pair(first, second);
}

#if !defined(DDP_CUDASIM)

/* The first or the second half of a product in float16. */
static __device__ inline void ddp_mma_half(float (&c)[4], unsigned a0, unsigned a1, unsigned b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
#endif
}

#define DDP_MMA(type)                                                                              \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                             \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"                                  \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

/* c += a b */
template <typename T>
static __device__ inline void ddp_mma(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                      unsigned b1)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (ddp_is_half<T>)
        DDP_MMA("f16");
    else
        DDP_MMA("bf16");
#else
    if constexpr (ddp_is_half<T>) {
        ddp_mma_half(c, a[0], a[1], b0);
        ddp_mma_half(c, a[2], a[3], b1);
    }
#endif
}

/* An address in shared memory, in bytes. */
typedef unsigned ddp_shared;

static __device__ inline ddp_shared ddp_shared_of(const uint16_t *memory)
{
    return (unsigned)__cvta_generic_to_shared(memory);
}

/* Four matrices of 8 x 8: lane l gives the address of row l % 8 of matrix l / 8, 16 bytes, and gets
 * of each matrix the word (g, 2t). */
static __device__ inline void ddp_mma_load(unsigned (&to)[4], ddp_shared row)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#endif
}

/* The same of the transposed matrices: (2t, g) and (2t + 1, g) make the word. */
static __device__ inline void ddp_mma_load_transposed(unsigned (&to)[4], ddp_shared row)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#endif
}

/* The value, as if it came from elsewhere: what is made of it is made here, not before a loop and
 * kept in registers. */
static __device__ inline unsigned ddp_again(unsigned value)
{
    asm volatile("" : "+r"(value));
    return value;
}

/* Copies on their way to shared memory. */
struct ddp_copies {
    char unused;
};

/* 16 bytes, or zeros where `there` is false; `from` may be anything then. */
static __device__ inline void ddp_copy(struct ddp_copies *, uint16_t *to, const uint16_t *from,
                                       bool there)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
#endif
}

/* Those of this thread are done; a barrier then shows them to others. */
static __device__ inline void ddp_copies_wait(struct ddp_copies *)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;\n" ::: "memory");
#endif
}

/* 2^x and 1/x by one instruction each, for numbers that are rounded to 16 bits in the end. What is
 * smaller than 2^-126 becomes 0. */
static __device__ inline float ddp_fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

static __device__ inline float ddp_fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

#elif defined(__cplusplus)

static inline float ddp_flushed(float y)
{
    return fabsf(y) < FLT_MIN ? 0 : y;
}

static inline float ddp_fast_exp2(float x)
{
    return ddp_flushed(exp2f(x));
}

static inline float ddp_fast_reciprocal(float x)
{
    return ddp_flushed(1 / x);
}

/* What each lane of the warp passed, as long as none has left. */
struct ddp_mma_lanes {
    const void *of[DDP_WARP];
};

static inline struct ddp_mma_lanes *ddp_mma_meet(const void *mine)
{
    __shared__ struct ddp_mma_lanes warps[32];
    struct ddp_mma_lanes *lanes = &warps[threadIdx.x / DDP_WARP];
    lanes->of[threadIdx.x % DDP_WARP] = mine;
    __syncwarp();
    return lanes;
}

/* Element `half` of a word. */
template <typename T> static inline float ddp_mma_element(unsigned word, int half)
{
    return ddp_is_half<T> ? ddp_f16_to_f32((uint16_t)(half ? word >> 16 : word))
                          : __uint_as_float(half ? word & 0xffff0000u : word << 16);
}

template <typename T>
static inline void ddp_mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    if (cudasim_wrong("mma"))
        return; /* as the code for an older device */
    struct fragments {
        unsigned a[4], b[2];
    } mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const struct ddp_mma_lanes *lanes = ddp_mma_meet(&mine);
    const int g = (int)threadIdx.x % DDP_WARP / 4, t = (int)threadIdx.x % 4;
    for (int k = 0; k < 16; k += 2) {
        const int quarter = k % 8 / 2, high = k / 8;
        const fragments *left = (const fragments *)lanes->of[4 * g + quarter];
        const unsigned a0 = left->a[high * 2], a1 = left->a[high * 2 + 1];
        const unsigned first = ((const fragments *)lanes->of[8 * t + quarter])->b[high];
        const unsigned second = ((const fragments *)lanes->of[8 * t + 4 + quarter])->b[high];
        for (int half = 0; half < 2; half++) {
            const float x = ddp_mma_element<T>(a0, half), y = ddp_mma_element<T>(a1, half);
            const float z = ddp_mma_element<T>(first, half), w = ddp_mma_element<T>(second, half);
            c[0] += x * z;
            c[1] += x * w;
            c[2] += y * z;
            c[3] += y * w;
        }
    }
    __syncwarp();
}

typedef uintptr_t ddp_shared;

static inline ddp_shared ddp_shared_of(const uint16_t *memory)
{
    return (uintptr_t)memory;
}

static inline void ddp_mma_load(unsigned (&to)[4], ddp_shared row)
{
    const struct ddp_mma_lanes *lanes = ddp_mma_meet((const void *)row);
    const int g = (int)threadIdx.x % DDP_WARP / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < 4; i++)
        memcpy(&to[i], (const uint16_t *)lanes->of[8 * i + g] + 2 * t, sizeof to[i]);
    __syncwarp();
}

static inline void ddp_mma_load_transposed(unsigned (&to)[4], ddp_shared row)
{
    const struct ddp_mma_lanes *lanes = ddp_mma_meet((const void *)row);
    const int g = (int)threadIdx.x % DDP_WARP / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned)((const uint16_t *)lanes->of[8 * i + 2 * t])[g] |
                (unsigned)((const uint16_t *)lanes->of[8 * i + 2 * t + 1])[g] << 16;
    __syncwarp();
}

static inline unsigned ddp_again(unsigned value)
{
    return value;
}

struct ddp_copies {
    int count;
    struct {
        uint16_t *to;
        const uint16_t *from; /* NULL: zeros */
    } of[64];
};

static inline void ddp_copy(struct ddp_copies *copies, uint16_t *to, const uint16_t *from,
                            bool there)
{
    memset(to, 0xff, 16); /* NaN for a reader that does not wait */
    copies->of[copies->count].to = to;
    copies->of[copies->count++].from = there ? from : NULL;
}

static inline void ddp_copies_wait(struct ddp_copies *copies)
{
    for (int i = 0; i < copies->count; i++)
        if (copies->of[i].from)
            memcpy(copies->of[i].to, copies->of[i].from, 16);
        else
            memset(copies->of[i].to, 0, 16);
    copies->count = 0;
}

#endif

/* Four elements of float32, rounded to float16 on their way, which does not wait: a barrier alone
 * shows them to others. */
static __device__ inline void ddp_copy(struct ddp_copies *, uint16_t *to, const float *from,
                                       bool there)
{
    ddp_write<4>(reinterpret_cast<ddp_half *>(to), there ? ddp_read<4>(from) : ddp_pack_of<4>(0));
}

#endif

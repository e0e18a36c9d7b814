/* SPDX-License-Identifier: MIT
 *
 * Rounding to bf16 in kernels, by the rule of bf16.h. For .cu files. */
#ifndef DDP_KERNELS_CUDA_ROUND_H
#define DDP_KERNELS_CUDA_ROUND_H

#include "kernels/cuda.h"

static __device__ inline uint16_t ddp_cuda_bf16_of(float value)
{
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static __device__ inline float ddp_cuda_bf16_to_f32(uint16_t value)
{
    return __uint_as_float((unsigned)value << 16);
}

/* An operand of a product, as it is stored. */
static __device__ inline float ddp_cuda_f32_of(float value)
{
    return value;
}

static __device__ inline float ddp_cuda_f32_of(uint16_t value)
{
    return ddp_cuda_bf16_to_f32(value);
}

static __device__ inline void ddp_cuda_round_to(float *to, float value)
{
    *to = value;
}

static __device__ inline void ddp_cuda_round_to(uint16_t *to, float value)
{
    *to = ddp_cuda_bf16_of(value);
}

#endif

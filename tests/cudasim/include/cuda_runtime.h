/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed: what C++ has of the
 * runtime beyond its C interface. */
#ifndef CUDASIM_CUDA_RUNTIME_H
#define CUDASIM_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "library_types.h"

#ifdef __cplusplus

/* As NVIDIA's has them for a compiler that is not nvcc; cudasim.h gives them their meaning. */
#define __global__
#define __device__
#define __host__
#define __shared__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))

template <typename T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    return ::cudaMalloc((void **)(void *)memory, bytes);
}

template <typename T>
static inline cudaError_t cudaMallocHost(T **memory, size_t bytes, unsigned flags = 0)
{
    return ::cudaHostAlloc((void **)(void *)memory, bytes, flags);
}

template <typename T>
static inline cudaError_t cudaHostAlloc(T **memory, size_t bytes, unsigned flags)
{
    return ::cudaHostAlloc((void **)(void *)memory, bytes, flags);
}

template <typename T>
static inline cudaError_t cudaFuncSetAttribute(T *function, cudaFuncAttribute attribute, int value)
{
    return ::cudaFuncSetAttribute(reinterpret_cast<const void *>(function), attribute, value);
}

#define CUDASIM_MAKE2(name, type)                                                                  \
    static inline name make_##name(type x, type y)                                                 \
    {                                                                                              \
        name v = {x, y};                                                                           \
        return v;                                                                                  \
    }
#define CUDASIM_MAKE3(name, type)                                                                  \
    static inline name make_##name(type x, type y, type z)                                         \
    {                                                                                              \
        name v = {x, y, z};                                                                        \
        return v;                                                                                  \
    }
#define CUDASIM_MAKE4(name, type)                                                                  \
    static inline name make_##name(type x, type y, type z, type w)                                 \
    {                                                                                              \
        name v = {x, y, z, w};                                                                     \
        return v;                                                                                  \
    }

CUDASIM_MAKE2(float2, float)
CUDASIM_MAKE3(float3, float)
CUDASIM_MAKE4(float4, float)
CUDASIM_MAKE2(double2, double)
CUDASIM_MAKE2(int2, int)
CUDASIM_MAKE3(int3, int)
CUDASIM_MAKE4(int4, int)
CUDASIM_MAKE2(uint2, unsigned)
CUDASIM_MAKE3(uint3, unsigned)
CUDASIM_MAKE4(uint4, unsigned)
CUDASIM_MAKE2(ushort2, unsigned short)
CUDASIM_MAKE4(ushort4, unsigned short)
CUDASIM_MAKE4(uchar4, unsigned char)
CUDASIM_MAKE2(longlong2, long long)

#endif
#endif

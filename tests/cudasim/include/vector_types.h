/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed. */
#ifndef CUDASIM_VECTOR_TYPES_H
#define CUDASIM_VECTOR_TYPES_H

#ifndef CUDASIM_CHECK

#define CUDASIM_VECTOR2(name, type, bytes)                                                         \
    typedef struct name {                                                                          \
        type x, y;                                                                                 \
    } __attribute__((aligned(bytes))) name;
#define CUDASIM_VECTOR3(name, type)                                                                \
    typedef struct name {                                                                          \
        type x, y, z;                                                                              \
    } name;
#define CUDASIM_VECTOR4(name, type, bytes)                                                         \
    typedef struct name {                                                                          \
        type x, y, z, w;                                                                           \
    } __attribute__((aligned(bytes))) name;

CUDASIM_VECTOR2(float2, float, 8)
CUDASIM_VECTOR3(float3, float)
CUDASIM_VECTOR4(float4, float, 16)
CUDASIM_VECTOR2(double2, double, 16)
CUDASIM_VECTOR2(int2, int, 8)
CUDASIM_VECTOR3(int3, int)
CUDASIM_VECTOR4(int4, int, 16)
CUDASIM_VECTOR2(uint2, unsigned, 8)
CUDASIM_VECTOR3(uint3, unsigned)
CUDASIM_VECTOR4(uint4, unsigned, 16)
CUDASIM_VECTOR2(ushort2, unsigned short, 4)
CUDASIM_VECTOR4(ushort4, unsigned short, 8)
CUDASIM_VECTOR4(uchar4, unsigned char, 4)
CUDASIM_VECTOR2(longlong2, long long, 16)

typedef struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
#endif
} dim3;

#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * Philox4x32-10, the counter-based generator of Salmon et al. ("Parallel random numbers: as easy
 * as 1, 2, 3", 2011), with the numbers of their Random123 library. It has no state: the numbers of
 * an element depend on its position (the counter) and on the key only, so they are the same for any
 * split of the work and any order. */
#ifndef DDP_CORE_PHILOX_H
#define DDP_CORE_PHILOX_H

#include <stdint.h>

#define DDP_PHILOX_ROUNDS 10

#ifdef __CUDACC__ /* kernels call it too */
#define DDP_PHILOX_DEVICE __host__ __device__
#else
#define DDP_PHILOX_DEVICE
#endif

/* Four independent 32-bit numbers, evenly distributed.
 *   out [out]  may be the counter itself */
DDP_PHILOX_DEVICE static inline void ddp_philox(uint32_t out[4], const uint32_t counter[4],
                                                const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < DDP_PHILOX_ROUNDS; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0;
        const uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t next0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        const uint32_t next2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = next0;
        c2 = next2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* A whole number 0 <= r < n from one of them. Each has the same probability up to n/2^32, which
 * is negligible for the small n of an image's crop. n > 0 */
static inline uint32_t ddp_philox_below(uint32_t number, uint32_t n)
{
    return (uint32_t)((uint64_t)number * n >> 32);
}

/* A float in [0, 1): the upper 24 bits, so that each value is exact. */
static inline float ddp_philox_uniform(uint32_t number)
{
    return (float)(number >> 8) * 0x1p-24f;
}

#endif

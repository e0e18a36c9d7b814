/* SPDX-License-Identifier: MIT
 *
 * See hash.h. Four sums side by side, so that the processor's multiplications overlap; each step
 * can be undone, so two inputs that differ in one word never meet again in its sum. */
#include "config.h"

#include "core/hash.h"

#include <string.h>

#define ODD_1 UINT64_C(0x9e3779b185ebca87)
#define ODD_2 UINT64_C(0xc2b2ae3d27d4eb4f)

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t mix(uint64_t sum, uint64_t word)
{
    return rotate((sum ^ word) * ODD_1, 31) * ODD_2;
}

uint64_t ddp_hash(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t sums[4] = {1, 2, 3, 4}, words[4], hash = bytes;
    size_t left = bytes;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++)
            sums[i] = mix(sums[i], words[i]);
    }
    memset(words, 0, sizeof words);
    if (left > 0)
        memcpy(words, at, left);
    for (int i = 0; i < 4; i++)
        hash = mix(hash, mix(sums[i], words[i]));
    hash ^= hash >> 32;
    return hash * ODD_1;
}

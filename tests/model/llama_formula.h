/* SPDX-License-Identifier: MIT
 *
 * The weights of tests/model/golden/llama.py: value i of a tensor is made of the top 16 bits of
 * splitmix64's output for FNV-1a(name) + (i + 1) * golden ratio, and is exact in float32. */
#ifndef DDP_TESTS_LLAMA_FORMULA_H
#define DDP_TESTS_LLAMA_FORMULA_H

#include "core/text.h"

#include <stdint.h>
#include <string.h>

static inline float llama_formula(const char *name, int64_t index)
{
    uint64_t z = 0xcbf29ce484222325u;
    for (const char *c = name; *c; c++)
        z = (z ^ (unsigned char)*c) * 0x100000001b3u;
    z += (uint64_t)(index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const float unit = (float)(int64_t)(z >> 48) / 32768 - 1;
    if (ddp_text_ends_with(name, "norm.weight"))
        return 1 + unit / 4;
    if (strstr(name, "embed_tokens") || strstr(name, "lm_head"))
        return unit / 2;
    return unit / (ddp_text_ends_with(name, ".bias") ? 8 : 4);
}

#endif

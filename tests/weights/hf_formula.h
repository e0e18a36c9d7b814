/* SPDX-License-Identifier: MIT
 *
 * Weights that any language can make without a file, exact in float32: from the FNV-1a hash of a
 * parameter's name and the finaliser of splitmix64 of an element's index. */
#ifndef DDP_TESTS_HF_FORMULA_H
#define DDP_TESTS_HF_FORMULA_H

#include "core/text.h"
#include "weights/hf_llama.h"

#include <stdlib.h>
#include <string.h>

static inline uint64_t formula_hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

/* Element i of a tensor: near 1 in norms, else of a size that suits it. */
static inline float formula_value(const char *name, uint64_t hash, uint64_t i)
{
    uint64_t z = hash + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const float v = ((float)(z >> 48) - 32768) / 32768;
    if (ddp_text_ends_with(name, "norm.weight"))
        return 1 + v / 4;
    if (ddp_text_ends_with(name, "embed_tokens.weight") || strcmp(name, "lm_head.weight") == 0)
        return v / 2;
    return ddp_text_ends_with(name, ".bias") ? v / 8 : v / 4;
}

/* All parameters of a model, with memory of their own. */
struct formula {
    struct ddp_hf_llama_tensor *tensors;
    size_t tensor_count;
    struct ddp_hf_values *values;
    size_t count;
};

/* `filled`: by the formula for the files' tensors, else with zeros. */
static inline void formula_make(struct formula *formula, const struct ddp_hf_llama *config,
                                enum ddp_dtype dtype, bool filled)
{
    if (ddp_hf_llama_tensors(config, &formula->tensors, &formula->tensor_count) != DDP_OK)
        abort();
    formula->values = calloc(3 * formula->tensor_count, sizeof *formula->values);
    formula->count = 0;
    for (size_t t = 0; t < formula->tensor_count; t++) {
        const struct ddp_hf_llama_tensor *tensor = &formula->tensors[t];
        const int64_t columns = tensor->dim_count == 2 ? tensor->dims[1] : 1;
        const uint64_t hash = formula_hash(tensor->name);
        uint64_t at = 0;
        for (int p = 0; p < tensor->part_count; p++) {
            struct ddp_hf_values *values = &formula->values[formula->count++];
            const size_t count = (size_t)(tensor->parts[p].rows * columns);
            *values = (struct ddp_hf_values){.name = tensor->parts[p].name,
                                             .dim_count = tensor->dim_count,
                                             .dims = {tensor->parts[p].rows, columns},
                                             .dtype = dtype,
                                             .memory = calloc(count, sizeof(float))};
            for (size_t i = 0; filled && dtype == DDP_F32 && i < count; i++)
                ((float *)values->memory)[i] = formula_value(tensor->name, hash, at++);
        }
    }
}

static inline void formula_free(struct formula *formula)
{
    for (size_t i = 0; i < formula->count; i++)
        free(formula->values[i].memory);
    free(formula->values);
    free(formula->tensors);
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * llama.cpp's names for the regular expressions with which byte-level tokenizers cut texts. */
#include "config.h"

#include "data/text/buffer.h"
#include "data/text/gguf_tokens.h"

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct ddp_gguf_cut cuts[] = {
    {.name = "gpt-2"},
    {.name = "smollm", .digits = true},
    {.name = "qwen2", .pattern = WORDS "\\p{N}" REST, .nfc = true},
    {.name = "llama-bpe",
     .pattern = WORDS "\\p{N}{1,3}" REST,
     .ignore_merges = true,
     .adds_bos = true},
    {.name = "tekken",
     .pattern = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}"
                "\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}"
                "\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
                "\\s+(?!\\S)|\\s+",
     .ignore_merges = true},
};
#define CUTS (sizeof cuts / sizeof cuts[0])

const struct ddp_gguf_cut *ddp_gguf_cut_named(const char *name)
{
    for (size_t i = 0; i < CUTS; i++)
        if (strcmp(cuts[i].name, name) == 0)
            return &cuts[i];
    return NULL;
}

/* Notes a step of a tokenizer.json; false: no row has such a step. */
static bool note_step(struct ddp_gguf_cut *found, bool *gpt2, const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    if (type && strcmp(type, "Digits") == 0)
        return found->digits = json_is_true(json_object_get(step, "individual_digits"));
    if (type && strcmp(type, "ByteLevel") == 0) {
        *gpt2 = !json_is_false(json_object_get(step, "use_regex"));
        return !json_is_true(json_object_get(step, "add_prefix_space"));
    }
    const bool first = !found->pattern;
    found->pattern = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    return first && found->pattern;
}

const struct ddp_gguf_cut *ddp_gguf_cut_of(const json_t *pre_tokenizer)
{
    struct ddp_gguf_cut found = {.name = NULL};
    const json_t *steps = json_object_get(pre_tokenizer, "pretokenizers");
    bool gpt2 = false, known = steps || note_step(&found, &gpt2, pre_tokenizer);
    for (size_t i = 0; known && i < json_array_size(steps); i++)
        known = note_step(&found, &gpt2, json_array_get(steps, i));
    for (size_t i = 0; known && i < CUTS; i++)
        if (cuts[i].digits == found.digits && gpt2 == !cuts[i].pattern &&
            (gpt2 ? !found.pattern : found.pattern && strcmp(cuts[i].pattern, found.pattern) == 0))
            return &cuts[i];
    return NULL;
}

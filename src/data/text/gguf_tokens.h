/* SPDX-License-Identifier: MIT
 *
 * Tokenizers in GGUF files: their keys to and from the form of a tokenizer.json. */
#ifndef DDP_DATA_TEXT_GGUF_TOKENS_H
#define DDP_DATA_TEXT_GGUF_TOKENS_H

#include "core/json.h"

/* The keys tokenizer.ggml.* that say what a tokenizer.json, or that of a directory, does; those of
 * a GGUF file as they are.
 *   vocabulary  ids of the model
 *   keys [out]  freed with json_decref()
 * DDP_ERR_UNSUPPORTED: llama.cpp has no such tokenizer; others as for ddp_tokenizer_open(). */
enum ddp_status ddp_tokenizer_to_gguf(json_t **keys, const char *path, int64_t vocabulary);

/* The reverse, from the keys of a file.
 *   tokenizer [out]  as in a tokenizer.json
 *   config [out]     as in a tokenizer_config.json; both freed with json_decref()
 * DDP_ERR_UNSUPPORTED: another kind of tokenizer, named; DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_tokenizer_from_gguf(json_t **tokenizer, json_t **config, const char *path,
                                        const json_t *keys);

/* How the text of a byte-level tokenizer is cut, by llama.cpp's name for it. */
struct ddp_gguf_cut {
    const char *name;
    const char *pattern;               /* NULL: GPT-2's own */
    bool digits;                       /* each digit stands alone */
    bool ignore_merges, nfc, adds_bos; /* adds_bos: where a file does not say */
};
const struct ddp_gguf_cut *ddp_gguf_cut_named(const char *name);
/* NULL: none is the same. */
const struct ddp_gguf_cut *ddp_gguf_cut_of(const json_t *pre_tokenizer);

#define DDP_GGUF_SPACE "\xe2\x96\x81" /* U+2581 */

/* tokenizer.ggml.token_type */
enum {
    DDP_GGUF_NORMAL = 1,
    DDP_GGUF_UNKNOWN,
    DDP_GGUF_CONTROL,
    DDP_GGUF_USER,
    DDP_GGUF_UNUSED,
    DDP_GGUF_BYTE
};

#endif

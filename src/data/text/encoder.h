/* SPDX-License-Identifier: MIT
 *
 * What encoding needs for one thread, and encoding of one piece of normal text. A tokenizer keeps
 * idle encoders with what they have learned of words. */
#ifndef DDP_DATA_TEXT_ENCODER_H
#define DDP_DATA_TEXT_ENCODER_H

#include "data/text/bpe.h"
#include "data/text/tokenizer_parts.h"

/* A word and its ids; 64 bytes. */
struct ddp_word {
    uint64_t key[3]; /* its bytes, and in the last one their number: 0 is an empty place */
    int32_t ids[9];
    uint32_t count;
};

struct ddp_encoder {
    struct ddp_encoder *next; /* idle ones */
    const ddp_tokenizer *tokenizer;
    struct ddp_bpe bpe;
    ddp_regex_memory *regex_memory;
    struct ddp_word *words;
    struct ddp_tokens symbols; /* of the word in work */
    struct ddp_buffer name;    /* of the word, in the characters of the vocabulary */
    struct ddp_buffer normal[2], piece;
};

/* An idle encoder, or a new one. DDP_ERR_MEMORY. */
enum ddp_status ddp_encoder_take(struct ddp_encoder **encoder, const ddp_tokenizer *tokenizer);
void ddp_encoder_give_back(struct ddp_encoder *encoder); /* also NULL */
void ddp_encoders_destroy(const ddp_tokenizer *tokenizer);

/* Appends the ids of a part of a piece of normal text.
 *   begin          where the part begins
 *   limit          it ends at the first border between parts from here on
 *   stopped [out]  where it ended
 * DDP_ERR_MEMORY; DDP_ERR_UNSUPPORTED: PCRE2 gave up; not logged. */
enum ddp_status ddp_encoder_piece(struct ddp_encoder *encoder, const char *text, size_t bytes,
                                  size_t begin, size_t limit, size_t *stopped,
                                  struct ddp_tokens *out);

/* A place near `guess` that is most likely a border between parts. */
size_t ddp_encoder_border(struct ddp_encoder *encoder, const char *text, size_t bytes,
                          size_t guess);

#endif

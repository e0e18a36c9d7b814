/* SPDX-License-Identifier: MIT
 *
 * What a tokenizer consists of; for the files of this room only. */
#ifndef DDP_DATA_TEXT_TOKENIZER_PARTS_H
#define DDP_DATA_TEXT_TOKENIZER_PARTS_H

#include "data/text/added.h"
#include "data/text/regex.h"
#include "data/text/tokenizer.h"
#include "data/text/vocabulary.h"

#include <pthread.h>

#define DDP_STEPS_MOST 8

enum ddp_normalize_kind { DDP_NORMALIZE_NFC, DDP_NORMALIZE_PREPEND, DDP_NORMALIZE_REPLACE };

struct ddp_normalize_step {
    enum ddp_normalize_kind kind;
    struct ddp_buffer from, to;
};

/* When a piece of text gets something in front of it that it does not begin with. */
enum ddp_prefix { DDP_PREFIX_NEVER, DDP_PREFIX_FIRST, DDP_PREFIX_ALWAYS };

/* What the decoder of SentencePiece does, beside bytes. */
struct ddp_decode_text {
    struct ddp_buffer from, to; /* of each token; from.bytes 0: nothing */
    bool bytes;                 /* <0x0A> is a byte */
    int strip;                  /* spaces at the beginning of the text that go */
};

struct ddp_encoder;

struct ddp_tokenizer {
    char *path;
    struct ddp_vocabulary vocabulary;
    struct ddp_added raw_added;    /* cut out before the text is normalised */
    struct ddp_added normal_added; /* after it */
    struct ddp_normalize_step steps[DDP_STEPS_MOST];
    int step_count;

    /* Before regular expressions and words: spaces become `space`, and the piece gets a prefix. */
    enum ddp_prefix prefix;
    struct ddp_buffer space; /* U+2581; 0 bytes: a space stays what it is */
    ddp_regex *regexes[DDP_STEPS_MOST];
    int regex_count;

    bool byte_level; /* symbols are bytes, else characters */
    bool ignore_merges, fuse_unknown;
    bool byte_fallback;    /* an unknown character becomes its bytes */
    int32_t byte_ids[256]; /* -1: none */
    int32_t unknown;       /* -1: none: such characters are left out */
    /* Bits for pairs of classes of characters (ddp_junction()): whether a merge may join such
     * neighbours. NULL: a piece is not cut. */
    uint8_t *junctions;

    int32_t *before, *after; /* what DDP_ENCODE_BOS puts around a text */
    size_t before_count, after_count;
    struct ddp_decode_text decode; /* unless byte_level */

    int32_t bos, eos;
    char *chat_template, *chat_file;
    uint64_t hash; /* of the files */

    pthread_mutex_t *lock; /* of the list of idle encoders */
    struct ddp_encoder **idle;
};

/* The class of a character, for junctions: its own for ASCII. */
#define DDP_JUNCTION_CLASSES 512
static inline size_t ddp_junction_class(uint32_t character)
{
    return character < 128 ? character
                           : 128 + (character * 0x9e3779b1u >> 8) % (DDP_JUNCTION_CLASSES - 128);
}

static inline size_t ddp_junction(uint32_t left, uint32_t right)
{
    return ddp_junction_class(left) * DDP_JUNCTION_CLASSES + ddp_junction_class(right);
}

/* Of byte-level tokenizers: the character that stands for a byte in the texts of tokens. */
uint32_t ddp_byte_character(unsigned char byte);

/* Appends the bytes that a token stands for: those of its alphabet in a byte-level tokenizer, else
 * its text. */
enum ddp_status ddp_token_bytes(const ddp_tokenizer *tokenizer, int32_t id, struct ddp_buffer *out);

/* The normal form of a text, `text` itself where nothing changes.
 *   scratch  two buffers; the result may stand in either */
enum ddp_status ddp_tokenizer_normalize(const ddp_tokenizer *tokenizer,
                                        struct ddp_buffer scratch[2], const char **text,
                                        size_t *bytes);

#endif

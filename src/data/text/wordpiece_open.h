/* SPDX-License-Identifier: MIT
 *
 * What an open WordPiece tokenizer is, for wordpiece.c and wordpiece_open.c alone. */
#ifndef DDP_DATA_TEXT_WORDPIECE_OPEN_H
#define DDP_DATA_TEXT_WORDPIECE_OPEN_H

#include "data/text/vocabulary.h"
#include "data/text/wordpiece.h"

struct ddp_wordpiece {
    char *path;
    bool plain; /* it is a vocab.txt */
    struct ddp_vocabulary vocabulary;
    char *prefix;            /* of pieces inside a word: "##" */
    size_t longest;          /* bytes of a piece, without the prefix */
    int64_t word_characters; /* longer words are not known */
    bool cleans, cuts_ideographs, strips, lowers;
    int32_t specials[DDP_WORDPIECE_SPECIALS]; /* -1: there is none */
};

extern const char *const ddp_wordpiece_special_names[DDP_WORDPIECE_SPECIALS]; /* "[PAD]", ... */

#endif

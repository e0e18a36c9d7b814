/* SPDX-License-Identifier: MIT
 *
 * WordPiece, the tokens of BERT's kind of encoders, as Hugging Face's BertTokenizer makes them:
 * text is cleaned, words are cut at spaces and punctuation, and each becomes the longest pieces
 * that the vocabulary has. */
#ifndef DDP_DATA_TEXT_WORDPIECE_H
#define DDP_DATA_TEXT_WORDPIECE_H

#include "ddp.h"

typedef struct ddp_wordpiece ddp_wordpiece;

/* Tokens that stand for no text. */
enum ddp_wordpiece_special {
    DDP_WORDPIECE_PAD,
    DDP_WORDPIECE_UNK, /* a word that has no pieces */
    DDP_WORDPIECE_CLS, /* before a text */
    DDP_WORDPIECE_SEP, /* behind it */
    DDP_WORDPIECE_MASK,
    DDP_WORDPIECE_SPECIALS
};

/* Opens a vocab.txt, a tokenizer.json, or a directory that has one; tokenizer_config.json beside a
 * vocab.txt says whether it lowers letters, which is the default.
 *   wordpiece [out]  closed with ddp_wordpiece_close()
 * DDP_ERR_IO, DDP_ERR_MEMORY; DDP_ERR_FORMAT names the file and what is wrong, such as a vocabulary
 * without [UNK]. */
enum ddp_status ddp_wordpiece_open(ddp_wordpiece **wordpiece, const char *path);
void ddp_wordpiece_close(ddp_wordpiece *wordpiece); /* NULL is fine */

/* The same of a vocab.txt in memory, for tests.
 *   name  for messages */
enum ddp_status ddp_wordpiece_parse(ddp_wordpiece **wordpiece, const char *name, const char *text,
                                    size_t bytes, bool lowers);

/* Ids are below it. */
int64_t ddp_wordpiece_ids(const ddp_wordpiece *wordpiece);
/* -1: the vocabulary does not have it, which may be of MASK alone. */
int32_t ddp_wordpiece_special(const ddp_wordpiece *wordpiece, enum ddp_wordpiece_special special);

/* The file that it was read from, whether that is a vocab.txt, and whether it lowers letters. */
const char *ddp_wordpiece_path(const ddp_wordpiece *wordpiece);
bool ddp_wordpiece_is_plain(const ddp_wordpiece *wordpiece);
bool ddp_wordpiece_lowers(const ddp_wordpiece *wordpiece);

/* Appends the tokens of a text, without any of CLS and SEP except those that it spells out.
 *   text  UTF-8, which is checked: DDP_ERR_FORMAT
 *   ids   an array of ddp_array_append(), with its count */
enum ddp_status ddp_wordpiece_encode(const ddp_wordpiece *wordpiece, const char *text, size_t bytes,
                                     int32_t **ids, size_t *count);

#endif

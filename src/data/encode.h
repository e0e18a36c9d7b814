/* SPDX-License-Identifier: MIT
 *
 * Texts to tokens, by a tokenizer: text files, each a document (.txt, .gz), or JSON lines, each a
 * document or an example (data/record.h). What was encoded once is kept in the cache
 * (core/cache_folder.h) under a hash of the files, the tokenizer and the template. Of all processes
 * of the machine one encodes, the others wait for its file. */
#ifndef DDP_DATA_ENCODE_H
#define DDP_DATA_ENCODE_H

#include "data/columns.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/encoded.h"
#include "data/text/chat.h"

struct ddp_encoding {
    const struct ddp_data_names *files; /* at least one; NAME.jsonl and NAME.jsonl.gz are lines */
    const ddp_tokenizer *tokenizer;
    const char *chat; /* name of a template; NULL: that of the tokenizer's directory */
    const struct ddp_columns *columns; /* names of members of lines; NULL: ours */
    bool preferences;                  /* lines are such: kinds PAIR and RATED of record.h */
    int threads;                       /* 0: one for each CPU */
    struct ddp_dataset_watch watch;
};

/* Documents of text become a stream of tokens: facts.document_count is 0. Examples have places and
 * 32 bits, those that are trained with DDP_ENCODED_TRAINED. So have answers with their prompts: of
 * a pair the chosen one, then the rejected one. The file number of a rejected or bad one has
 * DDP_ENCODED_BAD.
 *   encoded [out]  freed with ddp_encode_close()
 * DDP_ERR_IO, DDP_ERR_MEMORY; DDP_ERR_FORMAT names file and line; DDP_ERR_INVALID: no chat
 * template; DDP_ERR_ABORTED: the watch said so. */
enum ddp_status ddp_encode_texts(struct ddp_encoded **encoded, const struct ddp_encoding *encoding);

void ddp_encode_close(struct ddp_encoded *encoded); /* NULL is fine */

/* The work itself, without a cache.
 *   writer  open; not finished */
enum ddp_status ddp_encode_into(ddp_encoded_writer *writer, const struct ddp_encoding *encoding,
                                int64_t *text_bytes);

/* Whether a model of that many classes has all tokens. DDP_ERR_INVALID. */
enum ddp_status ddp_encode_check(const struct ddp_encoded *encoded,
                                 const struct ddp_dataset_info *info);

/* Of a set whose rows are documents behind each other: tokens, then where the document of each
 * begins. */
struct ddp_dataset_info ddp_encode_row_info(const char *path, int64_t seq, int64_t class_count);

/* Whether the files are JSON lines of examples, by their first line. */
bool ddp_encode_makes_examples(const struct ddp_encoding *encoding);

#endif

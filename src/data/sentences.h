/* SPDX-License-Identifier: MIT
 *
 * Lines of texts with labels, or of texts that belong together, for sentences.c alone: what one
 * line has, whether it is JSON or a record of a table. */
#ifndef DDP_DATA_SENTENCES_H
#define DDP_DATA_SENTENCES_H

#include "core/json.h"
#include "data/columns.h"

#define DDP_SENTENCE_TEXTS 3 /* of a line, at most */

enum ddp_sentence_label {
    DDP_SENTENCE_UNLABELLED,
    DDP_SENTENCE_INTEGER,
    DDP_SENTENCE_REAL,
    DDP_SENTENCE_WORD,
};

struct ddp_sentence_line {
    int form;       /* which names it has; all lines of a file have the same */
    bool contrasts; /* its texts are an anchor and others, else one or a pair */
    int text_count;
    const json_t *texts[DDP_SENTENCE_TEXTS]; /* strings */
    enum ddp_sentence_label kind;
    double number;
    const char *word;
};

/* What an object has, whose texts and word stay its own.
 *   typed  a label that is a string is a word; else it may spell a number, as fields do
 *   where  for messages: file and line
 * DDP_ERR_FORMAT: no text that is known, or a label of another kind. */
enum ddp_status ddp_sentence_take(struct ddp_sentence_line *line, const json_t *root, bool typed,
                                  const char *where);

/* Calls `put` for each line of a .jsonl, .csv or .tsv, which may be compressed, until it fails.
 *   columns  whose names to look for; NULL: ours */
enum ddp_status ddp_sentences_walk(const char *path, const struct ddp_columns *columns,
                                   enum ddp_status (*put)(void *arg,
                                                          const struct ddp_sentence_line *line,
                                                          const char *where),
                                   void *arg);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The tokens of a tokenizer and the pairs that merge into one: two hash tables with open
 * addressing, filled once and then only read. */
#ifndef DDP_DATA_TEXT_VOCABULARY_H
#define DDP_DATA_TEXT_VOCABULARY_H

#include "data/text/buffer.h"
#include "ddp.h"

#define DDP_TOKEN_MOST (1 << 24) /* ids are below it: a table is as long as the largest */

struct ddp_token {
    size_t at;        /* in the vocabulary's texts */
    size_t normal_at; /* the text in a normal form, in which the token stands in texts */
    uint32_t bytes, normal_bytes;
    bool present, added, special;
};

struct ddp_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: an empty place */
    int32_t rank, id;
};

/* {0} is empty. */
struct ddp_vocabulary {
    struct ddp_token *tokens; /* by id */
    size_t ids, token_room;
    struct ddp_buffer texts; /* each with a 0 behind it */
    int32_t *slots;          /* by the hash of the text; -1: an empty place */
    size_t slot_count, token_count;
    struct ddp_merge *merges; /* by the hash of the pair */
    int merge_shift;
};

void ddp_vocabulary_clear(struct ddp_vocabulary *vocabulary);

/* Adds a token.
 *   what  names it in messages: "FILE: the vocabulary"
 * DDP_ERR_FORMAT: an id out of range or in use, or a text that is there already. */
enum ddp_status ddp_vocabulary_add(struct ddp_vocabulary *vocabulary, const char *what,
                                   const char *text, size_t bytes, int64_t id);

/* Gives a token another text in the normal form. DDP_ERR_MEMORY. */
enum ddp_status ddp_vocabulary_set_normal(struct ddp_vocabulary *vocabulary, int32_t id,
                                          const char *text, size_t bytes);

/* The id of a text, or -1. */
int32_t ddp_vocabulary_find(const struct ddp_vocabulary *vocabulary, const char *text,
                            size_t bytes);

static inline const char *ddp_vocabulary_text(const struct ddp_vocabulary *vocabulary, int32_t id)
{
    return vocabulary->texts.at + vocabulary->tokens[id].at;
}

/* Makes room for so many merges, once and before the first. DDP_ERR_MEMORY. */
enum ddp_status ddp_vocabulary_reserve_merges(struct ddp_vocabulary *vocabulary, size_t count);

/* Adds a merge; false: the pair has one. */
bool ddp_vocabulary_add_merge(struct ddp_vocabulary *vocabulary, int32_t left, int32_t right,
                              int32_t rank, int32_t id);

static inline size_t ddp_vocabulary_place(const struct ddp_vocabulary *vocabulary, uint64_t pair)
{
    return (size_t)((pair ^ pair >> 29) * UINT64_C(0x9e3779b97f4a7c15) >> vocabulary->merge_shift);
}

/* The merge of a pair, or NULL. */
static inline const struct ddp_merge *ddp_vocabulary_merge(const struct ddp_vocabulary *vocabulary,
                                                           int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t mask = SIZE_MAX >> vocabulary->merge_shift;
    for (size_t i = ddp_vocabulary_place(vocabulary, pair);; i = (i + 1) & mask) {
        const struct ddp_merge *merge = &vocabulary->merges[i];
        if (merge->pair == pair)
            return merge;
        if (merge->pair == UINT64_MAX)
            return NULL;
    }
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * Tokens that are cut out of a text before anything else happens to it: <|im_end|> and such. */
#ifndef DDP_DATA_TEXT_ADDED_H
#define DDP_DATA_TEXT_ADDED_H

#include "ddp.h"

#define DDP_ADDED_MOST 512 /* bytes of a token: a search may compare so many at each position */

struct ddp_added_token {
    char *text;
    size_t bytes; /* from 1 to DDP_ADDED_MOST */
    int32_t id;
    bool special;
};

/* {0} is empty. */
struct ddp_added {
    struct ddp_added_token *tokens; /* sorted by ddp_added_sort() */
    size_t count;
    bool begins[256]; /* some token begins with that byte */
};

void ddp_added_clear(struct ddp_added *added);

/* Appends a token; the text is copied. DDP_ERR_MEMORY. */
enum ddp_status ddp_added_append(struct ddp_added *added, const char *text, size_t bytes,
                                 int32_t id, bool special);

/* After the last token and before the first search. */
void ddp_added_sort(struct ddp_added *added);

/* The leftmost token in a text, the longest of several, from position *begin on.
 *   begin [in,out]  where it stands; `bytes` when there is none, and then NULL is returned */
const struct ddp_added_token *ddp_added_find(const struct ddp_added *added, const char *text,
                                             size_t bytes, size_t *begin);

#endif

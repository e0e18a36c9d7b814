/* SPDX-License-Identifier: MIT
 *
 * --columns for lines of JSON: "prompt=question,completion=answer" says which members take the
 * place of those that a record has (record.h). */
#ifndef DDP_DATA_COLUMNS_H
#define DDP_DATA_COLUMNS_H

#include "core/json.h"

#define DDP_COLUMNS 16

struct ddp_columns {
    char text[512];
    int count;
    const char *ours[DDP_COLUMNS], *theirs[DDP_COLUMNS];
};

/*   text  of the option
 * DDP_ERR_INVALID: it has another form, or names a member that no record has. */
enum ddp_status ddp_columns_read(struct ddp_columns *columns, const char *text);

/* Replaces an object by one with the named members alone, under our names.
 *   columns  NULL: leave it as it is
 *   where    for messages: file and line
 * DDP_ERR_FORMAT: one is missing that a record must have; DDP_ERR_MEMORY. */
enum ddp_status ddp_columns_apply(const struct ddp_columns *columns, json_t **root,
                                  const char *where);

/* The names of an object's members, for messages: a, b, c. Returns `text`. */
const char *ddp_columns_found(const json_t *root, char *text, size_t size);

#endif

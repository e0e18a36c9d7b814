/* SPDX-License-Identifier: MIT
 *
 * Tokens of many files one after another, counted from 0. Texts are one long text, with a newline
 * between one file and the next; files of tokens stay apart. */
#ifndef DDP_DATA_TOKEN_STREAM_H
#define DDP_DATA_TOKEN_STREAM_H

#include "data/data_names.h"
#include "data/encoded.h"
#include "data/token_file.h"

struct ddp_token_stream_file {
    struct ddp_token_file tokens;
    int64_t first; /* token of the stream */
};

struct ddp_token_stream {
    struct ddp_token_stream_file *files;
    size_t file_count;
    int64_t token_count, vocabulary;
    size_t memory_bytes;
    bool text;                   /* all are bytes, so that they are joined */
    struct ddp_encoded *encoded; /* what the only file is; NULL: none is */
    int users;                   /* datasets; the last one frees it */
};

/*   stream [out]  with one user
 *   files         at least one
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_token_stream_open(struct ddp_token_stream **stream,
                                      const struct ddp_data_names *files, enum ddp_token_kind kind);
/* Texts that were encoded, as a single file.
 *   encoded  without documents; the stream's own from now on, also after a failure
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_token_stream_take(struct ddp_token_stream **stream,
                                      struct ddp_encoded *encoded);

void ddp_token_stream_close(struct ddp_token_stream *stream); /* for one user; NULL is fine */

/* Reads tokens first .. first+count-1, which are there; the rest as ddp_token_file_read(). */
enum ddp_status ddp_token_stream_read(const struct ddp_token_stream *stream, int64_t first,
                                      size_t count, int64_t vocabulary, void *raw, int32_t *out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * One file of tokens: llm.c's with a header (GPT-2's tokens as 16 bits, Llama 3's as 32), nanoGPT's
 * without one, an array of whole numbers that NumPy saved, JSON lines with documents of text, or
 * any file as bytes; each also compressed with gzip. */
#ifndef DDP_DATA_TOKEN_FILE_H
#define DDP_DATA_TOKEN_FILE_H

#include "data/blob.h"
#include "data/dataset.h"

struct ddp_token_file {
    struct ddp_input_file file;
    struct ddp_blob blob;  /* what is in it: the file itself, or ... */
    unsigned char *memory; /* ... what was unpacked of it (data/text_file.h); NULL: nothing */
    uint64_t offset;       /* of the first token, bytes */
    int64_t count;         /* tokens */
    int width;             /* bytes of a token: 1, 2 or 4, little-endian */
    int64_t vocabulary;    /* what tokens of this kind stay below */
    bool text;             /* bytes */
};

/* Opens a file, finds out what it holds and checks that its size fits. NAME.gz is NAME compressed
 * with gzip and NAME.jsonl, of the kind DDP_TOKENS_AUTO, JSON lines: both are unpacked into memory.
 *   tokens [out]  stays where it is while it is open
 *   kind          what it must be, or DDP_TOKENS_AUTO
 *   most          bytes that it may take in memory
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY; *tokens is then closed. */
enum ddp_status ddp_token_file_open(struct ddp_token_file *tokens, const char *path,
                                    enum ddp_token_kind kind, bool keep, uint64_t most);
void ddp_token_file_close(struct ddp_token_file *tokens); /* also a zeroed one */

/* Reads tokens first .. first+count-1; they are there.
 *   out [out]   count numbers
 *   vocabulary  a token beyond it is DDP_ERR_FORMAT: the message has file, position and value
 *   raw         memory for count tokens of `width` bytes */
enum ddp_status ddp_token_file_read(const struct ddp_token_file *tokens, int64_t first,
                                    size_t count, int64_t vocabulary, void *raw, int32_t *out);

/* Writes tokens: as an array of NumPy's where the name ends in .npy, else with llm.c's header, of
 * 16 or of 32 bits.
 *   tokens  begins with them, little-endian
 *   width   bytes of one: 2 or 4
 * DDP_ERR_IO, DDP_ERR_MEMORY; DDP_ERR_INVALID: they are too many for the header. */
enum ddp_status ddp_token_file_write(const char *path, const struct ddp_blob *tokens, int64_t count,
                                     int width);

#endif

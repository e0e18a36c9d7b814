/* SPDX-License-Identifier: MIT
 *
 * Texts that are unpacked into memory, because they cannot be read from any place: compressed with
 * gzip (.gz), in JSON lines (.jsonl or .json: an object with a string "text" a line, a document
 * each), or both (.jsonl.gz). */
#ifndef DDP_DATA_TEXT_FILE_H
#define DDP_DATA_TEXT_FILE_H

#include "ddp.h"

/* By its name: JSON lines, compressed or not. */
bool ddp_text_is_jsonl(const char *path);

struct ddp_text {
    unsigned char *at; /* freed with free() */
    size_t bytes;
};

/* Reads a file that may be compressed to its end.
 *   jsonl       it holds JSON lines: the documents are joined by newlines; empty lines do not count
 *   name        for messages
 *   most        more bytes, unpacked, are DDP_ERR_MEMORY
 *   text [out]  zeroed before; empty after a failure
 * DDP_ERR_IO, DDP_ERR_MEMORY; DDP_ERR_FORMAT names the line. */
enum ddp_status ddp_text_read(struct ddp_text *text, FILE *file, const char *name, bool jsonl,
                              uint64_t most);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The lines of a file that may be compressed, some at a time. Blank ones are left out. */
#ifndef DDP_DATA_LINE_READER_H
#define DDP_DATA_LINE_READER_H

#include "ddp.h"

typedef struct ddp_line_reader ddp_line_reader;

struct ddp_line {
    const char *at; /* without its end; no 0 behind it */
    size_t bytes;
    uint32_t number; /* from 1 */
};

/* DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_line_reader_open(ddp_line_reader **reader, const char *path);
void ddp_line_reader_close(ddp_line_reader *reader); /* NULL is fine */

/* The next lines, of together some megabytes.
 *   lines [out]  at most `most`, valid until the next call
 *   count [out]  0 at the end
 * DDP_ERR_IO, DDP_ERR_MEMORY; DDP_ERR_FORMAT: a line is too long, or the file has too many. */
enum ddp_status ddp_line_reader_next(ddp_line_reader *reader, struct ddp_line *lines, size_t most,
                                     size_t *count);

#endif

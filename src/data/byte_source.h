/* SPDX-License-Identifier: MIT
 *
 * Reads a file that may be compressed with gzip, strictly: a damaged or truncated stream, and any
 * data after its end, is an error. The data decides whether it is compressed, not the file's name.
 */
#ifndef DDP_DATA_BYTE_SOURCE_H
#define DDP_DATA_BYTE_SOURCE_H

#include "ddp.h"

typedef struct ddp_byte_source ddp_byte_source;

/*   file  stays the caller's, open until close
 *   name  for messages; not copied
 * DDP_ERR_MEMORY, DDP_ERR_IO. */
enum ddp_status ddp_byte_source_open(ddp_byte_source **source, FILE *file, const char *name);
void ddp_byte_source_close(ddp_byte_source *source);

/* Reads until `bytes` are there or the data ends.
 *   got [out]  less than `bytes` only at the end
 * DDP_ERR_IO, DDP_ERR_FORMAT (a damaged gzip stream). */
enum ddp_status ddp_byte_source_read(ddp_byte_source *source, void *data, size_t bytes,
                                     size_t *got);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Bytes of known number that are in memory or in a part of a file: what the parsers of formats read
 * from. */
#ifndef DDP_DATA_BLOB_H
#define DDP_DATA_BLOB_H

#include "core/input_file.h"

struct ddp_blob {
    const char *name;                  /* for messages */
    const struct ddp_input_file *file; /* NULL: in memory */
    const unsigned char *memory;
    uint64_t offset; /* in the file */
    uint64_t bytes;
};

/* The bytes [at, at+count), which are within it: where they are in memory, or read into `buffer`.
 *   pointer [out]
 * DDP_ERR_IO as of ddp_input_file_read(). */
enum ddp_status ddp_blob_at(const struct ddp_blob *blob, uint64_t at, size_t count, void *buffer,
                            const unsigned char **pointer);

#endif

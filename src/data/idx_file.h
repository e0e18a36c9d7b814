/* SPDX-License-Identifier: MIT
 *
 * One IDX file, the format of MNIST: two zero bytes, a type byte, the number of dimensions, the
 * sizes (big-endian, 32 bits), then the values. Only unsigned bytes (type 0x08) are read; gzip is
 * undone. */
#ifndef DDP_DATA_IDX_FILE_H
#define DDP_DATA_IDX_FILE_H

#include "ddp.h"

#define DDP_IDX_MAX_DIMS 4

struct ddp_idx_file {
    int dim_count;
    int64_t dims[DDP_IDX_MAX_DIMS]; /* the first is the number of items; all > 0 */
    size_t bytes;                   /* the product of dims */
    unsigned char *values;          /* freed with free() */
};

/* Reads a whole file. Memory grows with what is really there, never with what a header claims.
 *   name                for messages
 *   min_dims, max_dims  the number of dimensions it must have, at most DDP_IDX_MAX_DIMS
 * DDP_ERR_FORMAT, DDP_ERR_IO, DDP_ERR_MEMORY: one line that names the file; *idx is untouched. */
enum ddp_status ddp_idx_file_read(struct ddp_idx_file *idx, FILE *file, const char *name,
                                  int min_dims, int max_dims);

#endif

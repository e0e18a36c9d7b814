/* SPDX-License-Identifier: MIT
 *
 * The header of one array in NumPy's own format (.npy, versions 1.0 to 3.0), and its values as
 * floats or whole numbers. Little-endian, C order. */
#ifndef DDP_DATA_NPY_FILE_H
#define DDP_DATA_NPY_FILE_H

#include "data/blob.h"

#define DDP_NPY_MAX_DIMS 8

struct ddp_npy {
    struct ddp_blob blob;
    uint64_t offset; /* of the first value in the blob */
    char kind;       /* 'f' floating, 'i' signed, 'u' unsigned, 'b' bool */
    int width;       /* bytes of a value: 1, 2, 4 or 8 */
    int dim_count;   /* 0: one value */
    int64_t dims[DDP_NPY_MAX_DIMS];
    uint64_t count; /* the product of dims; that many values are in the blob, and nothing after */
};

/* Reads the header and checks that the sizes fit. The blob is copied, what it refers to is not.
 * DDP_ERR_FORMAT: names the blob and the field; DDP_ERR_IO. */
enum ddp_status ddp_npy_open(struct ddp_npy *npy, const struct ddp_blob *blob);

/* "float32 of (100, 28, 28)", for messages. */
const char *ddp_npy_describe(const struct ddp_npy *npy, char *text, size_t size);

/* Values of the blob as floats: rounded; infinite beyond the range. */
void ddp_npy_to_floats(const struct ddp_npy *npy, const unsigned char *values, size_t count,
                       float *out);

/* A value of an integer array or of bools. */
int64_t ddp_npy_to_integer(const struct ddp_npy *npy, const unsigned char *value);

#endif

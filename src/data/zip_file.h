/* SPDX-License-Identifier: MIT
 *
 * The members of a zip archive, as NumPy writes it (.npz): stored or deflated, also with the 64-bit
 * sizes of large ones. Found through the central directory, as every reader does; bytes between
 * members are ignored. */
#ifndef DDP_DATA_ZIP_FILE_H
#define DDP_DATA_ZIP_FILE_H

#include "data/blob.h"

struct ddp_zip_member {
    char *name;
    uint64_t offset; /* of its own header */
    uint64_t packed_bytes, bytes;
    uint32_t crc;
    int method; /* 0 stored, 8 deflated */
};

struct ddp_zip {
    struct ddp_blob blob;
    struct ddp_zip_member *members;
    size_t member_count;
};

/* Reads the central directory. The blob is copied, what it refers to is not.
 * DDP_ERR_FORMAT, DDP_ERR_IO, DDP_ERR_MEMORY; *zip is then closed. */
enum ddp_status ddp_zip_open(struct ddp_zip *zip, const struct ddp_blob *blob);
void ddp_zip_close(struct ddp_zip *zip); /* also a zeroed one */

/* The member of that name; NULL: none. */
const struct ddp_zip_member *ddp_zip_find(const struct ddp_zip *zip, const char *name);

/* A member's bytes: a part of the archive when it is stored, which is then read as needed and whose
 * checksum is not looked at; else decompressed into memory, and checked.
 *   name         for the blob; not copied
 *   data [out]   its bytes
 *   owned [out]  memory that they are in, freed with free(); NULL when they are stored
 * DDP_ERR_FORMAT, DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_zip_member_open(const struct ddp_zip *zip, const struct ddp_zip_member *member,
                                    const char *name, struct ddp_blob *data, unsigned char **owned);

#endif

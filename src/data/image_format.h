/* SPDX-License-Identifier: MIT
 *
 * What a format of images brings: one const struct. image_file.c has the table. */
#ifndef DDP_DATA_IMAGE_FORMAT_H
#define DDP_DATA_IMAGE_FORMAT_H

#include "data/image_file.h"

/* Each format's own struct begins with this. */
struct ddp_image_reader {
    const struct ddp_image_format *format;
    const struct ddp_blob *blob;
    struct ddp_image image;
};

/* Pixels of a row, image.channels of them side by side. */
typedef void ddp_image_take(void *arg, int row, const unsigned char *pixels);

struct ddp_image_format {
    const char *name;
    unsigned char magic[8]; /* what a file begins with */
    size_t magic_bytes;
    size_t reader_bytes; /* of the format's own struct */
    /* Reads the header and sets reader->image. The reader is zeroed except its first members. */
    enum ddp_status (*open)(ddp_image_reader *reader);
    /* Decodes the image to its end, rows from top to bottom. Once, after open. */
    enum ddp_status (*read)(ddp_image_reader *reader, ddp_image_take *take, void *arg);
    /* Also after open has failed. */
    void (*close)(ddp_image_reader *reader);
};

/* "NAME: cannot decode this PNG image: WHY" */
enum ddp_status ddp_image_fail(const ddp_image_reader *reader, const char *why);

/* Whether an image of this size is decoded; otherwise an error. */
enum ddp_status ddp_image_check_size(const ddp_image_reader *reader, uint64_t width,
                                     uint64_t height);

extern const struct ddp_image_format ddp_image_png;
extern const struct ddp_image_format ddp_image_jpeg;

#endif

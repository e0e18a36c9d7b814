/* SPDX-License-Identifier: MIT
 *
 * What a format of images brings: one const struct. image_file.c has the table. */
#ifndef DDP_DATA_IMAGE_FORMAT_H
#define DDP_DATA_IMAGE_FORMAT_H

#include "data/image_file.h"

#define DDP_IMAGE_MAGICS 4

/* Each format's own struct begins with this. */
struct ddp_image_reader {
    const struct ddp_image_format *format;
    const struct ddp_blob *blob;
    struct ddp_image image; /* as it is stored */
    int orientation;        /* EXIF's: how it is stored; 0: upright, as 1 */
    struct ddp_image shown; /* upright; set when open has returned */
};

/* Pixels of a row, image.channels of them side by side. */
typedef void ddp_image_take(void *arg, int row, const unsigned char *pixels);

struct ddp_image_format {
    const char *name;
    /* What a file has near its beginning: one of these. */
    struct {
        unsigned char at, count;
        unsigned char bytes[8];
    } magic[DDP_IMAGE_MAGICS];
    size_t reader_bytes; /* of the format's own struct */
    /* Reads the header and sets reader->image. The reader is zeroed except its first members.
     * NULL: this build lacks the library. */
    enum ddp_status (*open)(ddp_image_reader *reader);
    /* After open: image.width and height become 1/factor (2, 4 or 8), rounded up. NULL: there is no
     * faster way to a smaller image. */
    void (*reduce)(ddp_image_reader *reader, int factor);
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

/* The whole image at once, for libraries that decode it so: `values` bytes a pixel, freed with
 * free(). NULL (logged): no memory. */
unsigned char *ddp_image_frame(const ddp_image_reader *reader, size_t values);

extern const struct ddp_image_format ddp_image_png;
extern const struct ddp_image_format ddp_image_jpeg;
extern const struct ddp_image_format ddp_image_webp;
extern const struct ddp_image_format ddp_image_gif;
extern const struct ddp_image_format ddp_image_tiff;
extern const struct ddp_image_format ddp_image_bmp;

#endif

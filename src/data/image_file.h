/* SPDX-License-Identifier: MIT
 *
 * Images in files of the formats in image_file.c, decoded to 8 bits a channel, grey or RGB, and
 * upright as EXIF says. The first bytes say which format it is, not the name. What a file claims is
 * not believed: sizes are bounded, and what is damaged is refused. */
#ifndef DDP_DATA_IMAGE_FILE_H
#define DDP_DATA_IMAGE_FILE_H

#include "data/blob.h"

#define DDP_IMAGE_MAX_SIDE   65535
#define DDP_IMAGE_MAX_PIXELS 178956970 /* the bound of Pillow */

struct ddp_image {
    int width, height;
    int channels; /* 1: grey; 3: RGB */
};

typedef struct ddp_image_reader ddp_image_reader;

/* Reads an image's header.
 *   blob            with its file, outlives the reader
 *   reader [out]    closed with ddp_image_close()
 * DDP_ERR_FORMAT: no such format, damaged, too large or of a kind that is not read. DDP_ERR_IO,
 * DDP_ERR_MEMORY. Messages name the blob. */
enum ddp_status ddp_image_open(ddp_image_reader **reader, const struct ddp_blob *blob);
void ddp_image_close(ddp_image_reader *reader);

const struct ddp_image *ddp_image_info(const ddp_image_reader *reader);

/* Lets a JPEG image be decoded at 1/2, 1/4 or 1/8 of its size, as Pillow's draft() does, which
 * takes less time and gives other pixels. Before it is read.
 *   most  a bound of the factor
 * Returns the factor by which ddp_image_info() is smaller now: 1, 2, 4 or 8. */
int ddp_image_reduce(ddp_image_reader *reader, int most);

/* Decodes the image, once. Grey becomes RGB of three equal values, and RGB the grey of Pillow,
 * where the caller wants other channels than there are.
 *   channels  1 or 3
 *   take      is given each row, from top to bottom: width x channels bytes */
enum ddp_status ddp_image_read(ddp_image_reader *reader, int channels,
                               void (*take)(void *arg, int row, const unsigned char *pixels),
                               void *arg);

#endif

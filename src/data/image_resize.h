/* SPDX-License-Identifier: MIT
 *
 * Images of one size from images of any: scaled, their shape kept, until they just cover that size,
 * then the middle is cut out. To the bit torchvision's Resize and CenterCrop of images of Pillow,
 * bilinear and antialiased: whole numbers, so the same on every machine. */
#ifndef DDP_DATA_IMAGE_RESIZE_H
#define DDP_DATA_IMAGE_RESIZE_H

#include "ddp.h"

/* Which values of a line make each value of the result, in one direction. */
struct ddp_resize_taps {
    int from, to;     /* values of the line before and after scaling */
    int offset;       /* of the first that is wanted, after scaling */
    int count;        /* of those wanted */
    int most;         /* taps that one can have */
    int first, end;   /* what is read of the line */
    int *begin, *tap; /* (count): the first that is read; and how many */
    int32_t *weights; /* (count, most) */
};

struct ddp_resize {
    int channels;
    int left, top; /* of the region in the image */
    struct ddp_resize_taps x, y;
    unsigned char *lines; /* (y.first .. y.end, x.count, channels): scaled in x */
};

/* From images of width x height to out_width x out_height, all at least 1 and at most 65535.
 *   resize [out]  freed with ddp_resize_free(), also after a failure
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_resize_init(struct ddp_resize *resize, int channels, int width, int height,
                                int out_width, int out_height);

/* The same from a region of the image, of that size and place, without keeping its shape: to the
 * bit crop() and resize() of images of Pillow. */
enum ddp_status ddp_resize_init_region(struct ddp_resize *resize, int channels, int left, int top,
                                       int width, int height, int out_width, int out_height);
void ddp_resize_free(struct ddp_resize *resize);

/* Takes a row of the image, width x channels bytes. Each must be given once, in any order.
 *   resize  a struct ddp_resize */
void ddp_resize_row(void *resize, int row, const unsigned char *pixels);

/* After all rows: the result, (channels, out_height, out_width). */
void ddp_resize_finish(const struct ddp_resize *resize, unsigned char *out);

#endif

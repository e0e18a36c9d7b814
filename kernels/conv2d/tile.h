/* SPDX-License-Identifier: MIT
 *
 * How convolution cuts images into tiles, brings a tile into a block of memory that stays in cache
 * where it must be rounded or gated, and which taps of its window each output meets. Private to
 * this folder.
 */
#ifndef DDP_KERNELS_CONV2D_TILE_H
#define DDP_KERNELS_CONV2D_TILE_H

#include "kernels/conv2d/axis.h"
#include "kernels/conv2d/micro.h"

/* Of the block, which lies on the stack of the thread: 160 KiB, with tables of 32 KiB. */
#define DDP_CONV_BLOCK     40960 /* floats */
#define DDP_CONV_POSITIONS 2048

struct ddp_conv_images {
    int64_t batch, channels;
    struct ddp_conv_axis row, column;
    const float *x;    /* (B,row.size,column.size,C) */
    const float *gate; /* of the same shape: x counts as 0 where this is not above 0; or NULL */
    enum ddp_dtype compute; /* x is rounded to it */
};

/* The cut; it depends on the shape alone. A tile is `rows` by `columns` positions of `group`
 * images, for `channels` channels at a time. */
struct ddp_conv_cut {
    int64_t group, groups;
    int64_t rows, row_tiles;
    int64_t columns, column_tiles;
    int64_t channels;
};

/* False when not even one position fits the block. */
bool ddp_conv_cut(struct ddp_conv_cut *cut, const struct ddp_conv_images *images,
                  int64_t group_limit);

/* Where pixels are read as they are: tiles of several small images, which leave fewer positions
 * over. The channels of a tile, which the order of sums follows, stay. */
void ddp_conv_cut_small(struct ddp_conv_cut *cut, const struct ddp_conv_images *images);

struct ddp_conv_tile {
    int64_t image, images;
    int64_t row, rows;       /* positions */
    int64_t column, columns; /* positions */
    int64_t channel, channels;
};

/* Tile `index` of groups x row tiles x column tiles, without its channels. */
struct ddp_conv_tile ddp_conv_tile_at(const struct ddp_conv_cut *cut,
                                      const struct ddp_conv_images *images, int64_t index);

/* Where a tile's pixels lie: in the block, or still in x where they can be read as they are.
 * Padding is nowhere: classes leave out the taps that meet it. */
struct ddp_conv_view {
    const float *x;      /* pixel (row,column) of the tile's first image */
    int64_t row, column; /* of the image */
    int64_t image_step, row_step, pixel_step;
};

struct ddp_conv_view ddp_conv_load(const struct ddp_conv_images *images,
                                   const struct ddp_conv_tile *tile, float *block);

/* Positions of a tile whose windows meet the image with the same taps. */
struct ddp_conv_class {
    int64_t at, count; /* in the tables of offsets */
    struct ddp_conv_runs runs;
    int64_t weight; /* offset of the first tap's values */
};

#define DDP_CONV_CLASSES 36

struct ddp_conv_walk {
    const struct ddp_conv_images *images;
    const struct ddp_conv_tile *tile;
    const struct ddp_conv_view *view;
    int64_t weight_channels;                 /* from tap to tap of the weight, in rows of 16 */
    int64_t out_image, out_row, out_column;  /* steps of the second table */
    int64_t x_offsets[DDP_CONV_POSITIONS];   /* of the first tap's values in the view */
    int64_t out_offsets[DDP_CONV_POSITIONS]; /* from the tile's first position */
    struct ddp_conv_class classes[DDP_CONV_CLASSES];
    int class_count;
    void (*run)(void *arg, const struct ddp_conv_walk *walk);
    void *arg;
};

/* Calls run() with classes until each position of the tile has been in one. Most tiles need one
 * call. */
void ddp_conv_walk(struct ddp_conv_walk *walk);

#endif

/* SPDX-License-Identifier: MIT
 *
 * See tile.h. */
#include "config.h"

#include "kernels/conv2d/tile.h"

#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"

#define SMALL_POSITIONS 256    /* of an image */
#define SMALL_FLOATS    262144 /* of the pixels at the positions of a tile: 1 MiB */

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Pixels that `count` positions reach over. */
static int64_t reach(const struct ddp_conv_axis *axis, int64_t count)
{
    return axis->taps == 0 ? 0 : (count - 1) * axis->stride + (axis->taps - 1) * axis->step + 1;
}

/* A side's parts, made even. */
static int64_t even_part(int64_t size, int64_t part)
{
    return divide_up(size, divide_up(size, part));
}

/* Does the tile fit? Sizes are limited first, so that the products cannot overflow. */
static bool fits(const struct ddp_conv_images *images, const struct ddp_conv_cut *cut)
{
    const int64_t high = reach(&images->row, cut->rows),
                  wide = reach(&images->column, cut->columns);
    if (high > DDP_CONV_BLOCK || wide > DDP_CONV_BLOCK || cut->channels > DDP_CONV_BLOCK)
        return false;
    return high * wide <= DDP_CONV_BLOCK && high * wide * cut->channels <= DDP_CONV_BLOCK &&
           cut->rows * cut->columns <= DDP_CONV_POSITIONS;
}

bool ddp_conv_cut(struct ddp_conv_cut *cut, const struct ddp_conv_images *images,
                  int64_t group_limit)
{
    *cut = (struct ddp_conv_cut){
        .group = 1,
        .rows = 1,
        .columns = at_most(images->column.count, DDP_CONV_PIXELS),
        .channels = images->channels,
    };
    while (!fits(images, cut) && (cut->channels > DDP_CONV_LANES || cut->columns > 1))
        if (cut->channels > DDP_CONV_LANES)
            cut->channels = divide_up(cut->channels, 2);
        else
            cut->columns = divide_up(cut->columns, 2);
    if (!fits(images, cut))
        return false;
    for (; cut->columns < images->column.count && fits(images, cut);)
        cut->columns = at_most(cut->columns * 2, images->column.count);
    while (!fits(images, cut))
        cut->columns = divide_up(cut->columns, 2);
    while (cut->rows < images->row.count && fits(images, cut))
        cut->rows++;
    if (!fits(images, cut))
        cut->rows--;
    cut->columns = even_part(images->column.count, cut->columns);
    cut->rows = even_part(images->row.count, cut->rows);
    if (cut->rows == images->row.count && cut->columns == images->column.count) {
        const int64_t pixels =
            reach(&images->row, cut->rows) * reach(&images->column, cut->columns);
        const int64_t block = pixels * cut->channels;
        cut->group = at_most(block > 0 ? DDP_CONV_BLOCK / block : group_limit,
                             DDP_CONV_POSITIONS / (cut->rows * cut->columns));
        cut->group = at_most(cut->group, group_limit);
    }
    if (cut->group < 1)
        cut->group = 1;
    cut->groups = divide_up(images->batch, cut->group);
    cut->row_tiles = divide_up(images->row.count, cut->rows);
    cut->column_tiles = divide_up(images->column.count, cut->columns);
    return true;
}

void ddp_conv_cut_small(struct ddp_conv_cut *cut, const struct ddp_conv_images *images)
{
    const int64_t positions = images->row.count * images->column.count;
    if (images->gate || images->compute != DDP_F32 || positions > SMALL_POSITIONS ||
        cut->channels > SMALL_FLOATS / positions)
        return;
    cut->rows = images->row.count;
    cut->columns = images->column.count;
    cut->row_tiles = cut->column_tiles = 1;
    cut->group =
        at_most(SMALL_FLOATS / (positions * cut->channels), DDP_CONV_POSITIONS / positions);
    cut->group = even_part(images->batch, cut->group);
    cut->groups = divide_up(images->batch, cut->group);
}

struct ddp_conv_tile ddp_conv_tile_at(const struct ddp_conv_cut *cut,
                                      const struct ddp_conv_images *images, int64_t index)
{
    struct ddp_conv_tile tile = {
        .image = index / (cut->row_tiles * cut->column_tiles) * cut->group,
        .row = index / cut->column_tiles % cut->row_tiles * cut->rows,
        .column = index % cut->column_tiles * cut->columns,
    };
    tile.images = at_most(cut->group, images->batch - tile.image);
    tile.rows = at_most(cut->rows, images->row.count - tile.row);
    tile.columns = at_most(cut->columns, images->column.count - tile.column);
    return tile;
}

/* n values of a pixel, or of pixels side by side. */
DDP_MULTIVERSION
static void copy(float *restrict to, const float *restrict from, const float *restrict gate,
                 enum ddp_dtype compute, int64_t n)
{
    if (gate)
        for (int64_t i = 0; i < n; i++)
            to[i] = gate[i] > 0 ? from[i] : 0;
    else
        memcpy(to, from, (size_t)n * sizeof *to);
    if (compute == DDP_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = ddp_operand(to[i], DDP_BF16);
    else if (compute == DDP_F16)
        for (int64_t i = 0; i < n; i++)
            to[i] = ddp_operand(to[i], DDP_F16);
}

/* The pixels of the image that `count` positions from `first` on meet. */
static int64_t pixels_met(const struct ddp_conv_axis *axis, int64_t first, int64_t count,
                          int64_t *begin)
{
    const int64_t at = axis->origin + first * axis->stride;
    const int64_t end = at_most(at + reach(axis, count), axis->size);
    *begin = at < 0 ? 0 : at;
    return end > *begin ? end - *begin : 0;
}

struct ddp_conv_view ddp_conv_load(const struct ddp_conv_images *images,
                                   const struct ddp_conv_tile *tile, float *block)
{
    struct ddp_conv_view view = {.x = block};
    const int64_t high = pixels_met(&images->row, tile->row, tile->rows, &view.row);
    const int64_t wide = pixels_met(&images->column, tile->column, tile->columns, &view.column);
    const int64_t line = images->column.size * images->channels;
    if (high == 0 || wide == 0)
        return view;
    const int64_t first = (tile->image * images->row.size + view.row) * line +
                          view.column * images->channels + tile->channel;
    if (!images->gate && images->compute == DDP_F32) {
        view.x = images->x + first;
        view.image_step = images->row.size * line;
        view.row_step = line;
        view.pixel_step = images->channels;
        return view;
    }
    view.pixel_step = tile->channels;
    view.row_step = wide * view.pixel_step;
    view.image_step = high * view.row_step;
    const bool whole = tile->channels == images->channels;
    const int64_t pieces = whole ? 1 : wide, length = whole ? view.row_step : tile->channels;
    for (int64_t image = 0; image < tile->images; image++)
        for (int64_t row = 0; row < high; row++)
            for (int64_t piece = 0; piece < pieces; piece++) {
                const int64_t at =
                    first + (image * images->row.size + row) * line + piece * images->channels;
                copy(block + image * view.image_step + row * view.row_step +
                         piece * view.pixel_step,
                     images->x + at, images->gate ? images->gate + at : NULL, images->compute,
                     length);
            }
    return view;
}

/* The taps [first, first + count) with which a position meets the image. */
struct taps {
    int64_t first, count;
};

static struct taps taps_at(const struct ddp_conv_axis *axis, int64_t position)
{
    const int64_t pixel = axis->origin + position * axis->stride;
    struct taps taps = {.first = pixel < 0 ? divide_up(-pixel, axis->step) : 0};
    const int64_t end =
        pixel < axis->size ? at_most(divide_up(axis->size - pixel, axis->step), axis->taps) : 0;
    taps.count = end > taps.first ? end - taps.first : 0;
    if (taps.count == 0)
        taps.first = 0;
    return taps;
}

/* How many positions from `position` on have its taps. */
static int64_t span_at(const struct ddp_conv_axis *axis, int64_t position, int64_t end)
{
    const struct taps taps = taps_at(axis, position);
    int64_t next = position + 1;
    for (; next < end; next++) {
        const struct taps other = taps_at(axis, next);
        if (other.first != taps.first || other.count != taps.count)
            break;
    }
    return next - position;
}

/* Offsets of the positions of a class: images x rows x columns. */
static int64_t fill_offsets(struct ddp_conv_walk *walk, int64_t at, int64_t first,
                            const int64_t rows[2], const int64_t columns[2])
{
    const struct ddp_conv_view *view = walk->view;
    const struct ddp_conv_tile *tile = walk->tile;
    const int64_t row_step = walk->images->row.stride * view->row_step;
    const int64_t column_step = walk->images->column.stride * view->pixel_step;
    for (int64_t image = 0; image < tile->images; image++)
        for (int64_t row = 0; row < rows[1]; row++) {
            const int64_t x = first + image * view->image_step + row * row_step;
            const int64_t out = image * walk->out_image +
                                (rows[0] - tile->row + row) * walk->out_row +
                                (columns[0] - tile->column) * walk->out_column;
            for (int64_t column = 0; column < columns[1]; column++, at++) {
                walk->x_offsets[at] = x + column * column_step;
                walk->out_offsets[at] = out + column * walk->out_column;
            }
        }
    return at;
}

static void add_class(struct ddp_conv_walk *walk, int64_t at, const int64_t rows[2],
                      const int64_t columns[2])
{
    const struct ddp_conv_images *images = walk->images;
    const struct ddp_conv_axis *down = &images->row, *across = &images->column;
    const struct ddp_conv_view *view = walk->view;
    const struct taps row = taps_at(down, rows[0]), column = taps_at(across, columns[0]);
    const int64_t channels = walk->tile->channels;
    const int64_t tap = walk->weight_channels * DDP_CONV_LANES;
    const bool merged =
        across->step == 1 && view->pixel_step == channels && walk->weight_channels == channels;
    const bool empty = row.count == 0 || column.count == 0;
    const int64_t pixel_row =
        down->origin + rows[0] * down->stride + row.first * down->step - view->row;
    const int64_t pixel_column =
        across->origin + columns[0] * across->stride + column.first * across->step - view->column;
    const int64_t first = empty ? 0 : pixel_row * view->row_step + pixel_column * view->pixel_step;
    const int64_t end = fill_offsets(walk, at, first, rows, columns);
    walk->classes[walk->class_count++] = (struct ddp_conv_class){
        .at = at,
        .count = end - at,
        .runs = {.outer = empty ? 0 : row.count,
                 .outer_step = down->step * view->row_step,
                 .outer_weight = across->taps * tap,
                 .inner = merged ? 1 : column.count,
                 .inner_step = across->step * view->pixel_step,
                 .inner_weight = tap,
                 .length = merged ? column.count * channels : channels},
        .weight = (row.first * across->taps + column.first) * tap,
    };
}

void ddp_conv_walk(struct ddp_conv_walk *walk)
{
    const struct ddp_conv_tile *tile = walk->tile;
    const int64_t row_end = tile->row + tile->rows, column_end = tile->column + tile->columns;
    int64_t at = 0;
    walk->class_count = 0;
    for (int64_t row = tile->row; row < row_end;) {
        const int64_t rows = span_at(&walk->images->row, row, row_end);
        for (int64_t column = tile->column; column < column_end;) {
            const int64_t columns = span_at(&walk->images->column, column, column_end);
            add_class(walk, at, (const int64_t[]){row, rows}, (const int64_t[]){column, columns});
            at += tile->images * rows * columns;
            column += columns;
            if (walk->class_count == DDP_CONV_CLASSES) {
                walk->run(walk->arg, walk);
                walk->class_count = 0;
                at = 0;
            }
        }
        row += rows;
    }
    if (walk->class_count > 0)
        walk->run(walk->arg, walk);
}

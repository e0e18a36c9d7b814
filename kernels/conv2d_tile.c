/* SPDX-License-Identifier: MIT
 *
 * See conv2d_tile.h. */
#include "config.h"

#include "kernels/conv2d_tile.h"

#include "kernels/bf16.h"
#include "kernels/cpu.h"

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
    cut->channel_blocks = divide_up(images->channels, cut->channels);
    return true;
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
                 bool round, int64_t n)
{
    if (gate)
        for (int64_t i = 0; i < n; i++)
            to[i] = gate[i] > 0 ? from[i] : 0;
    else
        memcpy(to, from, (size_t)n * sizeof *to);
    if (round)
        for (int64_t i = 0; i < n; i++)
            to[i] = ddp_bf16_to_f32(ddp_bf16_of(to[i]));
}

/* One row of pixels [first, first + count), of which those outside the image are zeros. `from` and
 * `gate` point to pixel 0 of the image's row; they are NULL for a row outside. */
static void load_row(float *to, const struct ddp_conv_images *images,
                     const struct ddp_conv_tile *tile, int64_t offset, bool inside, int64_t first,
                     int64_t count)
{
    const int64_t channels = tile->channels, size = images->column.size;
    int64_t begin = first < 0 ? at_most(-first, count) : 0;
    int64_t end = size - first < count ? size - first : count;
    if (!inside || end <= begin)
        begin = end = 0;
    memset(to, 0, (size_t)(begin * channels) * sizeof *to);
    memset(to + end * channels, 0, (size_t)((count - end) * channels) * sizeof *to);
    const bool whole = channels == images->channels;
    const int64_t pieces = whole ? begin < end : end - begin;
    const int64_t length = whole ? (end - begin) * channels : channels;
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = offset + (first + begin + i) * images->channels + tile->channel;
        copy(to + (begin + i) * channels, images->x + at, images->gate ? images->gate + at : NULL,
             images->round_bf16, length);
    }
}

struct ddp_conv_view ddp_conv_load(const struct ddp_conv_images *images,
                                   const struct ddp_conv_tile *tile, float *block)
{
    const struct ddp_conv_axis *down = &images->row, *across = &images->column;
    const int64_t row = down->origin + tile->row * down->stride;
    const int64_t column = across->origin + tile->column * across->stride;
    const int64_t high = reach(down, tile->rows), wide = reach(across, tile->columns);
    const int64_t line = across->size * images->channels;
    if (high == 0 || wide == 0)
        return (struct ddp_conv_view){.x = block};
    if (!images->gate && !images->round_bf16 && row >= 0 && row + high <= down->size &&
        column >= 0 && column + wide <= across->size)
        return (struct ddp_conv_view){
            .x = images->x + (tile->image * down->size + row) * line + column * images->channels +
                 tile->channel,
            .image_step = down->size * line,
            .row_step = line,
            .pixel_step = images->channels,
        };
    for (int64_t image = 0; image < tile->images; image++)
        for (int64_t r = row; r < row + high; r++) {
            const int64_t offset = ((tile->image + image) * down->size + r) * line;
            const int64_t at = (image * high + r - row) * wide * tile->channels;
            load_row(block + at, images, tile, offset, r >= 0 && r < down->size, column, wide);
        }
    return (struct ddp_conv_view){
        .x = block,
        .image_step = high * wide * tile->channels,
        .row_step = wide * tile->channels,
        .pixel_step = tile->channels,
    };
}

struct ddp_conv_runs ddp_conv_runs(const struct ddp_conv_images *images,
                                   const struct ddp_conv_view *view, int64_t channels, bool merge)
{
    const bool merged = merge && view->pixel_step == channels && images->column.step == 1;
    return (struct ddp_conv_runs){
        .outer = images->column.taps == 0 ? 0 : images->row.taps,
        .outer_step = images->row.step * view->row_step,
        .inner = merged ? 1 : images->column.taps,
        .inner_step = images->column.step * view->pixel_step,
        .length = merged ? images->column.taps * channels : channels,
    };
}

int64_t ddp_conv_offsets(int64_t *offsets, const struct ddp_conv_tile *tile, int64_t image_step,
                         int64_t row_step, int64_t column_step)
{
    int64_t count = 0;
    for (int64_t image = 0; image < tile->images; image++)
        for (int64_t row = 0; row < tile->rows; row++)
            for (int64_t column = 0; column < tile->columns; column++)
                offsets[count++] = image * image_step + row * row_step + column * column_step;
    return count;
}

/* SPDX-License-Identifier: MIT
 *
 * See conv2d_correlate.h. A task is a tile of positions for a range of output channels; the weight
 * is packed first, so that sixteen output channels lie side by side. */
#include "config.h"

#include "kernels/conv2d_correlate.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/bf16.h"
#include "kernels/cpu.h"

#define TASKS_WANTED 16

struct work {
    const struct ddp_correlate *args;
    const struct ddp_conv_micro *micro;
    struct ddp_conv_cut cut;
    int64_t vectors;      /* of sixteen output channels */
    int64_t task_vectors; /* of a task */
    int64_t ranges;       /* tasks of one tile */
};

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

size_t ddp_correlate_packed(int64_t in, int64_t out, int64_t row_taps, int64_t column_taps)
{
    size_t count = (size_t)divide_up(out, DDP_CONV_LANES) * DDP_CONV_LANES;
    if (!ddp_size_multiply(count, (size_t)in, &count) ||
        !ddp_size_multiply(count, (size_t)row_taps, &count) ||
        !ddp_size_multiply(count, (size_t)column_taps, &count) || count > SIZE_MAX / 16)
        return 0;
    return count;
}

/* From block of channels to block, and from vector to vector. */
static int64_t taps_of(const struct ddp_correlate *args)
{
    return args->images.row.taps * args->images.column.taps;
}

static float *packed_at(const struct work *work, int64_t channel, int64_t channels, int64_t vector)
{
    const int64_t taps = taps_of(work->args) * DDP_CONV_LANES;
    return work->args->packed + taps * (channel * work->vectors + channels * vector);
}

static void pack_task(void *arg, size_t index)
{
    const struct work *work = arg;
    const struct ddp_correlate *args = work->args;
    const struct ddp_conv_images *images = &args->images;
    const int64_t vector = (int64_t)index, first = vector * DDP_CONV_LANES;
    const int64_t lanes = at_most(args->out - first, DDP_CONV_LANES);
    for (int64_t channel = 0; channel < images->channels; channel += work->cut.channels) {
        const int64_t channels = at_most(work->cut.channels, images->channels - channel);
        float *to = packed_at(work, channel, channels, vector);
        for (int64_t row = 0; row < images->row.taps; row++)
            for (int64_t column = 0; column < images->column.taps; column++)
                for (int64_t c = channel; c < channel + channels; c++, to += DDP_CONV_LANES) {
                    const float *from = args->weight + first * args->weight_out +
                                        c * args->weight_in + row * args->weight_row +
                                        column * args->weight_column;
                    for (int64_t lane = 0; lane < DDP_CONV_LANES; lane++) {
                        float value = lane < lanes ? from[lane * args->weight_out] : 0;
                        to[lane] = images->round_bf16 ? ddp_bf16_to_f32(ddp_bf16_of(value)) : value;
                    }
                }
    }
}

/* All positions of a tile, vectors [begin, end) of the output. */
static void tile_strips(const struct work *work, struct ddp_conv_strip *strip, int64_t count,
                        int64_t begin, int64_t end, int64_t channel, int64_t channels)
{
    const struct ddp_correlate *args = work->args;
    const int64_t *x_offsets = strip->x_offsets, *y_offsets = strip->y_offsets;
    float *y = strip->y;
    for (int64_t v = begin; v < end;) {
        const int64_t vectors = at_most(work->micro->vectors, end - v);
        strip->weight = packed_at(work, channel, channels, v);
        strip->y = y + v * DDP_CONV_LANES;
        strip->lanes = at_most(args->out - v * DDP_CONV_LANES, vectors * DDP_CONV_LANES);
        strip->bias = args->bias && channel + channels == args->images.channels
                          ? args->bias + v * DDP_CONV_LANES
                          : NULL;
        for (int64_t at = 0; at < count;) {
            const int64_t pixels = at_most(count - at, work->micro->pixels);
            strip->x_offsets = x_offsets + at;
            strip->y_offsets = y_offsets + at;
            work->micro->strip(strip, pixels, vectors);
            at += pixels;
        }
        v += vectors;
    }
    strip->x_offsets = x_offsets;
    strip->y_offsets = y_offsets;
    strip->y = y;
}

static void tile_task(void *arg, size_t index)
{
    const struct work *work = arg;
    const struct ddp_correlate *args = work->args;
    const struct ddp_conv_images *images = &args->images;
    const int64_t begin = (int64_t)index % work->ranges * work->task_vectors;
    const int64_t end = at_most(begin + work->task_vectors, work->vectors);
    struct ddp_conv_tile tile = ddp_conv_tile_at(&work->cut, images, (int64_t)index / work->ranges);
    int64_t x_offsets[DDP_CONV_POSITIONS], y_offsets[DDP_CONV_POSITIONS];
    _Alignas(64) float block[DDP_CONV_BLOCK];
    ddp_conv_offsets(y_offsets, &tile, args->y_image, args->y_row, args->y_column);
    for (int64_t channel = 0; channel < images->channels; channel += tile.channels) {
        tile.channel = channel;
        tile.channels = at_most(work->cut.channels, images->channels - channel);
        const struct ddp_conv_view view = ddp_conv_load(images, &tile, block);
        const int64_t count =
            ddp_conv_offsets(x_offsets, &tile, view.image_step, images->row.stride * view.row_step,
                             images->column.stride * view.pixel_step);
        const bool last = channel + tile.channels == images->channels;
        struct ddp_conv_strip strip = {
            .runs = ddp_conv_runs(images, &view, tile.channels, true),
            .x = view.x,
            .x_offsets = x_offsets,
            .weight_step = taps_of(args) * tile.channels * DDP_CONV_LANES,
            .y = args->y + tile.image * args->y_image + tile.row * args->y_row +
                 tile.column * args->y_column,
            .y_offsets = y_offsets,
            .add = args->add || channel > 0,
            .relu = args->relu && last,
        };
        tile_strips(work, &strip, count, begin, end, channel, tile.channels);
    }
}

enum ddp_status ddp_correlate(const struct ddp_correlate *args, void *stream)
{
    const struct ddp_conv_images *images = &args->images;
    struct work work = {
        .args = args,
        .micro = ddp_conv_micro(),
        .vectors = divide_up(args->out, DDP_CONV_LANES),
    };
    if (images->batch == 0 || images->row.count == 0 || images->column.count == 0)
        return DDP_OK;
    if (!ddp_conv_cut(&work.cut, images, divide_up(images->batch, TASKS_WANTED)))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "conv2d: a window of %lld x %lld taps is too large",
                        (long long)images->row.taps, (long long)images->column.taps);
    const int64_t tiles = work.cut.groups * work.cut.row_tiles * work.cut.column_tiles;
    const int64_t pairs = divide_up(work.vectors, 2);
    const int64_t ranges = at_most(divide_up(TASKS_WANTED, tiles), pairs);
    work.task_vectors = divide_up(pairs, ranges) * 2;
    work.ranges = divide_up(work.vectors, work.task_vectors);
    if (taps_of(args) > 0)
        ddp_pool_run(ddp_stream_pool(stream), (size_t)work.vectors, pack_task, &work);
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(tiles * work.ranges), tile_task, &work);
    return DDP_OK;
}

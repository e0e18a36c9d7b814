/* SPDX-License-Identifier: MIT
 *
 * See correlate.h. A task is a tile of positions for a range of output channels; the weight
 * is packed first, so that sixteen output channels lie side by side. */
#include "config.h"

#include "kernels/conv2d/correlate.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"

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

/* The weight of sixteen outputs, or the `lanes` that there are, from some channels. */
static void pack_block(const struct ddp_correlate *args, int64_t first, int64_t lanes,
                       int64_t channel, int64_t channels, float *to, int64_t tap_step)
{
    const struct ddp_conv_images *images = &args->images;
    for (int64_t row = 0; row < images->row.taps; row++)
        for (int64_t column = 0; column < images->column.taps; column++, to += tap_step) {
            const float *from = args->weight + first * args->weight_out +
                                channel * args->weight_in + row * args->weight_row +
                                column * args->weight_column;
            if (lanes < DDP_CONV_LANES)
                memset(to, 0, (size_t)(channels * DDP_CONV_LANES) * sizeof *to);
            if (args->weight_out == 1)
                for (int64_t c = 0; c < channels; c++)
                    memcpy(to + c * DDP_CONV_LANES, from + c * args->weight_in,
                           (size_t)lanes * sizeof *to);
            else
                for (int64_t lane = 0; lane < lanes; lane++)
                    for (int64_t c = 0; c < channels; c++)
                        to[c * DDP_CONV_LANES + lane] =
                            from[lane * args->weight_out + c * args->weight_in];
            for (int64_t i = 0; images->compute != DDP_F32 && i < channels * DDP_CONV_LANES; i++)
                to[i] = ddp_operand(to[i], images->compute);
        }
}

static void pack_task(void *arg, size_t index)
{
    const struct work *work = arg;
    const struct ddp_correlate *args = work->args;
    const int64_t vector = (int64_t)index, first = vector * DDP_CONV_LANES;
    const int64_t lanes = at_most(args->out - first, DDP_CONV_LANES);
    for (int64_t channel = 0, channels; channel < args->images.channels; channel += channels) {
        channels = at_most(work->cut.channels, args->images.channels - channel);
        float *to = packed_at(work, channel, channels, vector);
        for (int64_t c = 0; c < channels; c += DDP_CONV_LANES)
            pack_block(args, first, lanes, channel + c, at_most(channels - c, DDP_CONV_LANES),
                       to + c * DDP_CONV_LANES, channels * DDP_CONV_LANES);
    }
}

/* What a tile's task hands to its classes. */
struct tile {
    const struct work *work;
    int64_t begin, end;        /* vectors of the output */
    int64_t channel, channels; /* of the input */
    struct ddp_conv_strip strip;
};

static void run_classes(void *arg, const struct ddp_conv_walk *walk)
{
    const struct tile *tile = arg;
    const struct work *work = tile->work;
    const struct ddp_correlate *args = work->args;
    const bool last = tile->channel + tile->channels == args->images.channels;
    struct ddp_conv_strip strip = tile->strip;
    for (int64_t v = tile->begin, vectors; v < tile->end; v += vectors) {
        vectors = at_most(work->micro->vectors, tile->end - v);
        strip.y = tile->strip.y + v * DDP_CONV_LANES;
        strip.lanes = at_most(args->out - v * DDP_CONV_LANES, vectors * DDP_CONV_LANES);
        strip.bias = args->bias && last ? args->bias + v * DDP_CONV_LANES : NULL;
        const float *weight = packed_at(work, tile->channel, tile->channels, v);
        for (int i = 0; i < walk->class_count; i++) {
            const struct ddp_conv_class *class = &walk->classes[i];
            strip.runs = class->runs;
            strip.weight = weight + class->weight;
            for (int64_t at = 0, pixels; at < class->count; at += pixels) {
                pixels = at_most(class->count - at, work->micro->pixels);
                strip.x_offsets = walk->x_offsets + class->at + at;
                strip.y_offsets = walk->out_offsets + class->at + at;
                work->micro->strip(&strip, pixels, vectors);
            }
        }
    }
}

static void tile_task(void *arg, size_t index)
{
    const struct work *work = arg;
    const struct ddp_correlate *args = work->args;
    const struct ddp_conv_images *images = &args->images;
    struct ddp_conv_tile at = ddp_conv_tile_at(&work->cut, images, (int64_t)index / work->ranges);
    struct tile tile = {.work = work, .begin = (int64_t)index % work->ranges * work->task_vectors};
    tile.end = at_most(tile.begin + work->task_vectors, work->vectors);
    _Alignas(64) float block[DDP_CONV_BLOCK];
    struct ddp_conv_view view;
    struct ddp_conv_walk walk;
    walk.images = images;
    walk.tile = &at;
    walk.view = &view;
    walk.out_image = args->y_image;
    walk.out_row = args->y_row;
    walk.out_column = args->y_column;
    walk.run = run_classes;
    walk.arg = &tile;
    for (int64_t channel = 0; channel < images->channels; channel += at.channels) {
        at.channel = tile.channel = channel;
        at.channels = tile.channels = at_most(work->cut.channels, images->channels - channel);
        view = ddp_conv_load(images, &at, block);
        walk.weight_channels = at.channels;
        tile.strip = (struct ddp_conv_strip){
            .x = view.x,
            .weight_step = taps_of(args) * at.channels * DDP_CONV_LANES,
            .y = args->y + at.image * args->y_image + at.row * args->y_row +
                 at.column * args->y_column,
            .add = args->add || channel > 0,
            .relu = args->relu && channel + at.channels == images->channels,
        };
        ddp_conv_walk(&walk);
    }
}

enum ddp_status ddp_correlate(const struct ddp_correlate *args, void *stream)
{
    const struct ddp_conv_images *images = &args->images;
    struct work work = {
        .args = args,
        .micro = ddp_conv_micro(ddp_cpu_isa()),
        .vectors = divide_up(args->out, DDP_CONV_LANES),
    };
    if (images->batch == 0 || images->row.count == 0 || images->column.count == 0)
        return DDP_OK;
    if (!ddp_conv_cut(&work.cut, images, divide_up(images->batch, TASKS_WANTED)))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "conv2d: a window of %lld x %lld taps is too large",
                        (long long)images->row.taps, (long long)images->column.taps);
    ddp_conv_cut_small(&work.cut, images);
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

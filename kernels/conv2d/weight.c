/* SPDX-License-Identifier: MIT
 *
 * See weight.h. The batch is cut into at most 16 chunks; each chunk adds into sums of its
 * own, and the chunks' sums are added from the first to the last. A task is a chunk and a range of
 * output channels; or, where a large weight has channels enough to occupy the threads, two vectors
 * of them for all chunks, whose sums then stay in the cache. Sums lie in memory as vectors of
 * sixteen output channels, (vector, KH, KW, C, 16). */
#include "config.h"

#include "kernels/conv2d/weight.h"

#include "core/log.h"
#include "kernels/bf16.h"
#include "kernels/conv2d/tile.h"
#include "kernels/cpu/cpu.h"

#define CHUNKS       16
#define CHUNK_FLOATS 8388608 /* of all chunks' sums together: 32 MiB */
#define PIECE        512     /* positions of a chain of products, at most */
#define LARGE_FLOATS 524288  /* of a weight */

struct work {
    const struct ddp_conv2d_backward *args;
    const struct ddp_conv_micro *micro;
    struct ddp_conv_images images; /* x */
    struct ddp_conv_cut cut;       /* of one chunk */
    int64_t vectors;               /* of sixteen output channels */
    int64_t task_vectors, ranges;
    int64_t chunk, chunks; /* images of a chunk */
    int64_t vector_floats; /* of one vector's sums */
    float *sums;           /* (chunks, vectors, KH, KW, C, 16) */
    float *bias;           /* (chunks, vectors, 16) */
};

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

struct ddp_conv_images ddp_conv2d_images(const struct ddp_conv2d_shape *shape)
{
    return (struct ddp_conv_images){
        .batch = shape->batch,
        .channels = shape->in,
        .row = ddp_conv_axis_of(shape, shape->height, shape->kernel_height),
        .column = ddp_conv_axis_of(shape, shape->width, shape->kernel_width),
    };
}

/* Everything that follows from the shape. */
static struct work work_of(const struct ddp_conv2d_shape *shape)
{
    struct work work = {
        .images = ddp_conv2d_images(shape),
        .vectors = divide_up(shape->out, DDP_CONV_LANES),
        .vector_floats = shape->kernel_height * shape->kernel_width * shape->in * DDP_CONV_LANES,
    };
    int64_t chunks = at_most(shape->batch, CHUNKS);
    while (chunks > 1 && (double)chunks * (double)work.vectors * (double)work.vector_floats >
                             (double)CHUNK_FLOATS)
        chunks /= 2;
    work.chunk = chunks > 0 ? divide_up(shape->batch, chunks) : 1;
    work.chunks = divide_up(shape->batch, work.chunk);
    const int64_t pairs = divide_up(work.vectors, 2);
    work.ranges = at_most(divide_up(CHUNKS, work.chunks > 0 ? work.chunks : 1), pairs);
    work.task_vectors = divide_up(pairs, work.ranges) * 2;
    work.ranges = divide_up(work.vectors, work.task_vectors);
    return work;
}

size_t ddp_conv2d_weight_scratch_bytes(const struct ddp_conv2d_shape *shape)
{
    const struct work work = work_of(shape);
    return (size_t)(work.chunks * work.vectors * (work.vector_floats + DDP_CONV_LANES)) *
           sizeof(float);
}

/* dy of some positions as vectors without a ragged end, gated and rounded; and its sums. Returns
 * whether the block is to be read instead of dy. */
struct gradients {
    const float *dy, *y; /* y: the gate, or NULL */
    int64_t step;        /* from position to position: O */
    int64_t lanes;       /* that exist, of `width` */
    int64_t width;
    enum ddp_dtype compute;
};

DDP_MULTIVERSION
static void load_gradients(const struct gradients *gradients, const int64_t *offsets, int64_t count,
                           float *restrict block, float *restrict bias)
{
    const int64_t lanes = gradients->lanes, width = gradients->width;
    for (int64_t p = 0; p < count; p++) {
        const float *restrict dy = gradients->dy + offsets[p];
        float *restrict to = block + p * width;
        memset(to + lanes, 0, (size_t)(width - lanes) * sizeof *to);
        if (gradients->y) {
            const float *restrict y = gradients->y + offsets[p];
            for (int64_t l = 0; l < lanes; l++)
                to[l] = y[l] > 0 ? dy[l] : 0;
        } else {
            memcpy(to, dy, (size_t)lanes * sizeof *to);
        }
        for (int64_t l = 0; bias && l < lanes; l++)
            bias[l] += to[l];
        if (gradients->compute != DDP_F32)
            for (int64_t l = 0; l < lanes; l++)
                to[l] = ddp_operand(to[l], gradients->compute);
    }
}

struct tile {
    const struct work *work;
    struct ddp_conv_tile at;
    struct ddp_conv_view view;
    int64_t begin, end;  /* vectors of the output */
    const float *dy, *y; /* of the tile's first position */
    float *sums, *bias;  /* of the chunk */
};

/* Some positions of a class, for one or two vectors of outputs whose gradients lie at `outer`. */
static void add_products(const struct tile *tile, const struct ddp_conv_class *class,
                         struct ddp_conv_outer outer, int64_t vector, int64_t vectors)
{
    const struct work *work = tile->work;
    float *sums = tile->sums + vector * work->vector_floats + class->weight +
                  tile->at.channel * DDP_CONV_LANES;
    outer.dweight_step = work->vector_floats;
    outer.add = true;
    for (int64_t o = 0; o < class->runs.outer; o++)
        for (int64_t i = 0; i < class->runs.inner; i++) {
            outer.x = tile->view.x + o * class->runs.outer_step + i * class->runs.inner_step;
            outer.dweight = sums + o * class->runs.outer_weight + i * class->runs.inner_weight;
            work->micro->outer(&outer, class->runs.length, vectors);
        }
}

/* The positions go in pieces whose gradients fit a block on the stack. */
static void class_vectors(const struct tile *tile, const struct ddp_conv_walk *walk,
                          const struct ddp_conv_class *class, int64_t vector, int64_t vectors)
{
    const struct ddp_conv2d_backward *args = tile->work->args;
    const int64_t first = vector * DDP_CONV_LANES, width = vectors * DDP_CONV_LANES;
    const struct gradients gradients = {
        .dy = tile->dy + first,
        .y = args->activation == DDP_ACTIVATION_RELU ? tile->y + first : NULL,
        .lanes = at_most(args->shape.out - first, width),
        .width = width,
        .compute = args->compute,
    };
    const bool sum_bias = args->dbias && tile->at.channel == 0;
    const bool direct = !gradients.y && args->compute == DDP_F32 && gradients.lanes == width;
    _Alignas(64) float block[PIECE * 2 * DDP_CONV_LANES];
    int64_t offsets[PIECE];
    float bias[2 * DDP_CONV_LANES] = {0};
    for (int64_t at = 0, count; at < class->count; at += count) {
        count = at_most(PIECE, class->count - at);
        struct ddp_conv_outer outer = {
            .x_offsets = walk->x_offsets + class->at + at,
            .dy = gradients.dy,
            .dy_offsets = walk->out_offsets + class->at + at,
            .pixels = count,
        };
        if (!direct || sum_bias)
            load_gradients(&gradients, outer.dy_offsets, count, block, sum_bias ? bias : NULL);
        if (!direct) {
            for (int64_t p = 0; p < count; p++)
                offsets[p] = p * width;
            outer.dy = block;
            outer.dy_offsets = offsets;
        }
        if (args->dweight)
            add_products(tile, class, outer, vector, vectors);
    }
    for (int64_t l = 0; sum_bias && l < width; l++)
        tile->bias[first + l] += bias[l];
}

static void run_classes(void *arg, const struct ddp_conv_walk *walk)
{
    const struct tile *tile = arg;
    for (int64_t vector = tile->begin, vectors; vector < tile->end; vector += vectors) {
        vectors = at_most(tile->work->micro->vectors, tile->end - vector);
        for (int i = 0; i < walk->class_count; i++)
            class_vectors(tile, walk, &walk->classes[i], vector, vectors);
    }
}

static void tile_run(struct tile *tile, const struct ddp_conv_images *images)
{
    const struct work *work = tile->work;
    _Alignas(64) float block[DDP_CONV_BLOCK];
    struct ddp_conv_walk walk;
    walk.images = images;
    walk.tile = &tile->at;
    walk.view = &tile->view;
    walk.weight_channels = images->channels;
    walk.out_column = work->args->shape.out;
    walk.out_row = images->column.count * walk.out_column;
    walk.out_image = images->row.count * walk.out_row;
    walk.run = run_classes;
    walk.arg = tile;
    for (int64_t channel = 0; channel < images->channels; channel += tile->at.channels) {
        tile->at.channel = channel;
        tile->at.channels = at_most(work->cut.channels, images->channels - channel);
        tile->view = (struct ddp_conv_view){.x = block};
        if (work->args->dweight)
            tile->view = ddp_conv_load(images, &tile->at, block);
        ddp_conv_walk(&walk);
    }
}

/* The sums of a chunk for vectors [begin, end), into those at `slot`. */
static void sum_chunk(const struct work *work, int64_t chunk, int64_t begin, int64_t end,
                      int64_t slot)
{
    const struct ddp_conv2d_backward *args = work->args;
    const float *x = args->x;
    const float *y = args->y;
    const float *dy = args->dy;
    struct ddp_conv_images images = work->images;
    const int64_t image = chunk * work->chunk;
    images.batch = at_most(work->chunk, images.batch - image);
    images.x = x ? x + image * images.row.size * images.column.size * images.channels : NULL;
    const int64_t out = args->shape.out, line = images.column.count * out;
    struct tile tile = {
        .work = work,
        .begin = begin,
        .end = end,
        .sums = work->sums + slot * work->vectors * work->vector_floats,
        .bias = work->bias + slot * work->vectors * DDP_CONV_LANES,
    };
    memset(tile.sums + begin * work->vector_floats, 0,
           (size_t)((end - begin) * work->vector_floats) * sizeof(float));
    memset(tile.bias + begin * DDP_CONV_LANES, 0,
           (size_t)((end - begin) * DDP_CONV_LANES) * sizeof(float));
    const int64_t groups = divide_up(images.batch, work->cut.group);
    const int64_t tiles = groups * work->cut.row_tiles * work->cut.column_tiles;
    for (int64_t i = 0; i < tiles; i++) {
        tile.at = ddp_conv_tile_at(&work->cut, &images, i);
        const int64_t first = ((image + tile.at.image) * images.row.count + tile.at.row) * line +
                              tile.at.column * out;
        tile.dy = dy + first;
        tile.y = y ? y + first : NULL;
        tile_run(&tile, &images);
    }
}

DDP_MULTIVERSION
static void add_floats(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Brings sums of sixteen output channels by sixteen values of one tap into the weight's order. */
static void put_block(const struct work *work, const float *sums, int64_t values, int64_t lanes,
                      float *to)
{
    const int64_t taps = work->args->shape.kernel_height * work->args->shape.kernel_width;
    const bool add = work->args->accumulate_dweight;
    for (int64_t l = 0; l < lanes; l++, to += work->args->shape.in * taps)
        for (int64_t i = 0; i < values; i++) {
            const float sum = sums[i * DDP_CONV_LANES + l];
            to[i * taps] = add ? to[i * taps] + sum : sum;
        }
}

/* Adds the sums of some chunks, for one vector of outputs, and brings them into the weight's
 * order. */
static void finish(const struct work *work, int64_t vector, int64_t chunks)
{
    const struct ddp_conv2d_backward *args = work->args;
    const int64_t first = vector * DDP_CONV_LANES;
    const int64_t lanes = at_most(args->shape.out - first, DDP_CONV_LANES);
    const int64_t channels = args->shape.in;
    const int64_t taps = args->shape.kernel_height * args->shape.kernel_width;
    const int64_t step = work->vectors * work->vector_floats;
    for (int64_t c = 0, some; args->dweight && c < channels; c += some) {
        some = at_most(channels - c, DDP_CONV_LANES);
        for (int64_t tap = 0; tap < taps; tap++) {
            _Alignas(64) float block[DDP_CONV_LANES * DDP_CONV_LANES] = {0};
            const float *sums =
                work->sums + vector * work->vector_floats + (tap * channels + c) * DDP_CONV_LANES;
            for (int64_t chunk = 0; chunk < chunks; chunk++)
                add_floats(block, sums + chunk * step, some * DDP_CONV_LANES);
            put_block(work, block, some, lanes,
                      args->dweight + (first * channels + c) * taps + tap);
        }
    }
    for (int64_t l = 0; args->dbias && l < lanes; l++) {
        float sum = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            sum += work->bias[(chunk * work->vectors + vector) * DDP_CONV_LANES + l];
        float *to = args->dbias + first + l;
        *to = args->accumulate_dweight ? *to + sum : sum;
    }
}

static void finish_task(void *arg, size_t index)
{
    const struct work *work = arg;
    finish(work, (int64_t)index, work->chunks);
}

static void chunk_task(void *arg, size_t index)
{
    const struct work *work = arg;
    const int64_t chunk = (int64_t)index / work->ranges;
    const int64_t begin = (int64_t)index % work->ranges * work->task_vectors;
    sum_chunk(work, chunk, begin, at_most(begin + work->task_vectors, work->vectors), chunk);
}

static void fold_task(void *arg, size_t index)
{
    const struct work *work = arg;
    const int64_t begin = (int64_t)index * 2, end = at_most(begin + 2, work->vectors);
    const int64_t step = work->vectors * work->vector_floats;
    float *sums = work->sums + begin * work->vector_floats;
    float *bias = work->bias + begin * DDP_CONV_LANES;
    for (int64_t chunk = 0; chunk < work->chunks; chunk++) {
        sum_chunk(work, chunk, begin, end, chunk > 0);
        if (chunk > 0) {
            add_floats(sums, sums + step, (end - begin) * work->vector_floats);
            add_floats(bias, bias + work->vectors * DDP_CONV_LANES, (end - begin) * DDP_CONV_LANES);
        }
    }
    for (int64_t vector = begin; vector < end; vector++)
        finish(work, vector, at_most(work->chunks, 1));
}

enum ddp_status ddp_conv2d_weight(const struct ddp_conv2d_backward *args, void *stream)
{
    struct work work = work_of(&args->shape);
    work.args = args;
    work.micro = ddp_conv_micro(ddp_cpu_isa());
    work.images.compute = args->compute;
    work.sums = args->scratch;
    work.bias = work.sums + work.chunks * work.vectors * work.vector_floats;
    struct ddp_conv_images chunk = work.images;
    chunk.batch = work.chunk;
    if (!ddp_conv_cut(&work.cut, &chunk, work.chunk))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "conv2d: a window of %lld x %lld taps is too large",
                        (long long)chunk.row.taps, (long long)chunk.column.taps);
    ddp_pool *pool = ddp_stream_pool(stream);
    const int64_t pairs = divide_up(work.vectors, 2);
    if (work.vectors * work.vector_floats >= LARGE_FLOATS && pairs >= 2 * ddp_pool_threads(pool)) {
        ddp_pool_run(pool, (size_t)pairs, fold_task, &work);
        return DDP_OK;
    }
    ddp_pool_run(pool, (size_t)(work.chunks * work.ranges), chunk_task, &work);
    ddp_pool_run(pool, (size_t)work.vectors, finish_task, &work);
    return DDP_OK;
}

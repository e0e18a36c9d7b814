/* SPDX-License-Identifier: MIT
 *
 * Batch norm on the CPU; see batch_norm.h. Every pass reads each array once, as lines of 64 values:
 * with 16 channels a line is four rows. Sums are taken in float over at most 256 lines, about the
 * chunk's first line so that nothing cancels, then in double precision; the chunks are cut by the
 * shape alone and added from the first to the last. */
#include "config.h"

#include "kernels/batch_norm.h"

#include "core/log.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

#define LINE        64 /* values */
#define VECTORS     (LINE / DDP_LANES)
#define CHUNKS      64
#define CHUNK_LINES 64    /* at least */
#define GROUPS      8     /* of columns */
#define STRETCH     8     /* lines */
#define FLOAT_LINES 256   /* lines that are added in float */
#define BLOCK       65536 /* elements of a task of the elementwise passes, at least */

/* (rows,C) as lines of `width` values: several rows where they fit a line, with the last, shorter
 * line apart. */
struct lines {
    int64_t channels, width, count, rest;
};

static struct lines lines_of(int64_t rows, int64_t channels)
{
    const int64_t fold = channels > 0 && LINE % channels == 0 ? LINE / channels : 1;
    return (struct lines){.channels = channels,
                          .width = channels * fold,
                          .count = rows / fold,
                          .rest = rows % fold * channels};
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

/* --- vectors with a ragged end ---------------------------------------------------------------- */

DDP_INLINE void load(ddp_f32x16 *vector, const float *from, int64_t lanes)
{
    if (lanes == DDP_LANES) {
        memcpy(vector, from, sizeof *vector);
    } else {
        memset(vector, 0, sizeof *vector);
        memcpy(vector, from, (size_t)lanes * sizeof *from);
    }
}

DDP_INLINE void store(float *to, const ddp_f32x16 *vector, int64_t lanes)
{
    memcpy(to, vector, (size_t)lanes * sizeof *to);
}

/* value where it is not below 0; NaN stays. */
DDP_INLINE void cut_below_zero(ddp_f32x16 *value)
{
    const ddp_f32x16 zero = {0};
    *value = (ddp_f32x16)((ddp_i32x16)*value & ~(*value < zero));
}

/* value where sign is above 0, else 0 */
DDP_INLINE void keep_where_positive(ddp_f32x16 *value, const ddp_f32x16 *sign)
{
    const ddp_f32x16 zero = {0};
    *value = (ddp_f32x16)((ddp_i32x16)*value & (*sign > zero));
}

/* --- sums over rows --------------------------------------------------------------------------- */

/* What a channel needs in the passes below. */
struct channel {
    float mean[LINE], scale[LINE], beta[LINE]; /* scale = rstd * gamma */
    float rstd[LINE];
    float mean_gradient[LINE], slope[LINE]; /* of the second backward half */
};

struct sums {
    const float *x;
    const struct ddp_batch_norm_backward_sums *backward; /* or NULL: forward */
    struct lines lines;
    int64_t chunk, chunks; /* lines of a chunk */
    double *partial;       /* (chunks,2,C) */
};

static void cut_chunks(struct sums *sums)
{
    sums->chunk = sums->lines.count / CHUNKS + 1;
    if (sums->chunk < CHUNK_LINES)
        sums->chunk = CHUNK_LINES;
    sums->chunks = sums->lines.count / sums->chunk + 1; /* the last one has the rest */
}

size_t ddp_batch_norm_scratch_bytes(int64_t rows, int64_t channels)
{
    if (rows < 0 || channels < 1 || channels > INT32_MAX)
        return 0;
    struct sums sums = {.lines = lines_of(rows, channels)};
    cut_chunks(&sums);
    return (size_t)sums.chunks * 2 * (size_t)channels * sizeof(double);
}

/* Sums of x - shift and of its square. */
DDP_INLINE void add_lines(float (*out)[LINE], const float *x, int64_t width, int64_t count,
                          const float *shift, const int vectors, int64_t lanes)
{
    ddp_f32x16 sum[VECTORS] = {{0}}, square[VECTORS] = {{0}}, about[VECTORS];
    DDP_UNROLL
    for (int v = 0; v < vectors; v++)
        load(&about[v], shift + v * DDP_LANES, lanes);
    for (int64_t i = 0; i < count; i++, x += width)
        DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        ddp_f32x16 value;
        load(&value, x + v * DDP_LANES, lanes);
        value -= about[v];
        sum[v] += value;
        square[v] += value * value;
    }
    memcpy(out[0], sum, (size_t)vectors * sizeof *sum);
    memcpy(out[1], square, (size_t)vectors * sizeof *square);
}

DDP_MULTIVERSION
static void add_line4(float (*out)[LINE], const float *x, int64_t width, int64_t count,
                      const float *shift)
{
    add_lines(out, x, width, count, shift, VECTORS, DDP_LANES);
}

DDP_MULTIVERSION
static void add_line1(float (*out)[LINE], const float *x, int64_t width, int64_t count,
                      const float *shift, int64_t lanes)
{
    if (lanes == DDP_LANES)
        add_lines(out, x, width, count, shift, 1, DDP_LANES);
    else
        add_lines(out, x, width, count, shift, 1, lanes);
}

/* Sums of dz and of dz * xhat. `sign` is what must be above 0: y, or NULL for the norm itself. */
DDP_INLINE void add_gradient_lines(float (*out)[LINE], const float *x, const float *dy,
                                   const float *sign, bool relu, int64_t width, int64_t count,
                                   const struct channel *channel, const int vectors, int64_t lanes)
{
    ddp_f32x16 sum[VECTORS] = {{0}}, product[VECTORS] = {{0}};
    ddp_f32x16 mean[VECTORS], scale[VECTORS], beta[VECTORS];
    memcpy(mean, channel->mean, (size_t)vectors * sizeof *mean);
    memcpy(scale, channel->scale, (size_t)vectors * sizeof *scale);
    memcpy(beta, channel->beta, (size_t)vectors * sizeof *beta);
    for (int64_t i = 0; i < count; i++)
        DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        const int64_t at = i * width + v * DDP_LANES;
        ddp_f32x16 value, dz, gate;
        load(&value, x + at, lanes);
        load(&dz, dy + at, lanes);
        value -= mean[v];
        if (relu && sign)
            load(&gate, sign + at, lanes);
        else
            gate = value * scale[v] + beta[v];
        if (relu)
            keep_where_positive(&dz, &gate);
        sum[v] += dz;
        product[v] += dz * value;
    }
    memcpy(out[0], sum, (size_t)vectors * sizeof *sum);
    memcpy(out[1], product, (size_t)vectors * sizeof *product);
}

DDP_MULTIVERSION
static void add_gradient_line4(float (*out)[LINE], const float *x, const float *dy,
                               const float *sign, bool relu, int64_t width, int64_t count,
                               const struct channel *channel)
{
    if (!relu)
        add_gradient_lines(out, x, dy, NULL, false, width, count, channel, VECTORS, DDP_LANES);
    else if (sign)
        add_gradient_lines(out, x, dy, sign, true, width, count, channel, VECTORS, DDP_LANES);
    else
        add_gradient_lines(out, x, dy, NULL, true, width, count, channel, VECTORS, DDP_LANES);
}

DDP_MULTIVERSION
static void add_gradient_line1(float (*out)[LINE], const float *x, const float *dy,
                               const float *sign, bool relu, int64_t width, int64_t count,
                               const struct channel *channel, int64_t lanes)
{
    add_gradient_lines(out, x, dy, sign, relu, width, count, channel, 1, lanes);
}

/* Of a place in a line: a division only where several rows lie in it. */
DDP_INLINE int64_t channel_at(int64_t place, int64_t channels)
{
    return place < channels ? place : place % channels;
}

/* The numbers of the channels behind `values` places of a line from `column` on. */
static void backward_channels(struct channel *channel, const struct ddp_batch_norm_backward_sums *a,
                              int64_t column, int64_t values)
{
    memset(channel, 0, sizeof *channel);
    for (int64_t l = 0; l < values; l++) {
        const int64_t c = channel_at(column + l, a->channels);
        channel->mean[l] = a->saved[c];
        channel->rstd[l] = a->saved[a->channels + c];
        channel->scale[l] = channel->rstd[l] * a->gamma[c];
        channel->beta[l] = a->beta[c];
    }
}

/* Sums of `count` lines, the first of which is at `first`, into the chunk's. */
static void sum_columns(const struct sums *sums, double *partial, int64_t first, int64_t count,
                        int64_t column, int64_t values)
{
    const struct ddp_batch_norm_backward_sums *backward = sums->backward;
    const int64_t width = sums->lines.width, channels = sums->lines.channels;
    const bool whole = values == LINE;
    struct channel channel;
    float shift[LINE] = {0};
    memcpy(shift, sums->x + first + column, (size_t)values * sizeof *shift);
    if (backward)
        backward_channels(&channel, backward, column, values);
    for (int64_t begin = 0; begin < count; begin += FLOAT_LINES) {
        const int64_t here = at_most(FLOAT_LINES, count - begin);
        const int64_t at = first + begin * width + column;
        float out[2][LINE];
        if (backward) {
            const bool relu = backward->activation == DDP_ACTIVATION_RELU;
            const float *sign =
                relu && backward->has_residual ? (const float *)backward->y + at : NULL;
            const float *x = sums->x + at, *dy = (const float *)backward->dy + at;
            if (whole)
                add_gradient_line4(out, x, dy, sign, relu, width, here, &channel);
            else
                add_gradient_line1(out, x, dy, sign, relu, width, here, &channel, values);
        } else if (whole) {
            add_line4(out, sums->x + at, width, here, shift);
        } else {
            add_line1(out, sums->x + at, width, here, shift, values);
        }
        for (int64_t l = 0; l < values; l++) {
            const int64_t c = channel_at(column + l, channels);
            const double sum = (double)out[0][l], other = (double)out[1][l];
            const double about = (double)shift[l], n = (double)here;
            if (backward) {
                partial[c] += sum;
                partial[channels + c] += other * (double)channel.rstd[l];
            } else {
                partial[c] += sum + n * about;
                partial[channels + c] += other + (2 * sum + n * about) * about;
            }
        }
    }
}

/* 64 columns at a time, then 16, then the rest. */
static int64_t columns_at(int64_t column, int64_t width)
{
    return width - column >= LINE ? LINE : at_most(width - column, DDP_LANES);
}

static void sum_task(void *arg, size_t index)
{
    const struct sums *sums = arg;
    const struct lines *lines = &sums->lines;
    double *partial = sums->partial + (int64_t)index * 2 * lines->channels;
    memset(partial, 0, (size_t)lines->channels * 2 * sizeof *partial);
    const int64_t begin = (int64_t)index * sums->chunk;
    const int64_t count = at_most(sums->chunk, lines->count - begin);
    int64_t values;
    for (int64_t column = 0; count > 0 && column < lines->width; column += values) {
        values = columns_at(column, lines->width);
        sum_columns(sums, partial, begin * lines->width, count, column, values);
    }
    if ((int64_t)index + 1 < sums->chunks)
        return;
    for (int64_t column = 0; column < lines->rest; column += values) {
        values = columns_at(column, lines->rest);
        sum_columns(sums, partial, lines->count * lines->width, 1, column, values);
    }
}

static void sum_rows(struct sums *sums, double *out, void *stream)
{
    cut_chunks(sums);
    ddp_pool_run(ddp_stream_pool(stream), (size_t)sums->chunks, sum_task, sums);
    const int64_t count = 2 * sums->lines.channels;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t chunk = 0; chunk < sums->chunks; chunk++)
        for (int64_t i = 0; i < count; i++)
            out[i] += sums->partial[chunk * count + i];
}

enum ddp_status ddp_batch_norm_sums(const struct ddp_batch_norm_sums *args, void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_sums(args);
    if (status)
        return status;
    struct sums sums = {
        .x = args->x, .lines = lines_of(args->rows, args->channels), .partial = args->scratch};
    if (!sums.partial)
        return ddp_fail(DDP_ERR_INVALID, "batch norm: scratch is NULL");
    sum_rows(&sums, args->sums, stream);
    return DDP_OK;
}

enum ddp_status ddp_batch_norm_backward_sums(const struct ddp_batch_norm_backward_sums *args,
                                             void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_backward_sums(args);
    if (status)
        return status;
    struct sums sums = {.x = args->x,
                        .backward = args,
                        .lines = lines_of(args->rows, args->channels),
                        .partial = args->scratch};
    if (!sums.partial)
        return ddp_fail(DDP_ERR_INVALID, "batch norm: scratch is NULL");
    sum_rows(&sums, args->sums, stream);
    return DDP_OK;
}

/* --- elementwise passes ----------------------------------------------------------------------- */

struct pass {
    const struct ddp_batch_norm_forward *forward; /* one of both */
    const struct ddp_batch_norm_backward *backward;
    struct lines lines;
    struct ddp_blocks blocks; /* of lines */
    void (*columns)(const struct pass *pass, const struct channel *channel, int64_t at,
                    int64_t count, int64_t values);
    void (*channels)(const struct pass *pass, struct channel *channel, int64_t column,
                     int64_t values);
};

/* `count` lines, the first at `at`, of which the first `width` values exist. Up to 512 columns go
 * down a few lines together: memory is read in runs of 2 KiB. */
static void pass_lines(const struct pass *pass, int64_t at, int64_t count, int64_t width)
{
    struct channel channels[GROUPS];
    int64_t columns[GROUPS + 1] = {0};
    while (columns[0] < width) {
        int groups = 0;
        for (; groups < GROUPS && columns[groups] < width; groups++) {
            const int64_t column = columns[groups], values = columns_at(column, width);
            pass->channels(pass, &channels[groups], column, values);
            columns[groups + 1] = column + values;
        }
        for (int64_t line = 0; line < count; line += STRETCH)
            for (int g = 0; g < groups; g++)
                pass->columns(pass, &channels[g], at + line * pass->lines.width + columns[g],
                              at_most(STRETCH, count - line), columns[g + 1] - columns[g]);
        columns[0] = columns[groups];
    }
}

static void pass_task(void *arg, size_t index)
{
    const struct pass *pass = arg;
    const struct lines *lines = &pass->lines;
    if (index == pass->blocks.count) { /* the rest */
        pass_lines(pass, lines->count * lines->width, 1, lines->rest);
        return;
    }
    const int64_t begin = ddp_block_begin(&pass->blocks, index);
    const int64_t count = ddp_block_end(&pass->blocks, index) - begin;
    pass_lines(pass, begin * lines->width, count, lines->width);
}

static void pass_run(struct pass *pass, void *stream)
{
    const int64_t smallest = pass->lines.width > 0 ? BLOCK / pass->lines.width + 1 : 1;
    pass->blocks = ddp_blocks_cut(pass->lines.count, smallest, 1);
    ddp_pool_run(ddp_stream_pool(stream), pass->blocks.count + (pass->lines.rest > 0), pass_task,
                 pass);
}

DDP_INLINE void normalise(const struct ddp_batch_norm_forward *args, const struct channel *channel,
                          int64_t width, int64_t at, int64_t count, bool relu, bool residual,
                          const int vectors, int64_t lanes)
{
    ddp_f32x16 mean[VECTORS], scale[VECTORS], beta[VECTORS];
    memcpy(mean, channel->mean, sizeof mean);
    memcpy(scale, channel->scale, sizeof scale);
    memcpy(beta, channel->beta, sizeof beta);
    for (int64_t i = 0; i < count; i++, at += width)
        DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        ddp_f32x16 value, other;
        load(&value, (const float *)args->x + at + v * DDP_LANES, lanes);
        value = (value - mean[v]) * scale[v] + beta[v];
        if (residual) {
            load(&other, (const float *)args->residual + at + v * DDP_LANES, lanes);
            value += other;
        }
        if (relu)
            cut_below_zero(&value);
        store((float *)args->y + at + v * DDP_LANES, &value, lanes);
    }
}

/* Calls the loop with flags, width and lanes that the compiler knows, in the cases that matter. */
#define SPECIALISED(loop, args, channel, width, at, count, relu, residual, values)                 \
    do {                                                                                           \
        if ((values) != LINE)                                                                      \
            loop(args, channel, width, at, count, relu, residual, 1, values);                      \
        else if ((relu) && (residual))                                                             \
            loop(args, channel, width, at, count, true, true, VECTORS, DDP_LANES);                 \
        else if (relu)                                                                             \
            loop(args, channel, width, at, count, true, false, VECTORS, DDP_LANES);                \
        else                                                                                       \
            loop(args, channel, width, at, count, false, residual, VECTORS, DDP_LANES);            \
    } while (0)

DDP_MULTIVERSION
static void forward_columns(const struct pass *pass, const struct channel *channel, int64_t at,
                            int64_t count, int64_t values)
{
    const struct ddp_batch_norm_forward *args = pass->forward;
    const bool relu = args->activation == DDP_ACTIVATION_RELU, residual = args->residual;
    SPECIALISED(normalise, args, channel, pass->lines.width, at, count, relu, residual, values);
}

static void forward_channels(const struct pass *pass, struct channel *channel, int64_t column,
                             int64_t values)
{
    const struct ddp_batch_norm_forward *a = pass->forward;
    memset(channel, 0, sizeof *channel);
    for (int64_t l = 0; l < values; l++) {
        const int64_t c = channel_at(column + l, a->channels);
        if (a->sums) {
            channel->mean[l] = a->saved[c];
            channel->scale[l] = a->saved[a->channels + c] * a->gamma[c];
        } else {
            channel->mean[l] = a->running_mean[c];
            channel->scale[l] =
                (float)(1 / sqrt((double)a->running_var[c] + (double)a->epsilon)) * a->gamma[c];
        }
        channel->beta[l] = a->beta[c];
    }
}

/* saved, stat_mean and stat_var from the sums. */
static void statistics(const struct ddp_batch_norm_forward *a)
{
    for (int64_t c = 0; c < a->channels; c++) {
        const double mean = a->sums[c] / a->count;
        double variance = a->sums[a->channels + c] / a->count - mean * mean;
        if (variance < 0) /* rounding; NaN stays */
            variance = 0;
        a->saved[c] = (float)mean;
        a->saved[a->channels + c] = (float)(1 / sqrt(variance + (double)a->epsilon));
        const float unbiased = (float)(variance * (a->count / (a->count - 1)));
        if (a->stat_mean)
            a->stat_mean[c] = a->accumulate_stat ? a->stat_mean[c] + (float)mean : (float)mean;
        if (a->stat_var)
            a->stat_var[c] = a->accumulate_stat ? a->stat_var[c] + unbiased : unbiased;
    }
}

enum ddp_status ddp_batch_norm_forward(const struct ddp_batch_norm_forward *args, void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_forward(args);
    if (status)
        return status;
    if (args->sums)
        statistics(args);
    struct pass pass = {
        .forward = args,
        .lines = lines_of(args->rows, args->channels),
        .columns = forward_columns,
        .channels = forward_channels,
    };
    pass_run(&pass, stream);
    return DDP_OK;
}

DDP_INLINE void add_or_store(float *to, ddp_f32x16 *value, bool add, int64_t lanes)
{
    if (add) {
        ddp_f32x16 old;
        load(&old, to, lanes);
        *value += old;
    }
    store(to, value, lanes);
}

DDP_INLINE void differentiate(const struct ddp_batch_norm_backward *args,
                              const struct channel *channel, int64_t width, int64_t at,
                              int64_t count, bool relu, bool residual, const int vectors,
                              int64_t lanes)
{
    ddp_f32x16 mean[VECTORS], scale[VECTORS], beta[VECTORS], centre[VECTORS], slope[VECTORS];
    memcpy(mean, channel->mean, sizeof mean);
    memcpy(scale, channel->scale, sizeof scale);
    memcpy(beta, channel->beta, sizeof beta);
    memcpy(centre, channel->mean_gradient, sizeof centre);
    memcpy(slope, channel->slope, sizeof slope);
    for (int64_t i = 0; i < count; i++, at += width)
        DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        const int64_t here = at + v * DDP_LANES;
        ddp_f32x16 value, dz, gate;
        load(&value, (const float *)args->x + here, lanes);
        load(&dz, (const float *)args->dy + here, lanes);
        value -= mean[v];
        if (relu && residual)
            load(&gate, (const float *)args->y + here, lanes);
        else
            gate = value * scale[v] + beta[v];
        if (relu)
            keep_where_positive(&dz, &gate);
        if (args->dx) {
            ddp_f32x16 dx = (dz - centre[v] - value * slope[v]) * scale[v];
            add_or_store((float *)args->dx + here, &dx, args->accumulate_dx, lanes);
        }
        if (residual && args->dresidual)
            add_or_store((float *)args->dresidual + here, &dz, args->accumulate_dresidual, lanes);
    }
}

DDP_MULTIVERSION
static void backward_columns(const struct pass *pass, const struct channel *channel, int64_t at,
                             int64_t count, int64_t values)
{
    const struct ddp_batch_norm_backward *args = pass->backward;
    const bool relu = args->activation == DDP_ACTIVATION_RELU, residual = args->has_residual;
    SPECIALISED(differentiate, args, channel, pass->lines.width, at, count, relu, residual, values);
}

static void backward_pass_channels(const struct pass *pass, struct channel *channel, int64_t column,
                                   int64_t values)
{
    const struct ddp_batch_norm_backward *a = pass->backward;
    memset(channel, 0, sizeof *channel);
    for (int64_t l = 0; l < values; l++) {
        const int64_t c = channel_at(column + l, a->channels);
        channel->mean[l] = a->saved[c];
        channel->rstd[l] = a->saved[a->channels + c];
        channel->scale[l] = channel->rstd[l] * a->gamma[c];
        channel->beta[l] = a->beta[c];
        channel->mean_gradient[l] = (float)(a->sums[c] / a->count);
        channel->slope[l] = (float)(a->sums[a->channels + c] / a->count * (double)channel->rstd[l]);
    }
}

/* dgamma and dbeta from the sums. */
static void parameters(const struct ddp_batch_norm_backward *a)
{
    for (int64_t c = 0; a->dbeta && c < a->channels; c++)
        a->dbeta[c] = (a->accumulate ? a->dbeta[c] : 0) + (float)a->local_sums[c];
    for (int64_t c = 0; a->dgamma && c < a->channels; c++)
        a->dgamma[c] = (a->accumulate ? a->dgamma[c] : 0) + (float)a->local_sums[a->channels + c];
}

enum ddp_status ddp_batch_norm_backward(const struct ddp_batch_norm_backward *args, void *stream)
{
    enum ddp_status status = ddp_batch_norm_check_backward(args);
    if (status)
        return status;
    parameters(args);
    struct pass pass = {
        .backward = args,
        .lines = lines_of(args->rows, args->channels),
        .columns = backward_columns,
        .channels = backward_pass_channels,
    };
    if (args->dx || (args->dresidual && args->has_residual))
        pass_run(&pass, stream);
    return DDP_OK;
}

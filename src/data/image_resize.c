/* SPDX-License-Identifier: MIT
 *
 * See image_resize.h. The arithmetic is that of Pillow's resize(): weights of 22 bits after the
 * point, rows first, then columns, 8 bits between them. */
#include "config.h"

#include "data/image_resize.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_BITS 22
#define HALF        (1 << (WEIGHT_BITS - 1))

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* The weights of result i. Smaller results are made of more values: the triangle is as wide as one
 * of them. */
static void set_taps(struct ddp_resize_taps *taps, int i, double *weights)
{
    const double scale = (double)taps->from / taps->to, support = scale < 1 ? 1 : scale;
    const double center = (taps->offset + i + 0.5) * scale;
    int begin = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
    double sum = 0;
    if (begin < 0)
        begin = 0;
    if (end > taps->from)
        end = taps->from;
    for (int k = 0; k < end - begin; k++) {
        weights[k] = triangle((k + begin - center + 0.5) * (1 / support));
        sum += weights[k];
    }
    for (int k = 0; k < end - begin; k++) {
        const double weight = sum != 0 ? weights[k] / sum : weights[k];
        taps->weights[(size_t)i * (size_t)taps->most + (size_t)k] =
            (int32_t)(0.5 + weight * (1 << WEIGHT_BITS));
    }
    taps->begin[i] = begin;
    taps->tap[i] = end - begin;
}

/* The middle `count` of a line of `from` values that was scaled to `to`. */
static enum ddp_status init_taps(struct ddp_resize_taps *taps, int from, int to, int count)
{
    const int left = to - count;
    const double scale = (double)from / to;
    *taps = (struct ddp_resize_taps){.from = from, .to = to, .count = count};
    taps->offset = left / 2 + (left % 2 && left / 2 % 2); /* half a pixel: to the even side */
    taps->most = (int)ceil(scale < 1 ? 1 : scale) * 2 + 1;
    taps->begin = ddp_array_alloc((size_t)count, sizeof *taps->begin);
    taps->tap = ddp_array_alloc((size_t)count, sizeof *taps->tap);
    taps->weights = ddp_array_alloc((size_t)count * (size_t)taps->most, sizeof *taps->weights);
    double *weights = ddp_array_alloc((size_t)taps->most, sizeof *weights);
    const bool made = taps->begin && taps->tap && taps->weights && weights;
    for (int i = 0; made && i < count; i++)
        set_taps(taps, i, weights);
    free(weights);
    if (!made)
        return DDP_ERR_MEMORY;
    taps->first = taps->begin[0];
    taps->end = taps->begin[count - 1] + taps->tap[count - 1];
    return DDP_OK;
}

static void free_taps(struct ddp_resize_taps *taps)
{
    free(taps->begin);
    free(taps->tap);
    free(taps->weights);
}

static enum ddp_status init_lines(struct ddp_resize *resize)
{
    const size_t line = (size_t)resize->x.count * (size_t)resize->channels;
    resize->lines = ddp_array_alloc((size_t)(resize->y.end - resize->y.first), line);
    return resize->lines ? DDP_OK : DDP_ERR_MEMORY;
}

enum ddp_status ddp_resize_init(struct ddp_resize *resize, int channels, int width, int height,
                                int out_width, int out_height)
{
    /* The side that needs the larger factor gets its size exactly. */
    const bool by_width = (int64_t)width * out_height <= (int64_t)height * out_width;
    const int64_t to_x = by_width ? out_width : (int64_t)width * out_height / height;
    const int64_t to_y = by_width ? (int64_t)height * out_width / width : out_height;
    *resize = (struct ddp_resize){.channels = channels};
    enum ddp_status status = init_taps(&resize->x, width, (int)to_x, out_width);
    if (status == DDP_OK)
        status = init_taps(&resize->y, height, (int)to_y, out_height);
    return status == DDP_OK ? init_lines(resize) : status;
}

enum ddp_status ddp_resize_init_region(struct ddp_resize *resize, int channels, int left, int top,
                                       int width, int height, int out_width, int out_height)
{
    *resize = (struct ddp_resize){.channels = channels, .left = left, .top = top};
    enum ddp_status status = init_taps(&resize->x, width, out_width, out_width);
    if (status == DDP_OK)
        status = init_taps(&resize->y, height, out_height, out_height);
    return status == DDP_OK ? init_lines(resize) : status;
}

void ddp_resize_free(struct ddp_resize *resize)
{
    free_taps(&resize->x);
    free_taps(&resize->y);
    free(resize->lines);
}

/* --- the pixels ------------------------------------------------------------------------------- */

static unsigned char rounded(int32_t sum)
{
    const int32_t value = sum >> WEIGHT_BITS;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static inline void scale_row(const struct ddp_resize_taps *taps, int channels,
                             const unsigned char *pixels, unsigned char *to)
{
    for (int i = 0; i < taps->count; i++) {
        const unsigned char *from = pixels + (size_t)taps->begin[i] * (size_t)channels;
        const int32_t *weights = taps->weights + (size_t)i * (size_t)taps->most;
        int32_t sums[3] = {HALF, HALF, HALF};
        for (int k = 0; k < taps->tap[i]; k++)
            for (int c = 0; c < channels; c++)
                sums[c] += *from++ * weights[k];
        for (int c = 0; c < channels; c++)
            *to++ = rounded(sums[c]);
    }
}

void ddp_resize_row(void *arg, int row, const unsigned char *pixels)
{
    struct ddp_resize *resize = arg;
    const struct ddp_resize_taps *x = &resize->x, *y = &resize->y;
    const size_t line = (size_t)x->count * (size_t)resize->channels;
    row -= resize->top;
    pixels += (size_t)resize->left * (size_t)resize->channels;
    if (row < y->first || row >= y->end)
        return;
    unsigned char *to = resize->lines + (size_t)(row - y->first) * line;
    if (x->from == x->to)
        memcpy(to, pixels + (size_t)x->offset * (size_t)resize->channels, line);
    else if (resize->channels == 1)
        scale_row(x, 1, pixels, to);
    else
        scale_row(x, 3, pixels, to);
}

/* One channel of row i of the result. */
static void finish_row(const struct ddp_resize *resize, int i, int channel, unsigned char *to)
{
    const struct ddp_resize_taps *y = &resize->y;
    const size_t channels = (size_t)resize->channels, line = (size_t)resize->x.count * channels;
    const unsigned char *lines =
        resize->lines + (size_t)(y->begin[i] - y->first) * line + (size_t)channel;
    const int32_t *weights = y->weights + (size_t)i * (size_t)y->most;
    for (size_t x = 0; x < (size_t)resize->x.count; x++) {
        const unsigned char *from = lines + x * channels;
        int32_t sum = HALF;
        for (int k = 0; k < y->tap[i]; k++, from += line)
            sum += *from * weights[k];
        to[x] = rounded(sum);
    }
}

void ddp_resize_finish(const struct ddp_resize *resize, unsigned char *out)
{
    const size_t width = (size_t)resize->x.count;
    for (int c = 0; c < resize->channels; c++)
        for (int i = 0; i < resize->y.count; i++, out += width)
            finish_row(resize, i, c, out);
}

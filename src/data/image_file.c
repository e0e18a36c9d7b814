/* SPDX-License-Identifier: MIT
 *
 * See image_file.h: the table of formats, and what they share. */
#include "config.h"

#include "data/image_file.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/image_format.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LAST_UNTURNED 4 /* of EXIF's orientations: rows are rows */

static const struct ddp_image_format *const formats[] = {
    &ddp_image_png, &ddp_image_jpeg, &ddp_image_webp,
    &ddp_image_gif, &ddp_image_tiff, &ddp_image_bmp,
};

enum ddp_status ddp_image_fail(const ddp_image_reader *reader, const char *why)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: cannot decode this %s image: %s", reader->blob->name,
                    reader->format->name, why);
}

enum ddp_status ddp_image_check_size(const ddp_image_reader *reader, uint64_t width,
                                     uint64_t height)
{
    if (width > 0 && height > 0 && width <= DDP_IMAGE_MAX_SIDE && height <= DDP_IMAGE_MAX_SIDE &&
        width * height <= DDP_IMAGE_MAX_PIXELS)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: an image of %" PRIu64 " x %" PRIu64
                    " pixels: up to %d x %d, and %d in all, are possible",
                    reader->blob->name, width, height, DDP_IMAGE_MAX_SIDE, DDP_IMAGE_MAX_SIDE,
                    DDP_IMAGE_MAX_PIXELS);
}

unsigned char *ddp_image_frame(const ddp_image_reader *reader, size_t values)
{
    return ddp_array_alloc((size_t)reader->image.width * (size_t)reader->image.height, values);
}

static bool begins_as(const struct ddp_image_format *format, const unsigned char *start,
                      size_t count)
{
    for (int i = 0; i < DDP_IMAGE_MAGICS; i++) {
        const size_t at = format->magic[i].at, bytes = format->magic[i].count;
        if (bytes > 0 && at + bytes <= count &&
            memcmp(start + at, format->magic[i].bytes, bytes) == 0)
            return true;
    }
    return false;
}

static enum ddp_status find_format(const struct ddp_blob *blob,
                                   const struct ddp_image_format **format)
{
    unsigned char buffer[16];
    const size_t count = blob->bytes < sizeof buffer ? (size_t)blob->bytes : sizeof buffer;
    const unsigned char *start;
    if (count == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the file is empty", blob->name);
    enum ddp_status status = ddp_blob_at(blob, 0, count, buffer, &start);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (begins_as(formats[i], start, count)) {
            *format = formats[i];
            return formats[i]->open
                       ? DDP_OK
                       : ddp_fail(DDP_ERR_FORMAT,
                                  "%s: a %s image, and ddprun was built without the library that "
                                  "reads them: convert it to PNG",
                                  blob->name, formats[i]->name);
        }
    return ddp_fail(DDP_ERR_FORMAT, "%s: not a PNG, JPEG, WebP, GIF, TIFF or BMP image",
                    blob->name);
}

static void set_shown(ddp_image_reader *r)
{
    r->shown = r->image;
    if (r->orientation > LAST_UNTURNED) {
        r->shown.width = r->image.height;
        r->shown.height = r->image.width;
    }
}

enum ddp_status ddp_image_open(ddp_image_reader **reader, const struct ddp_blob *blob)
{
    const struct ddp_image_format *format = NULL;
    enum ddp_status status = find_format(blob, &format);
    if (status != DDP_OK)
        return status;
    ddp_image_reader *r = ddp_array_alloc(1, format->reader_bytes);
    if (!r)
        return DDP_ERR_MEMORY;
    r->format = format;
    r->blob = blob;
    status = format->open(r);
    if (status != DDP_OK) {
        ddp_image_close(r);
        return status;
    }
    assert(r->image.channels == 1 || r->image.channels == 3);
    set_shown(r);
    *reader = r;
    return DDP_OK;
}

void ddp_image_close(ddp_image_reader *reader)
{
    if (!reader)
        return;
    reader->format->close(reader);
    free(reader);
}

const struct ddp_image *ddp_image_info(const ddp_image_reader *reader)
{
    return &reader->shown;
}

int ddp_image_reduce(ddp_image_reader *reader, int most)
{
    const int factor = !reader->format->reduce ? 1
                       : most >= 8             ? 8
                       : most >= 4             ? 4
                       : most >= 2             ? 2
                                               : 1;
    if (factor > 1)
        reader->format->reduce(reader, factor);
    set_shown(reader);
    return factor;
}

/* --- other channels --------------------------------------------------------------------------- */

struct converter {
    int width, channels; /* channels: wanted, of the two possible the other than there are */
    unsigned char *row;
    ddp_image_take *take;
    void *arg;
};

static void convert(void *arg, int row, const unsigned char *pixels)
{
    const struct converter *c = arg;
    unsigned char *to = c->row;
    for (int x = 0; x < c->width; x++)
        if (c->channels == 3) {
            *to++ = pixels[x];
            *to++ = pixels[x];
            *to++ = pixels[x];
        } else {
            const unsigned char *p = pixels + 3 * (size_t)x;
            *to++ = (unsigned char)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
        }
    c->take(c->arg, row, c->row);
}

static enum ddp_status read_converted(ddp_image_reader *reader, int channels, ddp_image_take *take,
                                      void *arg)
{
    if (channels == reader->image.channels)
        return reader->format->read(reader, take, arg);
    struct converter converter = {reader->image.width, channels, NULL, take, arg};
    converter.row = ddp_array_alloc((size_t)reader->image.width, (size_t)channels);
    if (!converter.row)
        return DDP_ERR_MEMORY;
    enum ddp_status status = reader->format->read(reader, convert, &converter);
    free(converter.row);
    return status;
}

/* --- images that are stored turned ------------------------------------------------------------ */

struct keeper {
    size_t row_bytes;
    unsigned char *pixels;
};

static void keep(void *arg, int row, const unsigned char *pixels)
{
    const struct keeper *k = arg;
    memcpy(k->pixels + (size_t)row * k->row_bytes, pixels, k->row_bytes);
}

/* Row y of the upright image, from the stored one. */
static void set_upright(const ddp_image_reader *reader, size_t channels,
                        const unsigned char *stored, int y, unsigned char *to)
{
    const int how = reader->orientation;
    const bool mirrored = how == 2 || how == 3 || how == 7 || how == 8; /* stored right to left */
    const bool upside_down = how == 3 || how == 4 || how == 6 || how == 7;
    const struct ddp_image *image = &reader->image;
    for (int x = 0; x < reader->shown.width; x++, to += channels) {
        const int column = how > LAST_UNTURNED ? y : x, row = how > LAST_UNTURNED ? x : y;
        const size_t from_x = (size_t)(mirrored ? image->width - 1 - column : column);
        const size_t from_y = (size_t)(upside_down ? image->height - 1 - row : row);
        memcpy(to, stored + (from_y * (size_t)image->width + from_x) * channels, channels);
    }
}

enum ddp_status ddp_image_read(ddp_image_reader *reader, int channels, ddp_image_take *take,
                               void *arg)
{
    if (reader->orientation <= 1)
        return read_converted(reader, channels, take, arg);
    const size_t values = (size_t)channels;
    struct keeper keeper = {(size_t)reader->image.width * values, ddp_image_frame(reader, values)};
    unsigned char *line = ddp_array_alloc((size_t)reader->shown.width, values);
    enum ddp_status status = DDP_ERR_MEMORY;
    if (keeper.pixels && line)
        status = read_converted(reader, channels, keep, &keeper);
    for (int y = 0; status == DDP_OK && y < reader->shown.height; y++) {
        set_upright(reader, values, keeper.pixels, y, line);
        take(arg, y, line);
    }
    free(line);
    free(keeper.pixels);
    return status;
}

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

static const struct ddp_image_format *const formats[] = {&ddp_image_png, &ddp_image_jpeg};

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

static enum ddp_status find_format(const struct ddp_blob *blob,
                                   const struct ddp_image_format **format)
{
    unsigned char buffer[sizeof formats[0]->magic];
    const size_t count = blob->bytes < sizeof buffer ? (size_t)blob->bytes : sizeof buffer;
    const unsigned char *start;
    if (count == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the file is empty", blob->name);
    enum ddp_status status = ddp_blob_at(blob, 0, count, buffer, &start);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (count >= formats[i]->magic_bytes &&
            memcmp(start, formats[i]->magic, formats[i]->magic_bytes) == 0) {
            *format = formats[i];
            return DDP_OK;
        }
    return ddp_fail(DDP_ERR_FORMAT, "%s: neither a PNG nor a JPEG image", blob->name);
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
    return &reader->image;
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

enum ddp_status ddp_image_read(ddp_image_reader *reader, int channels, ddp_image_take *take,
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

/* SPDX-License-Identifier: MIT
 *
 * WebP images, lossy and lossless, by libwebp, whose pixels are the same on all machines. Alpha is
 * left out. Animations are refused: their frames need a library of their own. */
#include "config.h"

#include "data/image_format.h"

#ifdef HAVE_WEBP
#include "core/log.h"
#include "core/memory.h"
#include "data/image_exif.h"

#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

#define MAX_BYTES (UINT64_C(1) << 30) /* of a file, which is read whole */

struct webp_reader {
    struct ddp_image_reader base;
    unsigned char *buffer;
    const unsigned char *bytes; /* the file's: in the buffer, or in memory already */
    size_t count;
    unsigned char *pixels;
};

/* Of the chunk EXIF, which follows the pixels. */
static int orientation_of(const struct webp_reader *r)
{
    for (size_t at = 12, bytes; at + 8 <= r->count; at += 8 + bytes + bytes % 2) {
        const unsigned char *chunk = r->bytes + at;
        bytes = (size_t)chunk[4] | (size_t)chunk[5] << 8 | (size_t)chunk[6] << 16 |
                (size_t)chunk[7] << 24;
        if (bytes > r->count - at - 8)
            break;
        if (memcmp(chunk, "EXIF", 4) == 0)
            return ddp_exif_orientation(chunk + 8, bytes);
    }
    return 1;
}

static enum ddp_status open_webp(ddp_image_reader *reader)
{
    struct webp_reader *r = (struct webp_reader *)reader;
    WebPBitstreamFeatures features;
    if (reader->blob->bytes > MAX_BYTES)
        return ddp_image_fail(reader, "the file has more than 1 GiB");
    r->count = (size_t)reader->blob->bytes;
    r->buffer = ddp_array_alloc(r->count, 1);
    if (!r->buffer)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_blob_at(reader->blob, 0, r->count, r->buffer, &r->bytes);
    if (status != DDP_OK)
        return status;
    if (WebPGetFeatures(r->bytes, r->count, &features) != VP8_STATUS_OK)
        return ddp_image_fail(reader, "its header is damaged or truncated");
    if (features.has_animation)
        return ddp_image_fail(reader, "it is an animation: save the frame that you need");
    status = ddp_image_check_size(reader, (uint64_t)features.width, (uint64_t)features.height);
    reader->image = (struct ddp_image){features.width, features.height, 3};
    reader->orientation = orientation_of(r);
    return status;
}

static enum ddp_status read_webp(ddp_image_reader *reader, ddp_image_take *take, void *arg)
{
    struct webp_reader *r = (struct webp_reader *)reader;
    const size_t row = 3 * (size_t)reader->image.width, height = (size_t)reader->image.height;
    r->pixels = ddp_image_frame(reader, 3);
    if (!r->pixels)
        return DDP_ERR_MEMORY;
    if (!WebPDecodeRGBInto(r->bytes, r->count, r->pixels, row * height, (int)row))
        return ddp_image_fail(reader, "its pixels are damaged or truncated");
    for (size_t y = 0; y < height; y++)
        take(arg, (int)y, r->pixels + y * row);
    return DDP_OK;
}

static void close_webp(ddp_image_reader *reader)
{
    struct webp_reader *r = (struct webp_reader *)reader;
    free(r->buffer);
    free(r->pixels);
}
#endif

const struct ddp_image_format ddp_image_webp = {
    .name = "WebP",
    .magic = {{8, 4, {'W', 'E', 'B', 'P'}}},
#ifdef HAVE_WEBP
    .reader_bytes = sizeof(struct webp_reader),
    .open = open_webp,
    .read = read_webp,
    .close = close_webp,
#endif
};

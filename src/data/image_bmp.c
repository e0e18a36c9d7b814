/* SPDX-License-Identifier: MIT
 *
 * BMP images, of Windows and of OS/2: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits of
 * colours, not packed by run lengths. They need no library: rows of pixels lie in the file, the
 * last one first. */
#include "config.h"

#include "data/image_format.h"

#include "core/log.h"
#include "core/memory.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define FILE_HEADER_BYTES 14
#define CORE_HEADER_BYTES 12 /* of OS/2 */
#define INFO_HEADER_BYTES 40 /* with the three masks that may follow: 52 */
#define WITH_MASKS        52

enum packing { PLAIN = 0, MASKS = 3 };

struct bmp_reader {
    struct ddp_image_reader base;
    int bits; /* of a pixel */
    bool top_down;
    uint64_t pixels_at;
    size_t row_bytes;
    uint32_t mask[3]; /* red, green, blue of 16 and 32 bits */
    unsigned char palette[256][3];
    unsigned char *stored, *row;
};

static uint32_t word(const unsigned char *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return le32toh(value);
}

static uint32_t half(const unsigned char *from)
{
    return from[0] | (uint32_t)from[1] << 8;
}

/* At most `count` bytes there; *got of them are. */
static enum ddp_status read_at(const struct bmp_reader *r, uint64_t at, size_t count,
                               unsigned char *to, size_t *got)
{
    const struct ddp_blob *blob = r->base.blob;
    const uint64_t left = at < blob->bytes ? blob->bytes - at : 0;
    const unsigned char *from = to;
    *got = count < left ? count : (size_t)left;
    enum ddp_status status = *got > 0 ? ddp_blob_at(blob, at, *got, to, &from) : DDP_OK;
    if (status == DDP_OK && from != to)
        memcpy(to, from, *got);
    return status;
}

/* Colours stand in the order blue, green, red. A palette of greys only makes a grey image. */
static enum ddp_status read_palette(struct bmp_reader *r, uint64_t at, uint32_t count, size_t bytes)
{
    unsigned char stored[256 * 4];
    size_t got;
    const uint32_t most = 1u << r->bits;
    if (count == 0 || count > most)
        count = most;
    enum ddp_status status = read_at(r, at, count * bytes, stored, &got);
    if (status == DDP_OK && got < count * bytes)
        status = ddp_image_fail(&r->base, "the file is truncated");
    for (uint32_t i = 0; status == DDP_OK && i < count; i++) {
        unsigned char *to = r->palette[i];
        for (int c = 0; c < 3; c++)
            to[c] = stored[i * bytes + 2 - (size_t)c];
        if (to[0] != to[1] || to[0] != to[2])
            r->base.image.channels = 3;
    }
    return status;
}

static enum ddp_status set_masks(struct bmp_reader *r, uint32_t packing, const unsigned char *masks)
{
    static const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
    r->base.image.channels = 3;
    for (int c = 0; c < 3; c++) {
        r->mask[c] = packing == MASKS ? word(masks + 4 * c) : usual[r->bits == 32][c];
        if (r->mask[c] == 0)
            return ddp_image_fail(&r->base, "it has no mask for one of the colours");
    }
    return DDP_OK;
}

static enum ddp_status open_bmp(ddp_image_reader *reader)
{
    struct bmp_reader *r = (struct bmp_reader *)reader;
    unsigned char bytes[FILE_HEADER_BYTES + WITH_MASKS] = {0}, *h = bytes + FILE_HEADER_BYTES;
    size_t got;
    enum ddp_status status = read_at(r, 0, sizeof bytes, bytes, &got);
    if (status != DDP_OK)
        return status;
    const uint32_t size = word(h);
    const bool core = size == CORE_HEADER_BYTES;
    if (!core && size < INFO_HEADER_BYTES)
        return ddp_image_fail(reader, "its header is of an unknown kind");
    if (got < FILE_HEADER_BYTES + (core ? CORE_HEADER_BYTES : INFO_HEADER_BYTES))
        return ddp_image_fail(reader, "the file is truncated");
    const int64_t height = core ? (int64_t)half(h + 6) : (int64_t)(int32_t)word(h + 8);
    const uint32_t width = core ? half(h + 4) : word(h + 4), packing = core ? PLAIN : word(h + 16);
    r->bits = (int)(core ? half(h + 10) : half(h + 14));
    r->top_down = height < 0;
    r->pixels_at = word(bytes + 10);
    status = ddp_image_check_size(reader, width, (uint64_t)(height < 0 ? -height : height));
    if (status != DDP_OK)
        return status;
    reader->image = (struct ddp_image){(int)width, (int)(height < 0 ? -height : height), 1};
    r->row_bytes = ((size_t)width * (size_t)r->bits + 31) / 32 * 4;
    const bool palette = r->bits == 1 || r->bits == 4 || r->bits == 8;
    if (!palette && r->bits != 16 && r->bits != 24 && r->bits != 32)
        return ddp_image_fail(reader, "pixels of 1, 4, 8, 16, 24 and 32 bits are read");
    if (packing != PLAIN && (packing != MASKS || palette || r->bits == 24))
        return ddp_image_fail(reader, "it is compressed: save it without, or as PNG");
    return palette ? read_palette(r, FILE_HEADER_BYTES + (uint64_t)size, core ? 0 : word(h + 32),
                                  core ? 3 : 4)
                   : set_masks(r, packing, h + INFO_HEADER_BYTES);
}

/* --- the pixels ------------------------------------------------------------------------------- */

/* A colour's bits as one byte. */
static unsigned char masked(uint32_t value, uint32_t mask)
{
    const int shift = __builtin_ctz(mask);
    return (unsigned char)((uint64_t)((value & mask) >> shift) * 255 / (mask >> shift));
}

static void set_row(struct bmp_reader *r)
{
    const size_t channels = (size_t)r->base.image.channels, bits = (size_t)r->bits;
    unsigned char *to = r->row;
    for (size_t x = 0; x < (size_t)r->base.image.width; x++, to += channels) {
        const unsigned char *from = r->stored + x * bits / 8;
        if (bits <= 8) {
            const unsigned at = (unsigned)(*from >> (8 - bits - x * bits % 8)) & ((1u << bits) - 1);
            memcpy(to, r->palette[at], channels);
            continue;
        }
        const uint32_t value = bits == 16 ? half(from) : bits == 32 ? word(from) : 0;
        for (size_t c = 0; c < 3; c++)
            to[c] = bits == 24 ? from[2 - c] : masked(value, r->mask[c]);
    }
}

static enum ddp_status read_bmp(ddp_image_reader *reader, ddp_image_take *take, void *arg)
{
    struct bmp_reader *r = (struct bmp_reader *)reader;
    const int height = reader->image.height;
    enum ddp_status status = DDP_OK;
    r->stored = ddp_array_alloc(r->row_bytes, 1);
    r->row = ddp_array_alloc((size_t)reader->image.width, 3);
    if (!r->stored || !r->row)
        return DDP_ERR_MEMORY;
    for (int y = 0; status == DDP_OK && y < height; y++) {
        const uint64_t row = (uint64_t)(r->top_down ? y : height - 1 - y);
        size_t got;
        status = read_at(r, r->pixels_at + row * r->row_bytes, r->row_bytes, r->stored, &got);
        if (status == DDP_OK && got < r->row_bytes)
            status = ddp_image_fail(reader, "the file is truncated");
        if (status != DDP_OK)
            break;
        set_row(r);
        take(arg, y, r->row);
    }
    return status;
}

static void close_bmp(ddp_image_reader *reader)
{
    struct bmp_reader *r = (struct bmp_reader *)reader;
    free(r->stored);
    free(r->row);
}

const struct ddp_image_format ddp_image_bmp = {
    .name = "BMP",
    .magic = {{0, 2, {'B', 'M'}}},
    .reader_bytes = sizeof(struct bmp_reader),
    .open = open_bmp,
    .read = read_bmp,
    .close = close_bmp,
};

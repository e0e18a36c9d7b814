/* SPDX-License-Identifier: MIT
 *
 * The first picture of GIF files, by giflib. It lies on the canvas as Pillow draws it: what it does
 * not cover has the transparent colour or else the first. */
#include "config.h"

#include "data/image_format.h"

#ifdef HAVE_GIF
#include "core/log.h"
#include "core/memory.h"

#include <gif_lib.h>
#include <stdlib.h>
#include <string.h>

struct gif_reader {
    struct ddp_image_reader base;
    GifFileType *gif;
    uint64_t at;            /* in the blob */
    enum ddp_status status; /* of what failed, when it was already reported */
    bool ended;             /* the file was shorter than it should be */
    int transparent;        /* -1: no colour is */
    unsigned char palette[256][3];
    unsigned char *canvas; /* numbers of colours */
    unsigned char *row;
};

static int read_bytes(GifFileType *gif, GifByteType *to, int count)
{
    struct gif_reader *r = gif->UserData;
    const struct ddp_blob *blob = r->base.blob;
    const uint64_t left = blob->bytes - r->at;
    const size_t got = (uint64_t)count < left ? (size_t)count : (size_t)left;
    const unsigned char *from;
    r->ended = r->ended || got < (size_t)count;
    if (got == 0)
        return 0;
    r->status = ddp_blob_at(blob, r->at, got, to, &from);
    if (r->status != DDP_OK)
        return 0;
    if (from != to)
        memcpy(to, from, got);
    r->at += got;
    return (int)got;
}

static enum ddp_status damaged(const struct gif_reader *r)
{
    return r->status != DDP_OK
               ? r->status
               : ddp_image_fail(&r->base, r->ended ? "the file is truncated" : "it is damaged");
}

/* Of a block before the picture, only which colour is transparent matters. */
static bool skip_extension(struct gif_reader *r)
{
    GifByteType *block;
    GraphicsControlBlock control;
    int code;
    if (DGifGetExtension(r->gif, &code, &block) != GIF_OK)
        return false;
    for (; block; code = CONTINUE_EXT_FUNC_CODE) {
        if (code == GRAPHICS_EXT_FUNC_CODE &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            r->transparent = control.TransparentColor;
        if (DGifGetExtensionNext(r->gif, &block) != GIF_OK)
            return false;
    }
    return true;
}

/* Up to the first picture. */
static enum ddp_status find_picture(struct gif_reader *r)
{
    GifRecordType kind = UNDEFINED_RECORD_TYPE;
    while (DGifGetRecordType(r->gif, &kind) == GIF_OK && kind == EXTENSION_RECORD_TYPE)
        if (!skip_extension(r))
            return damaged(r);
    if (kind == TERMINATE_RECORD_TYPE)
        return ddp_image_fail(&r->base, "there is no picture in it");
    if (kind != IMAGE_DESC_RECORD_TYPE || DGifGetImageDesc(r->gif) != GIF_OK)
        return damaged(r);
    const GifImageDesc *at = &r->gif->Image;
    if (at->Width < 1 || at->Height < 1 || at->Left < 0 || at->Top < 0 ||
        at->Left + at->Width > r->gif->SWidth || at->Top + at->Height > r->gif->SHeight)
        return ddp_image_fail(&r->base, "its picture lies outside its canvas");
    return DDP_OK;
}

/* Returns the channels: a palette of greys only makes a grey image. */
static int set_palette(struct gif_reader *r)
{
    const ColorMapObject *map = r->gif->Image.ColorMap ? r->gif->Image.ColorMap : r->gif->SColorMap;
    int channels = 1;
    for (int i = 0; i < map->ColorCount && i < 256; i++) {
        const GifColorType *colour = &map->Colors[i];
        unsigned char *to = r->palette[i];
        to[0] = colour->Red;
        to[1] = colour->Green;
        to[2] = colour->Blue;
        if (to[0] != to[1] || to[0] != to[2])
            channels = 3;
    }
    return channels;
}

static enum ddp_status open_gif(ddp_image_reader *reader)
{
    struct gif_reader *r = (struct gif_reader *)reader;
    int error = 0;
    r->transparent = NO_TRANSPARENT_COLOR;
    r->gif = DGifOpen(r, read_bytes, &error);
    if (!r->gif)
        return damaged(r);
    enum ddp_status status =
        ddp_image_check_size(reader, (uint64_t)r->gif->SWidth, (uint64_t)r->gif->SHeight);
    if (status == DDP_OK)
        status = find_picture(r);
    if (status == DDP_OK && !r->gif->Image.ColorMap && !r->gif->SColorMap)
        status = ddp_image_fail(reader, "it has no palette");
    if (status == DDP_OK)
        reader->image = (struct ddp_image){r->gif->SWidth, r->gif->SHeight, set_palette(r)};
    return status;
}

/* The picture's rows, which may be stored in four passes, onto the canvas. */
static enum ddp_status draw(struct gif_reader *r)
{
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    const GifImageDesc *at = &r->gif->Image;
    const size_t width = (size_t)r->gif->SWidth;
    for (int pass = 0; pass < (at->Interlace ? 4 : 1); pass++)
        for (int y = at->Interlace ? first[pass] : 0; y < at->Height;
             y += at->Interlace ? step[pass] : 1)
            if (DGifGetLine(r->gif, r->canvas + (size_t)(at->Top + y) * width + at->Left,
                            at->Width) != GIF_OK)
                return damaged(r);
    return DDP_OK;
}

static enum ddp_status read_gif(ddp_image_reader *reader, ddp_image_take *take, void *arg)
{
    struct gif_reader *r = (struct gif_reader *)reader;
    const size_t width = (size_t)reader->image.width, channels = (size_t)reader->image.channels;
    r->canvas = ddp_image_frame(reader, 1);
    r->row = ddp_array_alloc(width, channels);
    if (!r->canvas || !r->row)
        return DDP_ERR_MEMORY;
    if (r->transparent > 0)
        memset(r->canvas, r->transparent, width * (size_t)reader->image.height);
    enum ddp_status status = draw(r);
    for (int y = 0; status == DDP_OK && y < reader->image.height; y++) {
        const unsigned char *from = r->canvas + (size_t)y * width;
        for (size_t x = 0; x < width; x++)
            memcpy(r->row + x * channels, r->palette[from[x]], channels);
        take(arg, y, r->row);
    }
    return status;
}

static void close_gif(ddp_image_reader *reader)
{
    struct gif_reader *r = (struct gif_reader *)reader;
    int error = 0;
    if (r->gif)
        (void)DGifCloseFile(r->gif, &error);
    free(r->canvas);
    free(r->row);
}
#endif

const struct ddp_image_format ddp_image_gif = {
    .name = "GIF",
    .magic = {{0, 6, {'G', 'I', 'F', '8', '7', 'a'}}, {0, 6, {'G', 'I', 'F', '8', '9', 'a'}}},
#ifdef HAVE_GIF
    .reader_bytes = sizeof(struct gif_reader),
    .open = open_gif,
    .read = read_gif,
    .close = close_gif,
#endif
};

/* SPDX-License-Identifier: MIT
 *
 * PNG images, by libpng. Of samples of 16 bits the high byte is taken; transparency is left out, as
 * Pillow's convert("RGB") does. libpng reports errors by a jump: each of its calls stands in a
 * function that attempt() runs, and all that such a function changes is in the reader. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/image_exif.h"
#include "data/image_format.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct png_reader {
    struct ddp_image_reader base;
    png_structp png;
    png_infop info;
    uint64_t at;            /* in the blob */
    enum ddp_status status; /* of what failed, when it was already reported */
    char why[160];          /* ... and when it was not */
    jmp_buf escape;
    ddp_image_take *take;
    void *arg;
    unsigned char *pixels; /* a row; all of them when the image is interlaced */
    png_bytep *rows;       /* interlaced: where each begins */
};

/* --- what libpng calls ------------------------------------------------------------------------ */

PNG_NORETURN static void on_error(png_structp png, png_const_charp message)
{
    struct png_reader *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", message);
    longjmp(r->escape, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* Memory that runs out is the one error that libpng reports without a name. */
static png_voidp alloc(png_structp png, png_alloc_size_t bytes)
{
    struct png_reader *r = png_get_mem_ptr(png);
    void *memory = malloc(bytes);
    if (!memory)
        r->status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", r->base.blob->name);
    return memory;
}

static void release(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static void read_bytes(png_structp png, png_bytep to, size_t count)
{
    struct png_reader *r = png_get_io_ptr(png);
    const struct ddp_blob *blob = r->base.blob;
    const unsigned char *from;
    if (count > blob->bytes - r->at)
        png_error(png, "the file is truncated");
    r->status = ddp_blob_at(blob, r->at, count, to, &from);
    if (r->status != DDP_OK)
        png_error(png, "cannot read");
    if (from != to)
        memcpy(to, from, count);
    r->at += count;
}

/* Runs a step; what libpng reports in it becomes a status. */
static enum ddp_status attempt(struct png_reader *r, void (*step)(struct png_reader *r))
{
    if (setjmp(r->escape) == 0) {
        step(r);
        return DDP_OK;
    }
    return r->status != DDP_OK ? r->status : ddp_image_fail(&r->base, r->why);
}

/* --- the header ------------------------------------------------------------------------------- */

static void read_header(struct png_reader *r)
{
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* they are checked here */
    /* Only what pixels need: other chunks could be compressed, and large. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_AS_DEFAULT, (png_const_bytep) "eXIf", 1);
    png_read_info(r->png, r->info);
}

static int orientation_of(const struct png_reader *r)
{
    png_bytep exif = NULL;
    png_uint_32 bytes = 0;
    return png_get_eXIf_1(r->png, r->info, &bytes, &exif) ? ddp_exif_orientation(exif, bytes) : 1;
}

/* A palette of greys only makes a grey image. */
static bool is_grey(const struct png_reader *r)
{
    png_colorp colours;
    int count;
    const int type = png_get_color_type(r->png, r->info);
    if (type != PNG_COLOR_TYPE_PALETTE)
        return !(type & PNG_COLOR_MASK_COLOR);
    if (!png_get_PLTE(r->png, r->info, &colours, &count))
        return false;
    for (int i = 0; i < count; i++)
        if (colours[i].red != colours[i].green || colours[i].red != colours[i].blue)
            return false;
    return true;
}

static enum ddp_status open_png(ddp_image_reader *reader)
{
    struct png_reader *r = (struct png_reader *)reader;
    r->png =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, r, alloc, release);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info)
        return r->status != DDP_OK ? r->status : ddp_image_fail(reader, "libpng is too old");
    enum ddp_status status = attempt(r, read_header);
    if (status != DDP_OK)
        return status;
    const uint64_t width = png_get_image_width(r->png, r->info);
    const uint64_t height = png_get_image_height(r->png, r->info);
    status = ddp_image_check_size(reader, width, height);
    reader->orientation = orientation_of(r);
    if (status == DDP_OK)
        reader->image = (struct ddp_image){(int)width, (int)height, is_grey(r) ? 1 : 3};
    return status;
}

/* --- the pixels ------------------------------------------------------------------------------- */

/* To 8 bits and 1 or 3 channels. */
static void set_transformations(struct png_reader *r)
{
    const int type = png_get_color_type(r->png, r->info);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(r->png);
    else if (type == PNG_COLOR_TYPE_GRAY)
        png_set_expand_gray_1_2_4_to_8(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

/* A grey image with a palette is read in three equal channels. */
static void give_row(struct png_reader *r, int row, unsigned char *pixels)
{
    if (r->base.image.channels == 1 && png_get_channels(r->png, r->info) == 3)
        for (int x = 0; x < r->base.image.width; x++)
            pixels[x] = pixels[3 * (size_t)x];
    r->take(r->arg, row, pixels);
}

static void read_rows(struct png_reader *r)
{
    const int height = r->base.image.height;
    for (int row = 0; !r->rows && row < height; row++) {
        png_read_row(r->png, r->pixels, NULL);
        give_row(r, row, r->pixels);
    }
    if (r->rows)
        png_read_image(r->png, r->rows);
    for (int row = 0; r->rows && row < height; row++)
        give_row(r, row, r->rows[row]);
    png_read_end(r->png, NULL);
}

static enum ddp_status alloc_rows(struct png_reader *r)
{
    const size_t row = png_get_rowbytes(r->png, r->info), height = (size_t)r->base.image.height;
    const bool interlaced = png_get_interlace_type(r->png, r->info) != PNG_INTERLACE_NONE;
    r->pixels = ddp_array_alloc(interlaced ? height : 1, row);
    if (!r->pixels)
        return DDP_ERR_MEMORY;
    if (!interlaced)
        return DDP_OK;
    r->rows = ddp_array_alloc(height, sizeof *r->rows);
    for (size_t i = 0; r->rows && i < height; i++)
        r->rows[i] = r->pixels + i * row;
    return r->rows ? DDP_OK : DDP_ERR_MEMORY;
}

static enum ddp_status read_png(ddp_image_reader *reader, ddp_image_take *take, void *arg)
{
    struct png_reader *r = (struct png_reader *)reader;
    r->take = take;
    r->arg = arg;
    enum ddp_status status = attempt(r, set_transformations);
    if (status == DDP_OK)
        status = alloc_rows(r);
    if (status == DDP_OK)
        status = attempt(r, read_rows);
    return status;
}

static void close_png(ddp_image_reader *reader)
{
    struct png_reader *r = (struct png_reader *)reader;
    png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r->pixels);
    free(r->rows);
}

const struct ddp_image_format ddp_image_png = {
    .name = "PNG",
    .magic = {{0, 8, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}}},
    .reader_bytes = sizeof(struct png_reader),
    .open = open_png,
    .read = read_png,
    .close = close_png,
};

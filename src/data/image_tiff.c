/* SPDX-License-Identifier: MIT
 *
 * The first image of TIFF files, by libtiff: 16 bits a channel become 8, alpha is left out, other
 * colours become RGB. */
#include "config.h"

#include "data/image_format.h"

#ifdef HAVE_TIFF
#include "core/log.h"
#include "core/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

#define MAX_ALLOC (1 << 30) /* bytes that libtiff may take at once, whatever a file claims */

struct tiff_reader {
    struct ddp_image_reader base;
    TIFF *tiff;
    uint64_t at;            /* in the blob */
    enum ddp_status status; /* of what failed, when it was already reported */
    char why[1024];         /* libtiff's first complaint */
    uint32_t *pixels;
    unsigned char *row;
};

/* --- what libtiff calls ----------------------------------------------------------------------- */

DDP_PRINTF(4, 0)
static int on_error(TIFF *tiff, void *arg, const char *module, const char *format, va_list args)
{
    struct tiff_reader *r = arg;
    (void)tiff;
    (void)module;
    if (!*r->why)
        vsnprintf(r->why, sizeof r->why, format, args);
    return 1;
}

static int on_warning(TIFF *tiff, void *arg, const char *module, const char *format, va_list args)
{
    (void)tiff;
    (void)arg;
    (void)module;
    (void)format;
    (void)args;
    return 1;
}

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t count)
{
    struct tiff_reader *r = handle;
    const struct ddp_blob *blob = r->base.blob;
    const uint64_t left = r->at < blob->bytes ? blob->bytes - r->at : 0;
    const size_t got = (uint64_t)count < left ? (size_t)count : (size_t)left;
    const unsigned char *from;
    if (got == 0)
        return 0;
    r->status = ddp_blob_at(blob, r->at, got, to, &from);
    if (r->status != DDP_OK)
        return -1;
    if (from != to)
        memcpy(to, from, got);
    r->at += got;
    return (tmsize_t)got;
}

static tmsize_t write_bytes(thandle_t handle, void *from, tmsize_t count)
{
    (void)handle;
    (void)from;
    (void)count;
    return -1;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
    struct tiff_reader *r = handle;
    r->at = offset + (whence == SEEK_CUR ? r->at : whence == SEEK_END ? r->base.blob->bytes : 0);
    return r->at;
}

static toff_t size_of(thandle_t handle)
{
    const struct tiff_reader *r = handle;
    return r->base.blob->bytes;
}

static int ignore_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

/* --- the header ------------------------------------------------------------------------------- */

static enum ddp_status damaged(const struct tiff_reader *r)
{
    return r->status != DDP_OK ? r->status
                               : ddp_image_fail(&r->base, *r->why ? r->why : "it is damaged");
}

static TIFF *open_blob(struct tiff_reader *r)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return NULL;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MAX_ALLOC);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, r);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, r);
    TIFF *tiff = TIFFClientOpenExt(r->base.blob->name, "rm", r, read_bytes, write_bytes, seek,
                                   ignore_close, size_of, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
}

/* Colours that are multiplied by their alpha stay as they are stored: libtiff would multiply those
 * that are not, and lose what is below a transparent pixel. */
static void leave_alpha(TIFF *tiff)
{
    uint16_t count, *kinds;
    if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) && count == 1 &&
        kinds[0] == EXTRASAMPLE_UNASSALPHA) {
        const uint16_t as_stored = EXTRASAMPLE_ASSOCALPHA;
        TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &as_stored);
    }
}

static enum ddp_status open_tiff(ddp_image_reader *reader)
{
    struct tiff_reader *r = (struct tiff_reader *)reader;
    uint32_t width = 0, height = 0;
    uint16_t colours = 0, orientation = 0;
    r->tiff = open_blob(r);
    if (!r->tiff)
        return damaged(r);
    (void)TIFFGetField(r->tiff, TIFFTAG_IMAGEWIDTH, &width);
    (void)TIFFGetField(r->tiff, TIFFTAG_IMAGELENGTH, &height);
    (void)TIFFGetField(r->tiff, TIFFTAG_PHOTOMETRIC, &colours);
    (void)TIFFGetFieldDefaulted(r->tiff, TIFFTAG_ORIENTATION, &orientation);
    enum ddp_status status = ddp_image_check_size(reader, width, height);
    if (status != DDP_OK)
        return status;
    if (!TIFFRGBAImageOK(r->tiff, r->why))
        return damaged(r);
    leave_alpha(r->tiff);
    const bool grey = colours == PHOTOMETRIC_MINISBLACK || colours == PHOTOMETRIC_MINISWHITE;
    reader->image = (struct ddp_image){(int)width, (int)height, grey ? 1 : 3};
    reader->orientation = orientation <= 8 ? orientation : ORIENTATION_TOPLEFT;
    return DDP_OK;
}

/* --- the pixels ------------------------------------------------------------------------------- */

static enum ddp_status read_tiff(ddp_image_reader *reader, ddp_image_take *take, void *arg)
{
    struct tiff_reader *r = (struct tiff_reader *)reader;
    const size_t width = (size_t)reader->image.width, channels = (size_t)reader->image.channels;
    const uint32_t height = (uint32_t)reader->image.height;
    /* Turned by image_file.c as other formats are: as if it were wanted as it is stored. */
    const int wanted = reader->orientation ? reader->orientation : ORIENTATION_TOPLEFT;
    r->pixels = (void *)ddp_image_frame(reader, sizeof *r->pixels);
    r->row = ddp_array_alloc(width, channels);
    if (!r->pixels || !r->row)
        return DDP_ERR_MEMORY;
    if (!TIFFReadRGBAImageOriented(r->tiff, (uint32_t)width, height, r->pixels, wanted, 1))
        return damaged(r);
    for (uint32_t y = 0; y < height; y++) {
        const uint32_t *from = r->pixels + y * width;
        unsigned char *to = r->row;
        for (size_t x = 0; x < width; x++, to += channels) {
            to[0] = (unsigned char)TIFFGetR(from[x]);
            if (channels == 3) {
                to[1] = (unsigned char)TIFFGetG(from[x]);
                to[2] = (unsigned char)TIFFGetB(from[x]);
            }
        }
        take(arg, (int)y, r->row);
    }
    return DDP_OK;
}

static void close_tiff(ddp_image_reader *reader)
{
    struct tiff_reader *r = (struct tiff_reader *)reader;
    if (r->tiff)
        TIFFClose(r->tiff);
    free(r->pixels);
    free(r->row);
}
#endif

const struct ddp_image_format ddp_image_tiff = {
    .name = "TIFF",
    .magic = {{0, 4, {'I', 'I', 42, 0}},
              {0, 4, {'M', 'M', 0, 42}},
              {0, 4, {'I', 'I', 43, 0}}, /* of more than 4 GiB */
              {0, 4, {'M', 'M', 0, 43}}},
#ifdef HAVE_TIFF
    .reader_bytes = sizeof(struct tiff_reader),
    .open = open_tiff,
    .read = read_tiff,
    .close = close_tiff,
#endif
};

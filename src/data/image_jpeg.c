/* SPDX-License-Identifier: MIT
 *
 * JPEG images, by libjpeg (libjpeg-turbo), whose default arithmetic gives the same pixels on all
 * machines. CMYK is taken as Adobe writes it, inverted, and becomes RGB, as Pillow does it.
 * libjpeg reports errors by a jump: each of its calls stands in
 * a function that attempt() runs, and all that such a function changes is in the reader. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/image_exif.h"
#include "data/image_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It uses types of stdio.h. */
#include <jpeglib.h>

#include <jerror.h>
#include <setjmp.h>

#define CHUNK_BYTES  16384
#define EXIF_MARKER  (JPEG_APP0 + 1)
#define MARKER_BYTES 65533

/* Each scan of a progressive image is a pass over all pixels, whatever its bytes: encoders make ten
 * or so. */
#define MAX_SCANS     500
#define MAX_SCAN_WORK (UINT64_C(1) << 32) /* pixels x scans */

struct jpeg_reader {
    struct ddp_image_reader base;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    bool created;
    bool ended;             /* the file ends before the image does */
    uint64_t at;            /* of the next chunk in the blob */
    enum ddp_status status; /* of what failed, when it was already reported */
    char why[JMSG_LENGTH_MAX];
    jmp_buf escape;
    ddp_image_take *take;
    void *arg;
    unsigned char *pixels; /* a row */
    unsigned char chunk[CHUNK_BYTES];
};

static struct jpeg_reader *reader_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

/* --- what libjpeg calls ----------------------------------------------------------------------- */

_Noreturn static void on_error(j_common_ptr jpeg)
{
    struct jpeg_reader *r = reader_of(jpeg);
    jpeg->err->format_message(jpeg, r->why);
    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
        r->status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", r->base.blob->name);
    longjmp(r->escape, 1);
}

_Noreturn static void give_up(struct jpeg_reader *r, const char *why)
{
    snprintf(r->why, sizeof r->why, "%s", why);
    longjmp(r->escape, 1);
}

/* Warnings of pixels that are guesses are errors. Others, of bytes between markers for example, are
 * in many files that any program shows well. */
static void on_message(j_common_ptr jpeg, int level)
{
    struct jpeg_reader *r = reader_of(jpeg);
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_NOT_SEQUENTIAL:
        if (r->ended)
            give_up(r, "the file is truncated");
        on_error(jpeg);
    default:
        return;
    }
}

static void on_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void begin_source(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

/* An image of one scan may lack the marker of its end: whether it lacks pixels too is seen when
 * they are decoded. */
static boolean fill_buffer(j_decompress_ptr jpeg)
{
    static const JOCTET end[] = {0xff, JPEG_EOI};
    struct jpeg_reader *r = reader_of((j_common_ptr)jpeg);
    const struct ddp_blob *blob = r->base.blob;
    const uint64_t left = blob->bytes - r->at;
    const size_t count = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    if (count == 0) {
        if (!r->pixels || jpeg_has_multiple_scans(jpeg))
            give_up(r, "the file is truncated");
        r->ended = true;
        r->source.next_input_byte = end;
        r->source.bytes_in_buffer = sizeof end;
        return TRUE;
    }
    r->status = ddp_blob_at(blob, r->at, count, r->chunk, &r->source.next_input_byte);
    if (r->status != DDP_OK)
        longjmp(r->escape, 1);
    r->source.bytes_in_buffer = count;
    r->at += count;
    return TRUE;
}

static void skip_bytes(j_decompress_ptr jpeg, long count)
{
    struct jpeg_reader *r = reader_of((j_common_ptr)jpeg);
    if (count <= 0)
        return;
    const size_t skipped = (size_t)count, here = r->source.bytes_in_buffer;
    if (skipped <= here) {
        r->source.next_input_byte += skipped;
        r->source.bytes_in_buffer -= skipped;
        return;
    }
    const uint64_t left = r->base.blob->bytes - r->at;
    r->at += skipped - here < left ? skipped - here : left;
    r->source.bytes_in_buffer = 0;
}

static void end_source(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

static void on_progress(j_common_ptr jpeg)
{
    struct jpeg_reader *r = reader_of(jpeg);
    const uint64_t scans = (uint64_t)r->jpeg.input_scan_number;
    if (scans > MAX_SCANS ||
        scans * r->jpeg.image_width * (uint64_t)r->jpeg.image_height > MAX_SCAN_WORK)
        give_up(r, "it has too many scans");
}

/* Runs a step; what libjpeg reports in it becomes a status. */
static enum ddp_status attempt(struct jpeg_reader *r, void (*step)(struct jpeg_reader *r))
{
    if (setjmp(r->escape) == 0) {
        step(r);
        return DDP_OK;
    }
    return r->status != DDP_OK ? r->status : ddp_image_fail(&r->base, r->why);
}

/* --- the header ------------------------------------------------------------------------------- */

static void read_header(struct jpeg_reader *r)
{
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = on_output;
    r->jpeg.client_data = r;
    jpeg_create_decompress(&r->jpeg);
    r->created = true;
    r->jpeg.client_data = r;
    r->source = (struct jpeg_source_mgr){
        .init_source = begin_source,
        .fill_input_buffer = fill_buffer,
        .skip_input_data = skip_bytes,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = end_source,
    };
    r->jpeg.src = &r->source;
    r->progress.progress_monitor = on_progress;
    r->jpeg.progress = &r->progress;
    jpeg_save_markers(&r->jpeg, EXIF_MARKER, MARKER_BYTES);
    (void)jpeg_read_header(&r->jpeg, TRUE);
    switch (r->jpeg.jpeg_color_space) {
    case JCS_GRAYSCALE:
        r->jpeg.out_color_space = JCS_GRAYSCALE;
        break;
    case JCS_YCbCr:
    case JCS_RGB:
        r->jpeg.out_color_space = JCS_RGB;
        break;
    case JCS_CMYK:
    case JCS_YCCK:
        r->jpeg.out_color_space = JCS_CMYK;
        break;
    default:
        give_up(r, "its colours are not grey, RGB, YCbCr or CMYK");
    }
}

/* Other markers of this kind hold XMP. */
static int orientation_of(const struct jpeg_reader *r)
{
    for (const struct jpeg_marker_struct *m = r->jpeg.marker_list; m; m = m->next)
        if (m->marker == EXIF_MARKER && m->data_length > 6 && memcmp(m->data, "Exif\0", 6) == 0)
            return ddp_exif_orientation(m->data, m->data_length);
    return 1;
}

static enum ddp_status open_jpeg(ddp_image_reader *reader)
{
    struct jpeg_reader *r = (struct jpeg_reader *)reader;
    enum ddp_status status = attempt(r, read_header);
    if (status == DDP_OK)
        status = ddp_image_check_size(reader, r->jpeg.image_width, r->jpeg.image_height);
    reader->orientation = orientation_of(r);
    if (status == DDP_OK)
        reader->image = (struct ddp_image){(int)r->jpeg.image_width, (int)r->jpeg.image_height,
                                           r->jpeg.out_color_space == JCS_GRAYSCALE ? 1 : 3};
    return status;
}

static void reduce_jpeg(ddp_image_reader *reader, int factor)
{
    struct jpeg_reader *r = (struct jpeg_reader *)reader;
    r->jpeg.scale_num = 1;
    r->jpeg.scale_denom = (unsigned)factor;
    reader->image.width = (reader->image.width + factor - 1) / factor;
    reader->image.height = (reader->image.height + factor - 1) / factor;
}

/* --- the pixels ------------------------------------------------------------------------------- */

static unsigned multiply(unsigned a, unsigned b)
{
    const unsigned product = a * b + 128; /* a * b / 255, rounded */
    return ((product >> 8) + product) >> 8;
}

/* In place, from inverted CMYK. */
static void cmyk_to_rgb(unsigned char *pixels, int width)
{
    for (int x = 0; x < width; x++) {
        const unsigned char *cmyk = pixels + 4 * (size_t)x;
        unsigned char *rgb = pixels + 3 * (size_t)x;
        const unsigned white = cmyk[3];
        const unsigned ink[3] = {255u - cmyk[0], 255u - cmyk[1], 255u - cmyk[2]};
        for (int c = 0; c < 3; c++)
            rgb[c] = (unsigned char)(white - multiply(ink[c], white));
    }
}

static void read_rows(struct jpeg_reader *r)
{
    (void)jpeg_start_decompress(&r->jpeg);
    if ((int)r->jpeg.output_width != r->base.image.width ||
        (int)r->jpeg.output_height != r->base.image.height)
        give_up(r, "this libjpeg gives it another size");
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        const int row = (int)r->jpeg.output_scanline;
        (void)jpeg_read_scanlines(&r->jpeg, &r->pixels, 1);
        if (r->jpeg.out_color_space == JCS_CMYK)
            cmyk_to_rgb(r->pixels, r->base.image.width);
        r->take(r->arg, row, r->pixels);
    }
    (void)jpeg_finish_decompress(&r->jpeg);
}

static enum ddp_status read_jpeg(ddp_image_reader *reader, ddp_image_take *take, void *arg)
{
    struct jpeg_reader *r = (struct jpeg_reader *)reader;
    r->take = take;
    r->arg = arg;
    r->pixels = ddp_array_alloc((size_t)reader->image.width, 4);
    return r->pixels ? attempt(r, read_rows) : DDP_ERR_MEMORY;
}

static void close_jpeg(ddp_image_reader *reader)
{
    struct jpeg_reader *r = (struct jpeg_reader *)reader;
    if (r->created)
        jpeg_destroy_decompress(&r->jpeg);
    free(r->pixels);
}

const struct ddp_image_format ddp_image_jpeg = {
    .name = "JPEG",
    .magic = {{0, 3, {0xff, 0xd8, 0xff}}},
    .reader_bytes = sizeof(struct jpeg_reader),
    .open = open_jpeg,
    .reduce = reduce_jpeg,
    .read = read_jpeg,
    .close = close_jpeg,
};

/* SPDX-License-Identifier: MIT
 *
 * See byte_source.h. zlib's own gzread() would take a damaged stream for plain data and overlook
 * what follows it. */
#include "config.h"

#include "data/byte_source.h"

#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>
#include <zlib.h>

#define CHUNK_BYTES (64u << 10)
#define GZIP_WINDOW (15 + 16) /* the largest window, and a gzip header is required */

struct ddp_byte_source {
    FILE *file;
    const char *name;
    bool compressed;
    bool between_members; /* a gzip member has ended; another may begin */
    bool end_of_file;
    z_stream stream; /* next_in and avail_in are the unread part of the chunk */
    unsigned char chunk[CHUNK_BYTES];
};

/* Gets more input once all is used; avail_in stays 0 at the end of the file. */
static enum ddp_status refill(struct ddp_byte_source *s)
{
    if (s->stream.avail_in > 0 || s->end_of_file)
        return DDP_OK;
    size_t n = fread(s->chunk, 1, CHUNK_BYTES, s->file);
    if (n < CHUNK_BYTES) {
        if (ferror(s->file))
            return ddp_fail_path(s->name, "read");
        s->end_of_file = true;
    }
    s->stream.next_in = s->chunk;
    s->stream.avail_in = (uInt)n;
    return DDP_OK;
}

static enum ddp_status open_stream(struct ddp_byte_source *s)
{
    unsigned char start[2];
    const bool whole = fread(start, 1, sizeof start, s->file) == sizeof start;
    if (ferror(s->file))
        return ddp_fail_path(s->name, "read");
    rewind(s->file);
    s->compressed = whole && start[0] == 0x1f && start[1] == 0x8b;
    if (s->compressed && inflateInit2(&s->stream, GZIP_WINDOW) != Z_OK)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory for decompression", s->name);
    return DDP_OK;
}

enum ddp_status ddp_byte_source_open(ddp_byte_source **source, FILE *file, const char *name)
{
    struct ddp_byte_source *s = ddp_array_alloc(1, sizeof *s);
    if (!s)
        return DDP_ERR_MEMORY;
    s->file = file;
    s->name = name;
    enum ddp_status status = open_stream(s);
    if (status != DDP_OK) {
        free(s);
        return status;
    }
    *source = s;
    return DDP_OK;
}

void ddp_byte_source_close(ddp_byte_source *source)
{
    if (!source)
        return;
    if (source->compressed)
        inflateEnd(&source->stream);
    free(source);
}

/* Takes one step of decompression; *ended: the last member is complete. */
static enum ddp_status inflate_some(struct ddp_byte_source *s, bool *ended)
{
    enum ddp_status status = refill(s);
    if (status != DDP_OK)
        return status;
    if (s->between_members) {
        if (s->stream.avail_in == 0) {
            *ended = true;
            return DDP_OK;
        }
        if (*s->stream.next_in != 0x1f)
            return ddp_fail(DDP_ERR_FORMAT, "%s: there is data after the end of the gzip stream",
                            s->name);
        inflateReset(&s->stream);
        s->between_members = false;
    }
    if (s->stream.avail_in == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: truncated: the gzip stream ends too early", s->name);
    switch (inflate(&s->stream, Z_NO_FLUSH)) {
    case Z_STREAM_END:
        s->between_members = true;
        return DDP_OK;
    case Z_OK:
    case Z_BUF_ERROR: /* needs more input or more room: the caller comes again */
        return DDP_OK;
    case Z_MEM_ERROR:
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory for decompression", s->name);
    default:
        return ddp_fail(DDP_ERR_FORMAT, "%s: corrupt gzip stream: %s", s->name,
                        s->stream.msg ? s->stream.msg : "unknown error");
    }
}

static enum ddp_status read_compressed(struct ddp_byte_source *s, unsigned char *data, size_t bytes,
                                       size_t *got)
{
    size_t done = 0;
    bool ended = false;
    while (done < bytes && !ended) {
        size_t room = bytes - done;
        uInt piece = room > (1u << 30) ? 1u << 30 : (uInt)room;
        s->stream.next_out = data + done;
        s->stream.avail_out = piece;
        enum ddp_status status = inflate_some(s, &ended);
        done += piece - s->stream.avail_out;
        if (status != DDP_OK)
            return status;
    }
    *got = done;
    return DDP_OK;
}

enum ddp_status ddp_byte_source_read(ddp_byte_source *source, void *data, size_t bytes, size_t *got)
{
    if (source->compressed)
        return read_compressed(source, data, bytes, got);
    *got = fread(data, 1, bytes, source->file);
    return *got < bytes && ferror(source->file) ? ddp_fail_path(source->name, "read") : DDP_OK;
}

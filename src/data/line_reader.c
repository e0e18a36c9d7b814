/* SPDX-License-Identifier: MIT
 *
 * See line_reader.h. */
#include "config.h"

#include "data/line_reader.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/byte_source.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)4 << 20)
#define MOST_BYTES   ((size_t)1 << 30) /* of a line */

static const char byte_order_mark[] = "\xef\xbb\xbf"; /* Windows begins texts with it */

struct ddp_line_reader {
    char *path;
    FILE *file;
    ddp_byte_source *source;
    char *buffer;
    size_t begin, end, room; /* what is not yet given is [begin, end) */
    uint64_t number;         /* of the last line */
    bool started, ended;
};

enum ddp_status ddp_line_reader_open(ddp_line_reader **reader, const char *path)
{
    ddp_line_reader *r = ddp_array_alloc(1, sizeof *r);
    if (!r)
        return DDP_ERR_MEMORY;
    enum ddp_status status = DDP_OK;
    if (!(r->path = strdup(path)))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    if (status == DDP_OK && !(r->file = fopen(path, "rbe")))
        status = ddp_fail_path(path, "open");
    if (status == DDP_OK)
        status = ddp_byte_source_open(&r->source, r->file, r->path);
    if (status != DDP_OK) {
        ddp_line_reader_close(r);
        return status;
    }
    *reader = r;
    return DDP_OK;
}

void ddp_line_reader_close(ddp_line_reader *reader)
{
    if (!reader)
        return;
    ddp_byte_source_close(reader->source);
    if (reader->file)
        fclose(reader->file);
    free(reader->buffer);
    free(reader->path);
    free(reader);
}

static enum ddp_status grow(ddp_line_reader *r)
{
    const size_t room = r->room ? 2 * r->room : BUFFER_BYTES;
    char *grown = room <= MOST_BYTES ? realloc(r->buffer, room) : NULL;
    if (room > MOST_BYTES)
        return ddp_fail(DDP_ERR_FORMAT, "%s: line %llu is longer than %zu bytes", r->path,
                        (unsigned long long)r->number + 1, MOST_BYTES);
    if (!grown)
        return ddp_fail(DDP_ERR_MEMORY, "%s: line %llu: out of memory", r->path,
                        (unsigned long long)r->number + 1);
    r->buffer = grown;
    r->room = room;
    return DDP_OK;
}

/* Moves the rest to the front and reads until the buffer is full. */
static enum ddp_status fill(ddp_line_reader *r)
{
    enum ddp_status status = DDP_OK;
    size_t got = 0;
    if (r->begin == 0 && r->end == r->room)
        status = grow(r);
    if (status != DDP_OK)
        return status;
    memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
    r->end -= r->begin;
    r->begin = 0;
    status = ddp_byte_source_read(r->source, r->buffer + r->end, r->room - r->end, &got);
    r->ended = got < r->room - r->end;
    r->end += got;
    const size_t mark = sizeof byte_order_mark - 1;
    if (!r->started && r->end >= mark && memcmp(r->buffer, byte_order_mark, mark) == 0)
        r->begin = mark;
    r->started = true;
    return status;
}

static bool is_blank(const char *line, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && line[i] && strchr(" \t\r", line[i]))
        i++;
    return i == bytes;
}

/* The lines that are whole in the buffer; at the end of the file the last one is. */
static enum ddp_status take(ddp_line_reader *r, struct ddp_line *lines, size_t most, size_t *count)
{
    while (*count < most && r->begin < r->end) {
        const char *at = r->buffer + r->begin;
        const char *end = memchr(at, '\n', r->end - r->begin);
        if (!end && !r->ended)
            break;
        const size_t bytes = end ? (size_t)(end - at) : r->end - r->begin;
        r->begin += bytes + (end != NULL);
        if (++r->number > UINT32_MAX)
            return ddp_fail(DDP_ERR_FORMAT, "%s: more than %lu lines", r->path,
                            (unsigned long)UINT32_MAX);
        if (!is_blank(at, bytes))
            lines[(*count)++] = (struct ddp_line){at, bytes, (uint32_t)r->number};
    }
    return DDP_OK;
}

enum ddp_status ddp_line_reader_next(ddp_line_reader *reader, struct ddp_line *lines, size_t most,
                                     size_t *count)
{
    *count = 0;
    for (;;) {
        const enum ddp_status status = take(reader, lines, most, count);
        if (status != DDP_OK || *count > 0 || (reader->ended && reader->begin == reader->end))
            return status;
        const enum ddp_status filled = fill(reader);
        if (filled != DDP_OK)
            return filled;
    }
}

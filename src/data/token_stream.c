/* SPDX-License-Identifier: MIT
 *
 * See token_stream.h. */
#include "config.h"

#include "data/token_stream.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/encode.h"

#include <stdlib.h>

#define KEEP_OPEN 256 /* files; where there are more, each is opened when it is read */

/* Places every file, when all are open. */
static void place(struct ddp_token_stream *s)
{
    s->text = true;
    for (size_t i = 0; i < s->file_count; i++)
        s->text = s->text && s->files[i].tokens.text;
    for (size_t i = 0; i < s->file_count; i++) {
        struct ddp_token_stream_file *file = &s->files[i];
        s->token_count += s->text && i > 0; /* the newline */
        file->first = s->token_count;
        s->token_count += file->tokens.count;
        if (file->tokens.vocabulary > s->vocabulary)
            s->vocabulary = file->tokens.vocabulary;
    }
}

enum ddp_status ddp_token_stream_open(struct ddp_token_stream **stream,
                                      const struct ddp_data_names *files, enum ddp_token_kind kind)
{
    const bool keep = files->count <= KEEP_OPEN;
    const uint64_t most = ddp_memory_total() / 2;
    uint64_t held = 0;
    struct ddp_token_stream *s = ddp_array_alloc(1, sizeof *s);
    if (!s)
        return DDP_ERR_MEMORY;
    s->users = 1;
    s->files = ddp_array_alloc(files->count, sizeof *s->files);
    enum ddp_status status = s->files ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < files->count; i++) {
        struct ddp_token_file *tokens = &s->files[i].tokens;
        status =
            ddp_token_file_open(tokens, files->at[i], kind, keep, held < most ? most - held : 0);
        s->file_count += status == DDP_OK;
        if (status == DDP_OK && tokens->memory)
            held += tokens->blob.bytes;
    }
    if (status != DDP_OK) {
        ddp_token_stream_close(s);
        return status;
    }
    place(s);
    s->memory_bytes = s->file_count * sizeof *s->files + (size_t)held;
    *stream = s;
    return DDP_OK;
}

enum ddp_status ddp_token_stream_take(struct ddp_token_stream **stream, struct ddp_encoded *encoded)
{
    struct ddp_token_stream *s = ddp_array_alloc(1, sizeof *s);
    struct ddp_token_stream_file *file = ddp_array_alloc(1, sizeof *file);
    if (!s || !file) {
        free(s);
        free(file);
        ddp_encode_close(encoded);
        return DDP_ERR_MEMORY;
    }
    file->tokens = (struct ddp_token_file){
        .file.fd = -1,
        .blob = encoded->blob,
        .count = encoded->facts.token_count,
        .width = (int)encoded->facts.width,
        .vocabulary = encoded->facts.largest + 1,
    };
    s->users = 1;
    s->files = file;
    s->file_count = 1;
    s->encoded = encoded;
    place(s);
    s->memory_bytes = sizeof *file + (encoded->memory ? (size_t)encoded->blob.bytes : 0);
    *stream = s;
    return DDP_OK;
}

void ddp_token_stream_close(struct ddp_token_stream *stream)
{
    if (!stream || --stream->users > 0)
        return;
    for (size_t i = 0; i < stream->file_count; i++)
        ddp_token_file_close(&stream->files[i].tokens);
    ddp_encode_close(stream->encoded);
    free(stream->files);
    free(stream);
}

/* The last file that begins there or before. */
static const struct ddp_token_stream_file *find(const struct ddp_token_stream *s, int64_t token)
{
    size_t low = 0, high = s->file_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (s->files[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return &s->files[low];
}

enum ddp_status ddp_token_stream_read(const struct ddp_token_stream *stream, int64_t first,
                                      size_t count, int64_t vocabulary, void *raw, int32_t *out)
{
    enum ddp_status status = DDP_OK;
    for (size_t n; status == DDP_OK && count > 0; first += (int64_t)n, out += n, count -= n) {
        const struct ddp_token_stream_file *file = find(stream, first);
        const int64_t within = first - file->first, left = file->tokens.count - within;
        n = left < (int64_t)count ? (size_t)left : count;
        if (left > 0)
            status = ddp_token_file_read(&file->tokens, within, n, vocabulary, raw, out);
        else {
            n = 1;
            *out = '\n';
        }
    }
    return status;
}

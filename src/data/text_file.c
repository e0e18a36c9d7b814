/* SPDX-License-Identifier: MIT
 *
 * See text_file.h. A document is never longer than its JSON, so the documents are written over the
 * lines that they come from. */
#include "config.h"

#include "data/text_file.h"

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "data/byte_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES ((size_t)1 << 16)

static const char byte_order_mark[] = "\xef\xbb\xbf"; /* Windows begins texts with it */

bool ddp_text_is_jsonl(const char *path)
{
    return ddp_text_ends_with(path, ".jsonl") || ddp_text_ends_with(path, ".jsonl.gz") ||
           ddp_text_ends_with(path, ".json") || ddp_text_ends_with(path, ".json.gz");
}

/* --- unpacking -------------------------------------------------------------------------------- */

static enum ddp_status resize(struct ddp_text *text, size_t room, const char *name)
{
    unsigned char *grown = realloc(text->at, room ? room : 1);
    if (!grown)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory: unpacked it has more than %zu bytes",
                        name, text->bytes);
    text->at = grown;
    return DDP_OK;
}

static enum ddp_status unpack(struct ddp_text *text, ddp_byte_source *source, const char *name,
                              uint64_t most)
{
    enum ddp_status status = DDP_OK;
    for (size_t room = 0, got = 1; status == DDP_OK && got > 0;) {
        if (text->bytes > most)
            return ddp_fail(DDP_ERR_MEMORY,
                            "%s: out of memory: unpacked it has more than %" PRIu64
                            " bytes, and texts may take half of the machine's memory: use plain "
                            "text (.txt), which is read as needed",
                            name, most);
        if (text->bytes == room) {
            room = room ? 2 * room : FIRST_BYTES;
            status = resize(text, room, name);
        }
        if (status == DDP_OK)
            status = ddp_byte_source_read(source, text->at + text->bytes, room - text->bytes, &got);
        if (status == DDP_OK)
            text->bytes += got;
    }
    return status;
}

/* --- JSON lines ------------------------------------------------------------------------------- */

/* The document of a line; *root is freed with json_decref(). */
static enum ddp_status parse_line(json_t **root, const char *line, size_t bytes, const char *name,
                                  int64_t number)
{
    json_error_t error;
    enum ddp_status status =
        ddp_json_parse_flags(root, line, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(status, "%s: line %" PRId64 ", column %d: %s", name, number, error.column,
                        error.text);
    if (status == DDP_OK && !json_is_string(json_object_get(*root, "text")) &&
        (json_object_get(*root, "messages") || json_object_get(*root, "completion") ||
         json_object_get(*root, "conversations") || json_object_get(*root, "instruction")))
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: line %" PRId64
                          ": it has no \"text\": prompts and chats need a tokenizer: name one with "
                          "--tokenizer PATH, or a directory that has one with --load DIR",
                          name, number);
    else if (status == DDP_OK && !json_is_string(json_object_get(*root, "text")))
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: line %" PRId64
                          ": no text in it: each line must be an object with a string \"text\", "
                          "such as {\"text\": \"Once\"}",
                          name, number);
    return status;
}

static bool is_blank(const unsigned char *line, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && strchr(" \t\r", line[i]) && line[i])
        i++;
    return i == bytes;
}

static enum ddp_status lines_to_documents(struct ddp_text *text, const char *name)
{
    const size_t mark = sizeof byte_order_mark - 1;
    size_t at = text->bytes >= mark && memcmp(text->at, byte_order_mark, mark) == 0 ? mark : 0;
    size_t used = 0, documents = 0;
    enum ddp_status status = DDP_OK;
    for (int64_t number = 1; status == DDP_OK && at < text->bytes; number++) {
        json_t *root = NULL;
        const unsigned char *line = text->at + at;
        const unsigned char *end = memchr(line, '\n', text->bytes - at);
        const size_t bytes = end ? (size_t)(end - line) : text->bytes - at;
        at += bytes + (end != NULL);
        if (is_blank(line, bytes))
            continue;
        status = parse_line(&root, (const char *)line, bytes, name, number);
        if (status == DDP_OK) {
            const json_t *document = json_object_get(root, "text");
            if (documents++ > 0)
                text->at[used++] = '\n';
            memcpy(text->at + used, json_string_value(document), json_string_length(document));
            used += json_string_length(document);
        }
        json_decref(root);
    }
    text->bytes = used;
    return status;
}

enum ddp_status ddp_text_read(struct ddp_text *text, FILE *file, const char *name, bool jsonl,
                              uint64_t most)
{
    ddp_byte_source *source = NULL;
    enum ddp_status status = ddp_byte_source_open(&source, file, name);
    if (status == DDP_OK)
        status = unpack(text, source, name, most);
    ddp_byte_source_close(source);
    if (status == DDP_OK && jsonl)
        status = lines_to_documents(text, name);
    if (status == DDP_OK)
        status = resize(text, text->bytes, name);
    if (status != DDP_OK) {
        free(text->at);
        *text = (struct ddp_text){0};
    }
    return status;
}

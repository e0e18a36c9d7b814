/* SPDX-License-Identifier: MIT
 *
 * See encoded.h. The trailer comes last because only then the numbers in it are known. The sum is
 * over blocks, so that it is made while the file is written. */
#include "config.h"

#include "data/encoded.h"

#include "core/atomic_file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC       UINT64_C(0x3178747072706464) /* "ddprptx1" */
#define BLOCK_BYTES ((size_t)1 << 20)

/* In the file's order, little-endian. */
struct trailer {
    uint64_t magic, key, width, token_count, document_count, text_bytes, largest;
    uint64_t sum;  /* of what stands before */
    uint64_t self; /* of the trailer up to here */
};

static uint64_t add_sum(uint64_t sum, const void *block, size_t bytes)
{
    const uint64_t both[2] = {sum, ddp_hash(block, bytes)};
    return ddp_hash(both, sizeof both);
}

static uint64_t sum_of_trailer(const struct trailer *trailer)
{
    return ddp_hash(trailer, offsetof(struct trailer, self));
}

/* --- reading ---------------------------------------------------------------------------------- */

static uint64_t bytes_of_tokens(const struct ddp_encoded_facts *facts)
{
    return ddp_align_up((size_t)facts->token_count * (size_t)facts->width, sizeof(uint64_t));
}

static uint64_t bytes_of_documents(const struct ddp_encoded_facts *facts)
{
    return (uint64_t)facts->document_count * sizeof(struct ddp_encoded_document);
}

/* Does the trailer speak of a file of this size? */
static bool take_trailer(struct ddp_encoded *e, const struct trailer *t, uint64_t key)
{
    const uint64_t body = e->blob.bytes - sizeof *t;
    if (t->magic != MAGIC || t->key != key || t->self != sum_of_trailer(t) ||
        (t->width != 2 && t->width != 4) || t->token_count > body / t->width ||
        t->document_count > body / sizeof(struct ddp_encoded_document) ||
        t->text_bytes > INT64_MAX || t->largest > INT32_MAX)
        return false;
    e->facts = (struct ddp_encoded_facts){
        .key = t->key,
        .width = (int64_t)t->width,
        .token_count = (int64_t)t->token_count,
        .document_count = (int64_t)t->document_count,
        .text_bytes = (int64_t)t->text_bytes,
        .largest = (int64_t)t->largest,
    };
    return bytes_of_tokens(&e->facts) + bytes_of_documents(&e->facts) == body;
}

static enum ddp_status check_sum(const struct ddp_encoded *e, uint64_t expected, bool *right)
{
    const uint64_t body = e->blob.bytes - sizeof(struct trailer);
    unsigned char *block = ddp_array_alloc(BLOCK_BYTES, 1);
    enum ddp_status status = block ? DDP_OK : DDP_ERR_MEMORY;
    uint64_t sum = 0;
    for (uint64_t at = 0, n; status == DDP_OK && at < body; at += n) {
        const unsigned char *bytes;
        n = body - at < BLOCK_BYTES ? body - at : BLOCK_BYTES;
        status = ddp_blob_at(&e->blob, at, (size_t)n, block, &bytes);
        if (status == DDP_OK)
            sum = add_sum(sum, bytes, (size_t)n);
    }
    free(block);
    *right = sum == expected;
    return status;
}

static enum ddp_status check(struct ddp_encoded *e, uint64_t key)
{
    struct trailer trailer;
    const unsigned char *bytes;
    bool right = e->blob.bytes >= sizeof trailer;
    enum ddp_status status = DDP_OK;
    if (right) {
        status =
            ddp_blob_at(&e->blob, e->blob.bytes - sizeof trailer, sizeof trailer, &trailer, &bytes);
        if (status != DDP_OK)
            return status;
        if (bytes != (const unsigned char *)&trailer)
            memcpy(&trailer, bytes, sizeof trailer);
        right = take_trailer(e, &trailer, key);
    }
    if (right)
        status = check_sum(e, trailer.sum, &right);
    if (status == DDP_OK && !right)
        status =
            ddp_fail(DDP_ERR_FORMAT, "%s: this file of encoded texts is damaged", e->blob.name);
    return status;
}

enum ddp_status ddp_encoded_open(struct ddp_encoded *encoded, const char *path, uint64_t key)
{
    *encoded = (struct ddp_encoded){.file = {.fd = -1}};
    enum ddp_status status = ddp_input_file_open(&encoded->file, path, true);
    encoded->blob = (struct ddp_blob){
        .name = encoded->file.path, .file = &encoded->file, .bytes = encoded->file.bytes};
    if (status == DDP_OK)
        status = check(encoded, key);
    if (status != DDP_OK)
        ddp_encoded_close(encoded);
    return status;
}

void ddp_encoded_close(struct ddp_encoded *encoded)
{
    if (encoded->file.path)
        ddp_input_file_close(&encoded->file);
    free(encoded->memory);
    *encoded = (struct ddp_encoded){.file = {.fd = -1}};
}

enum ddp_status ddp_encoded_read(const struct ddp_encoded *encoded, uint64_t first, size_t count,
                                 uint32_t *tokens)
{
    const unsigned char *bytes;
    enum ddp_status status =
        ddp_blob_at(&encoded->blob, first * sizeof *tokens, count * sizeof *tokens, tokens, &bytes);
    if (status == DDP_OK && bytes != (const unsigned char *)tokens)
        memcpy(tokens, bytes, count * sizeof *tokens);
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        tokens[i] = le32toh(tokens[i]);
    return status;
}

/* Are they in order, and within the tokens? The sum has said that they are as they were written. */
enum ddp_status ddp_encoded_documents(const struct ddp_encoded *encoded,
                                      struct ddp_encoded_document **documents)
{
    const size_t count = (size_t)encoded->facts.document_count;
    struct ddp_encoded_document *list = ddp_array_alloc(count + 1, sizeof *list);
    const unsigned char *bytes;
    if (!list)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_blob_at(&encoded->blob, bytes_of_tokens(&encoded->facts),
                                         count * sizeof *list, list, &bytes);
    if (status != DDP_OK) {
        free(list);
        return status;
    }
    if (bytes != (const unsigned char *)list)
        memcpy(list, bytes, count * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct ddp_encoded_document){le64toh(list[i].begin), le32toh(list[i].file),
                                                le32toh(list[i].line)};
    list[count].begin = (uint64_t)encoded->facts.token_count;
    *documents = list;
    return DDP_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

struct ddp_encoded_writer {
    char *path; /* NULL: into memory */
    ddp_atomic_file *file;
    unsigned char *memory;
    size_t memory_bytes, memory_room;
    unsigned char *block;
    size_t used; /* of the block */
    struct trailer trailer;
    struct ddp_encoded_document *documents;
    size_t documents_count;
    bool failed;
};

enum ddp_status ddp_encoded_writer_open(ddp_encoded_writer **writer, const char *path, int width)
{
    ddp_encoded_writer *w = ddp_array_alloc(1, sizeof *w);
    if (!w)
        return DDP_ERR_MEMORY;
    w->trailer.magic = MAGIC;
    w->trailer.width = (uint64_t)width;
    w->block = ddp_array_alloc(BLOCK_BYTES, 1);
    enum ddp_status status = w->block ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK && path && !(w->path = strdup(path)))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    if (status == DDP_OK && path)
        status = ddp_atomic_file_open(&w->file, path);
    if (status != DDP_OK) {
        ddp_encoded_writer_close(w);
        return status;
    }
    *writer = w;
    return DDP_OK;
}

void ddp_encoded_writer_close(ddp_encoded_writer *writer)
{
    if (!writer)
        return;
    if (writer->file)
        ddp_atomic_file_close(writer->file);
    free(writer->path);
    free(writer->memory);
    free(writer->block);
    free(writer->documents);
    free(writer);
}

bool ddp_encoded_writer_failed(const ddp_encoded_writer *writer)
{
    return writer->failed;
}

static enum ddp_status put_in_memory(ddp_encoded_writer *w, const void *data, size_t bytes)
{
    if (bytes > w->memory_room - w->memory_bytes) {
        const size_t room = 2 * w->memory_room + bytes + BLOCK_BYTES;
        unsigned char *grown = realloc(w->memory, room);
        if (!grown)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory: encoded texts take more than %zu bytes",
                            w->memory_bytes);
        w->memory = grown;
        w->memory_room = room;
    }
    memcpy(w->memory + w->memory_bytes, data, bytes);
    w->memory_bytes += bytes;
    return DDP_OK;
}

static enum ddp_status put(ddp_encoded_writer *w, const void *data, size_t bytes)
{
    if (!w->file)
        return put_in_memory(w, data, bytes);
    const enum ddp_status status = ddp_atomic_file_write(w->file, data, bytes);
    w->failed = w->failed || status != DDP_OK;
    return status;
}

static enum ddp_status end_block(ddp_encoded_writer *w)
{
    if (w->used == 0)
        return DDP_OK;
    w->trailer.sum = add_sum(w->trailer.sum, w->block, w->used);
    const enum ddp_status status = put(w, w->block, w->used);
    w->used = 0;
    return status;
}

static enum ddp_status append(ddp_encoded_writer *w, const void *data, size_t bytes)
{
    enum ddp_status status = DDP_OK;
    for (size_t done = 0, n; status == DDP_OK && done < bytes; done += n) {
        n = bytes - done < BLOCK_BYTES - w->used ? bytes - done : BLOCK_BYTES - w->used;
        memcpy(w->block + w->used, (const char *)data + done, n);
        w->used += n;
        if (w->used == BLOCK_BYTES)
            status = end_block(w);
    }
    return status;
}

static enum ddp_status append_token(ddp_encoded_writer *w, uint32_t token)
{
    const uint32_t plain = token & ~DDP_ENCODED_TRAINED, wide = htole32(token);
    const uint16_t narrow = htole16((uint16_t)token);
    if (plain > w->trailer.largest)
        w->trailer.largest = plain;
    return w->trailer.width == 2 ? append(w, &narrow, sizeof narrow)
                                 : append(w, &wide, sizeof wide);
}

enum ddp_status ddp_encoded_writer_add(ddp_encoded_writer *writer, const uint32_t *tokens,
                                       size_t count, const struct ddp_encoded_document *place)
{
    enum ddp_status status = DDP_OK;
    if (place && writer->trailer.width == 2)
        return ddp_fail(DDP_ERR_IO, "the texts have changed while they were encoded");
    if (place) {
        const struct ddp_encoded_document document = {writer->trailer.token_count, place->file,
                                                      place->line};
        status = ddp_array_append(&writer->documents, &writer->documents_count, &document,
                                  sizeof document);
    }
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        status = append_token(writer, tokens[i]);
    writer->trailer.token_count += count;
    return status;
}

/* Documents, the rest of the last block, and the trailer. */
static enum ddp_status end_file(ddp_encoded_writer *w)
{
    static const char zeros[sizeof(uint64_t)];
    struct trailer *t = &w->trailer;
    const size_t tokens = (size_t)(t->token_count * t->width);
    enum ddp_status status = append(w, zeros, ddp_align_up(tokens, sizeof zeros) - tokens);
    t->document_count = w->documents_count;
    for (size_t i = 0; status == DDP_OK && i < w->documents_count; i++) {
        const struct ddp_encoded_document *from = &w->documents[i];
        const struct ddp_encoded_document little = {htole64(from->begin), htole32(from->file),
                                                    htole32(from->line)};
        status = append(w, &little, sizeof little);
    }
    if (status == DDP_OK)
        status = end_block(w);
    t->self = sum_of_trailer(t);
    return status == DDP_OK ? put(w, t, sizeof *t) : status;
}

enum ddp_status ddp_encoded_writer_finish(ddp_encoded_writer *writer, uint64_t key,
                                          int64_t text_bytes, struct ddp_encoded *encoded)
{
    writer->trailer.key = key;
    writer->trailer.text_bytes = (uint64_t)text_bytes;
    enum ddp_status status = end_file(writer);
    if (status == DDP_OK && writer->file) {
        status = ddp_atomic_file_commit(writer->file);
        writer->failed = status != DDP_OK;
        return status == DDP_OK ? ddp_encoded_open(encoded, writer->path, key) : status;
    }
    if (status != DDP_OK)
        return status;
    *encoded = (struct ddp_encoded){.file = {.fd = -1}, .memory = writer->memory};
    encoded->blob = (struct ddp_blob){
        .name = "encoded texts", .memory = writer->memory, .bytes = writer->memory_bytes};
    writer->memory = NULL;
    return check(encoded, key);
}

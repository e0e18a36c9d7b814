/* SPDX-License-Identifier: MIT
 *
 * See token_file.h. */
#include "config.h"

#include "data/token_file.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/npy_file.h"
#include "data/text_file.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* llm.c's header: 256 numbers of 32 bits, of which three are used: magic, version, tokens. */
#define HEADER_BYTES 1024

#define GPT2_VOCABULARY   50257
#define LLAMA3_VOCABULARY 128256

static const char npy_magic[] = "\x93NUMPY", gzip_magic[] = "\x1f\x8b";

#define LOOKED_AT 4096 /* first bytes that decide whether a file is text */

static const struct header_kind {
    uint32_t magic, version;
    const char *what;
    int width; /* 0: another of llm.c's files, which holds no tokens to train on */
    int64_t vocabulary;
} header_kinds[] = {
    {20240520, 1, "GPT-2 tokens", 2, GPT2_VOCABULARY},
    {20240801, 7, "Llama 3 tokens", 4, LLAMA3_VOCABULARY},
    {20240522, 1, "an evaluation set", 0, 0},
    {20240328, 2, "a tokenizer", 0, 0},
    {20240326, 3, "a GPT-2 model", 0, 0},
    {20240327, 1, "the state of a run", 0, 0},
    {20240803, 3, "a Llama 3 model", 0, 0},
};

const char *const ddp_token_kind_names[] = {"auto", "gpt2", "uint16", "uint32", "bytes", NULL};

static const struct header_kind *find_kind(uint32_t magic)
{
    for (size_t i = 0; i < sizeof header_kinds / sizeof header_kinds[0]; i++)
        if (header_kinds[i].magic == magic)
            return &header_kinds[i];
    return NULL;
}

/* The first of `got` bytes as numbers. */
struct start {
    unsigned char bytes[LOOKED_AT];
    size_t got;
};

static uint32_t number(const struct start *start, size_t i)
{
    uint32_t value;
    memcpy(&value, start->bytes + 4 * i, sizeof value);
    return le32toh(value);
}

static enum ddp_status read_header(struct ddp_token_file *t, const struct start *start,
                                   const struct header_kind *kind)
{
    const char *path = t->file.path;
    if (kind->width == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: this is llm.c's file of %s, not of tokens", path,
                        kind->what);
    if (start->got < HEADER_BYTES)
        return ddp_fail(DDP_ERR_FORMAT, "%s: truncated: %zu bytes, its header has %d", path,
                        start->got, HEADER_BYTES);
    if (number(start, 1) != kind->version)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s of version %" PRIu32 ": only version %" PRIu32 " can be read", path,
                        kind->what, number(start, 1), kind->version);
    const uint64_t count = number(start, 2);
    const uint64_t wanted = HEADER_BYTES + count * (uint64_t)kind->width;
    if (wanted != t->blob.bytes)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s: its header announces %" PRIu64 " tokens, which take %" PRIu64
                        " bytes, and the file has %" PRIu64,
                        path, t->blob.bytes < wanted ? "truncated" : "too long", count, wanted,
                        t->blob.bytes);
    t->offset = HEADER_BYTES;
    t->count = (int64_t)count;
    t->width = kind->width;
    t->vocabulary = kind->vocabulary;
    return DDP_OK;
}

static enum ddp_status set_bare(struct ddp_token_file *t, int width, int64_t vocabulary)
{
    if (t->blob.bytes % (uint64_t)width != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: truncated: %" PRIu64 " bytes are not a whole number of tokens of %d "
                        "bytes",
                        t->file.path, t->blob.bytes, width);
    t->count = (int64_t)(t->blob.bytes / (uint64_t)width);
    t->width = width;
    t->vocabulary = vocabulary;
    t->text = width == 1;
    return DDP_OK;
}

/* An array of whole numbers that NumPy saved. */
static enum ddp_status read_npy(struct ddp_token_file *t)
{
    char text[160];
    struct ddp_npy npy;
    enum ddp_status status = ddp_npy_open(&npy, &t->blob);
    if (status != DDP_OK)
        return status;
    const bool fits = npy.kind == 'u' ? npy.width <= 4 : npy.kind == 'i' && npy.width == 4;
    if (npy.dim_count != 1 || !fits)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s: an array of tokens has one dimension and is uint8, uint16, uint32 "
                        "or int32",
                        t->file.path, ddp_npy_describe(&npy, text, sizeof text));
    t->offset = npy.offset;
    t->count = npy.dims[0];
    t->width = npy.width;
    t->vocabulary = npy.width == 1 ? 256 : npy.width == 2 ? GPT2_VOCABULARY : LLAMA3_VOCABULARY;
    return DDP_OK;
}

/* What a file without a header is. */
static enum ddp_status guess(struct ddp_token_file *t, const struct start *start)
{
    if (ddp_text_ends_with(t->file.path, ".bin") || ddp_text_ends_with(t->file.path, ".bin.gz"))
        return set_bare(t, 2, GPT2_VOCABULARY);
    const bool gzip = start->got > 2 && !memcmp(start->bytes, gzip_magic, sizeof gzip_magic - 1);
    if (gzip && ddp_text_ends_with(t->file.path, ".gz"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: it is compressed with gzip twice: unpack it once, with gunzip",
                        t->file.path);
    if (gzip)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: it is compressed with gzip: give it a name that ends in .gz, such as "
                        "book.txt.gz",
                        t->file.path);
    if (start->got > 3 &&
        (memcmp(start->bytes, "\x89PNG", 4) == 0 || memcmp(start->bytes, "\xff\xd8\xff", 3) == 0))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: this is an image: name the directory of a set, with a directory of "
                        "images for each class",
                        t->file.path);
    if (memchr(start->bytes, 0, start->got))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: neither text nor a known token file: say with --tokens what it "
                        "holds: gpt2, uint16, uint32 or bytes",
                        t->file.path);
    return set_bare(t, 1, 256);
}

static enum ddp_status recognise(struct ddp_token_file *t, enum ddp_token_kind kind)
{
    struct start start;
    start.got = t->blob.bytes < LOOKED_AT ? (size_t)t->blob.bytes : LOOKED_AT;
    const unsigned char *first;
    enum ddp_status status = ddp_blob_at(&t->blob, 0, start.got, start.bytes, &first);
    if (status != DDP_OK)
        return status;
    if (first != start.bytes)
        memcpy(start.bytes, first, start.got);
    if (kind == DDP_TOKENS_BYTES)
        return set_bare(t, 1, 256);
    if (kind == DDP_TOKENS_AUTO && start.got >= sizeof npy_magic - 1 &&
        memcmp(start.bytes, npy_magic, sizeof npy_magic - 1) == 0)
        return read_npy(t);
    if (start.got >= 8) {
        const struct header_kind *header = find_kind(number(&start, 0));
        if (header && (kind == DDP_TOKENS_AUTO || kind == DDP_TOKENS_GPT2))
            return read_header(t, &start, header);
        if (header && number(&start, 1) == header->version)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: this file has llm.c's header, of %s: leave --tokens out",
                            t->file.path, header->what);
        header = find_kind(__builtin_bswap32(number(&start, 0)));
        if (header && __builtin_bswap32(number(&start, 1)) == header->version)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: llm.c's header of %s, but big-endian: only little-endian files "
                            "can be read",
                            t->file.path, header->what);
    }
    switch (kind) {
    case DDP_TOKENS_GPT2:
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: it does not begin with llm.c's header (magic number 20240520 or "
                        "20240801)",
                        t->file.path);
    case DDP_TOKENS_UINT16:
        return set_bare(t, 2, GPT2_VOCABULARY);
    case DDP_TOKENS_UINT32:
        return set_bare(t, 4, LLAMA3_VOCABULARY);
    default:
        return guess(t, &start);
    }
}

static enum ddp_status unpack(struct ddp_token_file *t, bool jsonl, uint64_t most)
{
    struct ddp_text text = {0};
    FILE *file = fopen(t->file.path, "rbe");
    if (!file)
        return ddp_fail_path(t->file.path, "open");
    enum ddp_status status = ddp_text_read(&text, file, t->file.path, jsonl, most);
    fclose(file);
    t->memory = text.at;
    t->blob = (struct ddp_blob){.name = t->file.path, .memory = text.at, .bytes = text.bytes};
    return status;
}

enum ddp_status ddp_token_file_open(struct ddp_token_file *tokens, const char *path,
                                    enum ddp_token_kind kind, bool keep, uint64_t most)
{
    const bool jsonl = kind == DDP_TOKENS_AUTO && ddp_text_is_jsonl(path);
    const bool packed = jsonl || ddp_text_ends_with(path, ".gz");
    *tokens = (struct ddp_token_file){.file = {.fd = -1}};
    enum ddp_status status = ddp_input_file_open(&tokens->file, path, keep && !packed);
    tokens->blob = (struct ddp_blob){
        .name = tokens->file.path, .file = &tokens->file, .bytes = tokens->file.bytes};
    if (status == DDP_OK && packed)
        status = unpack(tokens, jsonl, most);
    if (status == DDP_OK)
        status = jsonl ? set_bare(tokens, 1, 256) : recognise(tokens, kind);
    if (status != DDP_OK)
        ddp_token_file_close(tokens);
    return status;
}

void ddp_token_file_close(struct ddp_token_file *tokens)
{
    ddp_input_file_close(&tokens->file);
    free(tokens->memory);
    tokens->memory = NULL;
}

/* Widens and gives the largest. */
static uint32_t widen(const void *raw, int width, size_t count, int32_t *out)
{
    uint32_t largest = 0;
    if (width == 1) {
        const uint8_t *from = raw;
        for (size_t i = 0; i < count; i++)
            out[i] = from[i];
        return count > 0 ? 255 : 0; /* a bound; looked at only where it is beyond */
    }
    if (width == 2) {
        const uint16_t *from = raw;
        for (size_t i = 0; i < count; i++) {
            const uint32_t token = le16toh(from[i]);
            out[i] = (int32_t)token;
            largest = token > largest ? token : largest;
        }
        return largest;
    }
    const uint32_t *from = raw;
    for (size_t i = 0; i < count; i++) {
        const uint32_t token = le32toh(from[i]);
        out[i] = (int32_t)token;
        largest = token > largest ? token : largest;
    }
    return largest;
}

enum ddp_status ddp_token_file_read(const struct ddp_token_file *tokens, int64_t first,
                                    size_t count, int64_t vocabulary, void *raw, int32_t *out)
{
    const uint64_t at = tokens->offset + (uint64_t)first * (uint64_t)tokens->width;
    const size_t bytes = count * (size_t)tokens->width;
    const unsigned char *from;
    enum ddp_status status = ddp_blob_at(&tokens->blob, at, bytes, raw, &from);
    if (status == DDP_OK && from != (const unsigned char *)raw) /* aligned, as widen() needs it */
        memcpy(raw, from, bytes);
    if (status != DDP_OK || widen(raw, tokens->width, count, out) < vocabulary)
        return status;
    for (size_t i = 0; i < count; i++)
        if ((uint32_t)out[i] >= vocabulary)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: token %" PRId64 " is %" PRIu32 ": the vocabulary has %" PRId64
                            " tokens, from 0",
                            tokens->blob.name, first + (int64_t)i, (uint32_t)out[i], vocabulary);
    return DDP_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

#define WRITTEN_AT_ONCE ((size_t)1 << 20)

/* llm.c's header of the kind with tokens of this width. */
static enum ddp_status make_header(unsigned char header[HEADER_BYTES], const char *path,
                                   int64_t count, int width)
{
    const struct header_kind *kind = header_kinds;
    while (kind->width != width)
        kind++;
    if (count > UINT32_MAX)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: %" PRId64 " tokens are too many for llm.c's header: give a name that "
                        "ends in .npy",
                        path, count);
    const uint32_t words[] = {htole32(kind->magic), htole32(kind->version),
                              htole32((uint32_t)count)};
    memset(header, 0, HEADER_BYTES);
    memcpy(header, words, sizeof words);
    return DDP_OK;
}

/* NumPy's header, padded with spaces to HEADER_BYTES / 8. */
static void make_npy_header(unsigned char header[HEADER_BYTES / 8], int64_t count, int width)
{
    const size_t bytes = HEADER_BYTES / 8, before = 10;
    char text[HEADER_BYTES / 8];
    const int used = snprintf(
        text, sizeof text, "{'descr': '<u%d', 'fortran_order': False, 'shape': (%" PRId64 ",), }",
        width, count);
    memset(header, ' ', bytes);
    memcpy(header, npy_magic, sizeof npy_magic - 1);
    header[6] = 1;
    header[7] = 0;
    header[8] = (unsigned char)(bytes - before);
    header[9] = 0;
    memcpy(header + before, text, (size_t)used);
    header[bytes - 1] = '\n';
}

static enum ddp_status write_tokens(ddp_atomic_file *file, const struct ddp_blob *tokens,
                                    uint64_t bytes)
{
    unsigned char *block = ddp_array_alloc(WRITTEN_AT_ONCE, 1);
    enum ddp_status status = block ? DDP_OK : DDP_ERR_MEMORY;
    for (uint64_t at = 0, n; status == DDP_OK && at < bytes; at += n) {
        const unsigned char *from;
        n = bytes - at < WRITTEN_AT_ONCE ? bytes - at : WRITTEN_AT_ONCE;
        status = ddp_blob_at(tokens, at, (size_t)n, block, &from);
        if (status == DDP_OK)
            status = ddp_atomic_file_write(file, from, (size_t)n);
    }
    free(block);
    return status;
}

enum ddp_status ddp_token_file_write(const char *path, const struct ddp_blob *tokens, int64_t count,
                                     int width)
{
    unsigned char header[HEADER_BYTES];
    const bool npy = ddp_text_ends_with(path, ".npy");
    ddp_atomic_file *file = NULL;
    enum ddp_status status = DDP_OK;
    if (npy)
        make_npy_header(header, count, width);
    else
        status = make_header(header, path, count, width);
    if (status == DDP_OK)
        status = ddp_atomic_file_open(&file, path);
    if (status != DDP_OK)
        return status;
    status = ddp_atomic_file_write(file, header, npy ? HEADER_BYTES / 8 : HEADER_BYTES);
    if (status == DDP_OK)
        status = write_tokens(file, tokens, (uint64_t)count * (uint64_t)width);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    return status;
}

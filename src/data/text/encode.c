/* SPDX-License-Identifier: MIT
 *
 * Encoding of a text: added tokens are cut out, the rest is brought into its normal form, further
 * added tokens are cut out of that, and the pieces in between go to the encoder. */
#include "config.h"

#include "data/text/encode.h"

#include "data/text/nfc.h"

#include <inttypes.h>

struct walk {
    struct ddp_encoder *encoder;
    const ddp_tokenizer *tokenizer;
    ddp_pool *pool;
    unsigned flags;
    struct ddp_tokens *out;
    bool measures; /* only counts the bytes of the final text */
    size_t measured;
};

static enum ddp_status push(struct walk *walk, const int32_t *ids, size_t count)
{
    enum ddp_status status = ddp_tokens_reserve(walk->out, count);
    if (status == DDP_OK && count > 0) {
        memcpy(walk->out->ids + walk->out->count, ids, count * sizeof *ids);
        walk->out->count += count;
    }
    return status;
}

/* --- the normal form -------------------------------------------------------------------------- */

static const char *find_bytes(const char *text, size_t bytes, const struct ddp_buffer *what)
{
    return what->bytes == 1 ? memchr(text, what->at[0], bytes)
                            : memmem(text, bytes, what->at, what->bytes);
}

static enum ddp_status replace(const struct ddp_buffer *from, const struct ddp_buffer *to,
                               const char *text, size_t bytes, struct ddp_buffer *out)
{
    const char *end = text + bytes;
    enum ddp_status status = DDP_OK;
    for (const char *hit; status == DDP_OK; text = hit + from->bytes) {
        hit = find_bytes(text, (size_t)(end - text), from);
        if (!hit)
            return ddp_buffer_append(out, text, (size_t)(end - text));
        status = ddp_buffer_append(out, text, (size_t)(hit - text));
        if (status == DDP_OK)
            status = ddp_buffer_append(out, to->at, to->bytes);
    }
    return status;
}

static bool changes(const struct ddp_normalize_step *step, const char *text, size_t bytes)
{
    if (step->kind == DDP_NORMALIZE_NFC)
        return ddp_nfc_check(text, bytes) < bytes;
    return step->kind == DDP_NORMALIZE_PREPEND ? bytes > 0
                                               : find_bytes(text, bytes, &step->from) != NULL;
}

enum ddp_status ddp_tokenizer_normalize(const ddp_tokenizer *tokenizer,
                                        struct ddp_buffer scratch[2], const char **text,
                                        size_t *bytes)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0, turn = 0; status == DDP_OK && i < tokenizer->step_count; i++) {
        const struct ddp_normalize_step *step = &tokenizer->steps[i];
        if (!changes(step, *text, *bytes))
            continue;
        struct ddp_buffer *out = &scratch[turn];
        out->bytes = 0;
        if (step->kind == DDP_NORMALIZE_NFC)
            status = ddp_nfc_append(out, *text, *bytes);
        else if (step->kind == DDP_NORMALIZE_REPLACE)
            status = replace(&step->from, &step->to, *text, *bytes, out);
        else if ((status = ddp_buffer_append(out, step->to.at, step->to.bytes)) == DDP_OK)
            status = ddp_buffer_append(out, *text, *bytes);
        *text = out->at;
        *bytes = out->bytes;
        turn = !turn;
    }
    return status;
}

/* Spaces of a piece become the tokenizer's, and the piece gets its prefix. */
static enum ddp_status dress(struct walk *walk, const char **text, size_t *bytes, bool at_start)
{
    static const struct ddp_buffer space = {" ", 1, 0};
    const ddp_tokenizer *t = walk->tokenizer;
    const struct ddp_buffer *mark = t->space.bytes > 0 ? &t->space : &space;
    struct ddp_buffer *out = &walk->encoder->piece;
    const bool begins =
        (*bytes >= mark->bytes && memcmp(*text, mark->at, mark->bytes) == 0) || (*text)[0] == ' ';
    const bool prefix =
        !begins && (t->prefix == DDP_PREFIX_ALWAYS || (t->prefix == DDP_PREFIX_FIRST && at_start));
    if (!prefix && !(t->space.bytes > 0 && memchr(*text, ' ', *bytes)))
        return DDP_OK;
    out->bytes = 0;
    enum ddp_status status = prefix ? ddp_buffer_append(out, mark->at, mark->bytes) : DDP_OK;
    if (status == DDP_OK)
        status = replace(&space, mark, *text, *bytes, out);
    *text = out->at;
    *bytes = out->bytes;
    return status;
}

/* --- walking over a text ---------------------------------------------------------------------- */

static enum ddp_status walk_piece(struct walk *walk, const char *text, size_t bytes, bool at_start)
{
    if (bytes == 0)
        return DDP_OK;
    enum ddp_status status = dress(walk, &text, &bytes, at_start);
    if (status != DDP_OK || walk->measures) {
        walk->measured += bytes;
        return status;
    }
    return ddp_encode_long(walk->encoder, walk->pool, text, bytes, walk->out);
}

typedef enum ddp_status walk_part(struct walk *walk, const char *text, size_t bytes, bool at_start);

/* Calls part() for what lies between added tokens. */
static enum ddp_status walk_added(struct walk *walk, const struct ddp_added *added,
                                  const char *text, size_t bytes, bool at_start, walk_part *part)
{
    enum ddp_status status = DDP_OK;
    for (size_t from = 0, at = 0; status == DDP_OK && from < bytes;) {
        const struct ddp_added_token *token = ddp_added_find(added, text, bytes, &at);
        if (token && token->special && (walk->flags & DDP_ENCODE_AS_TEXT)) {
            at += token->bytes;
            continue;
        }
        status = part(walk, text + from, at - from, at_start && from == 0);
        if (status == DDP_OK && token && walk->measures)
            walk->measured += token->bytes;
        else if (status == DDP_OK && token)
            status = push(walk, &token->id, 1);
        at += token ? token->bytes : 0;
        from = at;
    }
    return status;
}

/* What lies between added tokens of the raw text. */
static enum ddp_status walk_segment(struct walk *walk, const char *text, size_t bytes,
                                    bool at_start)
{
    if (bytes == 0)
        return DDP_OK;
    enum ddp_status status =
        ddp_tokenizer_normalize(walk->tokenizer, walk->encoder->normal, &text, &bytes);
    return status == DDP_OK
               ? walk_added(walk, &walk->tokenizer->normal_added, text, bytes, at_start, walk_piece)
               : status;
}

enum ddp_status ddp_encode_text(struct ddp_encoder *encoder, ddp_pool *pool,
                                const struct ddp_text_part *text, unsigned flags,
                                struct ddp_tokens *out, size_t *bad)
{
    const ddp_tokenizer *t = encoder->tokenizer;
    struct walk walk = {encoder, t, pool, flags, out, false, 0};
    const bool framed = flags & DDP_ENCODE_BOS;
    *bad = ddp_utf8_check(text->at, text->bytes);
    if (*bad < text->bytes)
        return DDP_ERR_FORMAT;
    enum ddp_status status = framed ? push(&walk, t->before, t->before_count) : DDP_OK;
    if (status == DDP_OK)
        status = walk_added(&walk, &t->raw_added, text->at, text->bytes, true, walk_segment);
    if (status == DDP_OK && framed)
        status = push(&walk, t->after, t->after_count);
    return status;
}

enum ddp_status ddp_encode_failed(const struct ddp_text_part *text, enum ddp_status status,
                                  size_t bad)
{
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(status,
                        "%s: byte %" PRIu64 " (0x%02x) is not UTF-8: convert the text first, as "
                        "with iconv -t UTF-8",
                        text->name, text->offset + bad, (unsigned char)text->at[bad]);
    if (status == DDP_ERR_UNSUPPORTED)
        return ddp_fail(status,
                        "%s: the tokenizer's regular expression takes too long for the %zu bytes "
                        "from byte %" PRIu64 " on",
                        text->name, text->bytes, text->offset);
    return status;
}

enum ddp_status ddp_tokenizer_encode(const ddp_tokenizer *tokenizer,
                                     const struct ddp_text_part *text, unsigned flags,
                                     struct ddp_tokens *tokens)
{
    struct ddp_encoder *encoder = NULL;
    const size_t before = tokens->count;
    size_t bad = 0;
    enum ddp_status status = ddp_encoder_take(&encoder, tokenizer);
    if (status != DDP_OK)
        return status;
    status = ddp_encode_text(encoder, NULL, text, flags, tokens, &bad);
    ddp_encoder_give_back(encoder);
    if (status == DDP_OK)
        return DDP_OK;
    tokens->count = before;
    return ddp_encode_failed(text, status, bad);
}

/* --- marks ------------------------------------------------------------------------------------ */

/* Bytes of the final text that a token stands for. */
static size_t token_length(const ddp_tokenizer *t, int32_t id)
{
    const struct ddp_token *token = &t->vocabulary.tokens[id];
    const char *text = ddp_vocabulary_text(&t->vocabulary, id);
    if (token->added)
        return token->normal_bytes;
    if (!t->byte_level)
        return t->byte_fallback && token->bytes == 6 && memcmp(text, "<0x", 3) == 0 ? 1
                                                                                    : token->bytes;
    size_t count = 0; /* of characters: each is a byte */
    for (size_t i = 0; i < token->bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Bytes of the final text of the first `bytes` of a text. */
static enum ddp_status measure(struct walk *walk, const struct ddp_text_part *text, size_t bytes,
                               size_t *measured)
{
    walk->measures = true;
    walk->measured = 0;
    enum ddp_status status =
        walk_added(walk, &walk->tokenizer->raw_added, text->at, bytes, true, walk_segment);
    *measured = walk->measured;
    return status;
}

/* A mark lies where the final text of all before it ends. */
static enum ddp_status place_marks(struct walk *walk, const struct ddp_text_part *text,
                                   const size_t *marks, size_t mark_count, size_t at, size_t *first)
{
    const struct ddp_tokens *out = walk->out;
    const size_t after = walk->flags & DDP_ENCODE_BOS ? walk->tokenizer->after_count : 0;
    size_t place = 0, total = 0;
    enum ddp_status status = measure(walk, text, text->bytes, &total);
    for (size_t i = 0; status == DDP_OK && i < mark_count; i++) {
        size_t mark = total;
        if (marks[i] < text->bytes)
            status = measure(walk, text, marks[i], &mark);
        for (; at < out->count - after; at++) {
            const size_t length = token_length(walk->tokenizer, out->ids[at]);
            if (place + length > mark)
                break;
            place += length;
        }
        first[i] = at;
    }
    for (; at < out->count - after; at++)
        place += token_length(walk->tokenizer, out->ids[at]);
    if (status == DDP_OK && place != total)
        status = ddp_fail(DDP_ERR_UNSUPPORTED,
                          "%s: the text at byte %" PRIu64 " has characters that the vocabulary "
                          "lacks, so its parts cannot be told apart",
                          text->name, text->offset);
    return status;
}

enum ddp_status ddp_tokenizer_encode_marked(const ddp_tokenizer *tokenizer,
                                            const struct ddp_text_part *text, unsigned flags,
                                            const size_t *marks, size_t mark_count,
                                            struct ddp_tokens *tokens, size_t *first)
{
    struct ddp_encoder *encoder = NULL;
    const size_t before = tokens->count,
                 begin = flags & DDP_ENCODE_BOS ? tokenizer->before_count : 0;
    enum ddp_status status = ddp_tokenizer_encode(tokenizer, text, flags, tokens);
    if (status == DDP_OK)
        status = ddp_encoder_take(&encoder, tokenizer);
    if (status == DDP_OK) {
        struct walk walk = {encoder, tokenizer, NULL, flags, tokens, true, 0};
        status = place_marks(&walk, text, marks, mark_count, before + begin, first);
    }
    ddp_encoder_give_back(encoder);
    if (status != DDP_OK)
        tokens->count = before;
    return status;
}

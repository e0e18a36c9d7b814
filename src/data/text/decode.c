/* SPDX-License-Identifier: MIT
 *
 * Ids to text, as they come. Bytes wait until their character is complete; those that can belong to
 * none become U+FFFD. */
#include "config.h"

#include "core/memory.h"
#include "core/text.h"
#include "data/text/tokenizer_parts.h"

struct ddp_decoder {
    const ddp_tokenizer *tokenizer;
    bool skip_specials;
    struct ddp_buffer raw;  /* bytes that wait */
    struct ddp_buffer text; /* what was returned last */
    int strip;              /* spaces at the beginning that may still go */
};

enum ddp_status ddp_decoder_create(ddp_decoder **decoder, const ddp_tokenizer *tokenizer,
                                   bool skip_specials)
{
    struct ddp_decoder *d = ddp_array_alloc(1, sizeof *d);
    if (!d)
        return DDP_ERR_MEMORY;
    d->tokenizer = tokenizer;
    d->skip_specials = skip_specials;
    d->strip = tokenizer->decode.strip;
    *decoder = d;
    return DDP_OK;
}

void ddp_decoder_destroy(ddp_decoder *decoder)
{
    if (!decoder)
        return;
    free(decoder->raw.at);
    free(decoder->text.at);
    free(decoder);
}

static enum ddp_status emit(struct ddp_decoder *d, const char *text, size_t bytes)
{
    for (; bytes > 0 && d->strip > 0 && *text == ' '; d->strip--, bytes--)
        text++;
    if (bytes > 0)
        d->strip = 0;
    return ddp_buffer_append(&d->text, text, bytes);
}

/* How many bytes that are no character become one U+FFFD: as many as could begin one, or each for
 * itself where characters are spelled in bytes. */
static size_t bad_bytes(const struct ddp_decoder *d, const char *at, size_t left)
{
    size_t count = 1;
    if (d->tokenizer->byte_level)
        while (count < left && ddp_text_character(at, count + 1) < 0)
            count++;
    return count;
}

/* Passes on the characters that are complete.
 *   all  nothing comes behind these bytes */
static enum ddp_status drain(struct ddp_decoder *d, bool all)
{
    enum ddp_status status = DDP_OK;
    size_t done = 0;
    while (status == DDP_OK && done < d->raw.bytes) {
        const char *at = d->raw.at + done;
        const size_t left = d->raw.bytes - done;
        const int length = ddp_text_character(at, left);
        if (length < 0 && !all)
            break;
        status = length > 0 ? emit(d, at, (size_t)length) : emit(d, "\xef\xbf\xbd", 3);
        done += length > 0 ? (size_t)length : bad_bytes(d, at, left);
    }
    memmove(d->raw.at, d->raw.at + done, d->raw.bytes - done);
    d->raw.bytes -= done;
    return status;
}

/* The byte that a token such as <0x0A> stands for; -1: none. */
static int spelled_byte(const ddp_tokenizer *t, const char *text, size_t bytes)
{
    if (!t->decode.bytes || bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
        !strchr("0123456789ABCDEFabcdef", text[3]) || !strchr("0123456789ABCDEFabcdef", text[4]))
        return -1;
    return (int)strtol(text + 1, NULL, 16);
}

static enum ddp_status emit_token(struct ddp_decoder *d, int32_t id)
{
    const ddp_tokenizer *t = d->tokenizer;
    const struct ddp_token *token = &t->vocabulary.tokens[id];
    const char *text = t->vocabulary.texts.at + token->normal_at;
    const size_t length = token->normal_bytes;
    const struct ddp_buffer *from = &t->decode.from, *to = &t->decode.to;
    enum ddp_status status;
    if (t->byte_level) {
        status = ddp_token_bytes(t, id, &d->raw);
        return status == DDP_OK && d->raw.bytes > 0 ? drain(d, false) : status;
    }
    const int byte = spelled_byte(t, text, length);
    if (byte >= 0) {
        const char one = (char)byte;
        status = ddp_buffer_append(&d->raw, &one, 1);
        return status == DDP_OK ? drain(d, false) : status;
    }
    status = d->raw.bytes > 0 ? drain(d, true) : DDP_OK;
    for (size_t at = 0; status == DDP_OK && at < length;) {
        const char *hit =
            from->bytes > 0 ? memmem(text + at, length - at, from->at, from->bytes) : NULL;
        const size_t plain = hit ? (size_t)(hit - text) - at : length - at;
        status = emit(d, text + at, plain);
        if (status == DDP_OK && hit)
            status = emit(d, to->at, to->bytes);
        at += plain + (hit ? from->bytes : 0);
    }
    return status;
}

static enum ddp_status begin(struct ddp_decoder *d)
{
    d->text.bytes = 0;
    return ddp_buffer_append(&d->text, "", 0);
}

enum ddp_status ddp_decoder_next(ddp_decoder *decoder, const int32_t *ids, size_t count,
                                 const char **text, size_t *bytes)
{
    const ddp_tokenizer *t = decoder->tokenizer;
    enum ddp_status status = begin(decoder);
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        if (ddp_tokenizer_token(t, ids[i], NULL) &&
            !(decoder->skip_specials && ddp_tokenizer_is_special(t, ids[i])))
            status = emit_token(decoder, ids[i]);
    if (status != DDP_OK)
        return status;
    *text = decoder->text.at;
    *bytes = decoder->text.bytes;
    return DDP_OK;
}

enum ddp_status ddp_decoder_end(ddp_decoder *decoder, const char **text, size_t *bytes)
{
    enum ddp_status status = begin(decoder);
    if (status == DDP_OK && decoder->raw.bytes > 0)
        status = drain(decoder, true);
    if (status != DDP_OK)
        return status;
    decoder->strip = decoder->tokenizer->decode.strip;
    *text = decoder->text.at;
    *bytes = decoder->text.bytes;
    return DDP_OK;
}

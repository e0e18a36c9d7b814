/* SPDX-License-Identifier: MIT
 *
 * See wordpiece.h. The steps and their order are those of tokenizers' BertNormalizer,
 * BertPreTokenizer and WordPiece. */
#include "config.h"

#include "data/text/wordpiece.h"

#include "core/memory.h"
#include "data/text/nfc.h"
#include "data/text/wordpiece_open.h"

#include <utf8proc.h>

#define REPLACEMENT 0xfffd

int64_t ddp_wordpiece_ids(const ddp_wordpiece *w)
{
    return (int64_t)w->vocabulary.ids;
}

int32_t ddp_wordpiece_special(const ddp_wordpiece *w, enum ddp_wordpiece_special special)
{
    return w->specials[special];
}

const char *ddp_wordpiece_path(const ddp_wordpiece *w)
{
    return w->path;
}

bool ddp_wordpiece_is_plain(const ddp_wordpiece *w)
{
    return w->plain;
}

bool ddp_wordpiece_lowers(const ddp_wordpiece *w)
{
    return w->lowers;
}

/* --- characters ------------------------------------------------------------------------------- */

static bool is_space(uint32_t c)
{
    return (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static bool is_control(uint32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r')
        return false;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return true;
    default:
        return false;
    }
}

static bool is_punctuation(uint32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static bool is_ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* --- cleaning --------------------------------------------------------------------------------- */

static enum ddp_status put(struct ddp_buffer *out, uint32_t c)
{
    char text[4];
    return ddp_buffer_append(out, text, ddp_utf8_encode(c, text));
}

/* Without control characters, every space as one, and ideographs between spaces. */
static enum ddp_status clean(const ddp_wordpiece *w, struct ddp_buffer *out, const char *text,
                             size_t bytes)
{
    enum ddp_status status = DDP_OK;
    size_t length;
    for (size_t at = 0; status == DDP_OK && at < bytes; at += length) {
        const uint32_t c = ddp_utf8_decode(text + at, &length);
        if (w->cleans && (c == 0 || c == REPLACEMENT || is_control(c)))
            continue;
        if (w->cleans && is_space(c)) {
            status = put(out, ' ');
            continue;
        }
        const bool alone = w->cuts_ideographs && is_ideograph(c);
        if (alone)
            status = put(out, ' ');
        if (status == DDP_OK)
            status = ddp_buffer_append(out, text + at, length);
        if (alone && status == DDP_OK)
            status = put(out, ' ');
    }
    return status;
}

/* A letter with its accents apart, which are left out. `in` is freed or becomes `out`. */
static enum ddp_status strip(struct ddp_buffer *text)
{
    utf8proc_uint8_t *apart = NULL;
    size_t length;
    struct ddp_buffer out = {0};
    const utf8proc_ssize_t bytes =
        utf8proc_map((const utf8proc_uint8_t *)text->at, (utf8proc_ssize_t)text->bytes, &apart,
                     UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    enum ddp_status status =
        bytes < 0 ? ddp_fail(DDP_ERR_MEMORY, "out of memory: a text of %zu bytes", text->bytes)
                  : DDP_OK;
    for (size_t at = 0; status == DDP_OK && at < (size_t)bytes; at += length) {
        const uint32_t c = ddp_utf8_decode((const char *)apart + at, &length);
        if (utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_MN)
            status = ddp_buffer_append(&out, (const char *)apart + at, length);
    }
    free(apart);
    free(text->at);
    *text = out;
    return status;
}

/* U+0130 is the one letter whose small form is two characters. */
static enum ddp_status lower(struct ddp_buffer *text)
{
    enum ddp_status status = DDP_OK;
    size_t length;
    struct ddp_buffer out = {0};
    for (size_t at = 0; status == DDP_OK && at < text->bytes; at += length) {
        const uint32_t c = ddp_utf8_decode(text->at + at, &length);
        status = put(&out, c == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        if (status == DDP_OK && c == 0x130)
            status = put(&out, 0x307);
    }
    free(text->at);
    *text = out;
    return status;
}

static bool is_ascii(const struct ddp_buffer *text)
{
    for (size_t i = 0; i < text->bytes; i++)
        if ((unsigned char)text->at[i] >= 0x80)
            return false;
    return true;
}

/* --- pieces ----------------------------------------------------------------------------------- */

struct output {
    const ddp_wordpiece *w;
    int32_t **ids;
    size_t *count;
    struct ddp_buffer piece; /* the prefix and what may follow it */
};

static enum ddp_status put_id(struct output *out, int32_t id)
{
    return ddp_array_append(out->ids, out->count, &id, sizeof id);
}

/* The longest piece that a rest of a word begins with; -1: none.
 *   bytes [in,out]  of the rest, and of the piece in it */
static int32_t longest(struct output *out, const char *text, size_t *bytes, bool inside)
{
    const struct ddp_vocabulary *vocabulary = &out->w->vocabulary;
    const size_t prefix = inside ? strlen(out->w->prefix) : 0;
    out->piece.bytes = 0;
    if (ddp_buffer_append(&out->piece, out->w->prefix, prefix) != DDP_OK ||
        ddp_buffer_append(&out->piece, text, *bytes) != DDP_OK)
        return -1;
    size_t length = *bytes < out->w->longest ? *bytes : out->w->longest;
    for (; length > 0; length--) {
        if (length < *bytes && ((unsigned char)text[length] & 0xc0) == 0x80)
            continue;
        const int32_t id = ddp_vocabulary_find(vocabulary, out->piece.at, prefix + length);
        if (id >= 0) {
            *bytes = length;
            return id;
        }
    }
    return -1;
}

static enum ddp_status put_word(struct output *out, const char *text, size_t bytes,
                                size_t characters)
{
    const size_t first = *out->count;
    enum ddp_status status = DDP_OK;
    bool known = characters <= (size_t)out->w->word_characters;
    for (size_t at = 0; status == DDP_OK && known && at < bytes;) {
        size_t length = bytes - at;
        const int32_t id = longest(out, text + at, &length, at > 0);
        known = id >= 0;
        at += length;
        if (known)
            status = put_id(out, id);
    }
    if (status != DDP_OK || known)
        return status;
    *out->count = first;
    return put_id(out, out->w->specials[DDP_WORDPIECE_UNK]);
}

static enum ddp_status put_words(struct output *out, const char *text, size_t bytes)
{
    enum ddp_status status = DDP_OK;
    size_t begin = 0, characters = 0, length;
    for (size_t at = 0; status == DDP_OK && at <= bytes; at += length) {
        const uint32_t c = at < bytes ? ddp_utf8_decode(text + at, &length) : ' ';
        const bool space = is_space(c), alone = is_punctuation(c);
        if (at == bytes)
            length = 1;
        characters++;
        if (!space && !alone)
            continue;
        if (begin < at)
            status = put_word(out, text + begin, at - begin, characters - 1);
        if (status == DDP_OK && alone)
            status = put_word(out, text + at, length, 1);
        begin = at + length;
        characters = 0;
    }
    return status;
}

static enum ddp_status put_text(struct output *out, const char *text, size_t bytes)
{
    const ddp_wordpiece *w = out->w;
    struct ddp_buffer cleaned = {0};
    enum ddp_status status = clean(w, &cleaned, text, bytes);
    const bool plain = status == DDP_OK && is_ascii(&cleaned);
    if (status == DDP_OK && w->strips && !plain)
        status = strip(&cleaned);
    if (status == DDP_OK && w->lowers)
        status = lower(&cleaned);
    if (status == DDP_OK)
        status = put_words(out, cleaned.at, cleaned.bytes);
    free(cleaned.at);
    return status;
}

/* The special token that is spelled out at a place; -1: none. */
static int special_at(const ddp_wordpiece *w, const char *text, size_t bytes, size_t *length)
{
    for (int i = 0; *text == '[' && i < DDP_WORDPIECE_SPECIALS; i++) {
        *length = strlen(ddp_wordpiece_special_names[i]);
        if (w->specials[i] >= 0 && *length <= bytes &&
            memcmp(text, ddp_wordpiece_special_names[i], *length) == 0)
            return i;
    }
    return -1;
}

enum ddp_status ddp_wordpiece_encode(const ddp_wordpiece *w, const char *text, size_t bytes,
                                     int32_t **ids, size_t *count)
{
    struct output out = {.w = w, .ids = ids, .count = count};
    enum ddp_status status = DDP_OK;
    size_t begin = 0, length;
    if (ddp_utf8_check(text, bytes) < bytes)
        return ddp_fail(DDP_ERR_FORMAT, "a text is not UTF-8");
    for (size_t at = 0; status == DDP_OK && at < bytes; at++) {
        const int special = special_at(w, text + at, bytes - at, &length);
        if (special < 0)
            continue;
        status = put_text(&out, text + begin, at - begin);
        if (status == DDP_OK)
            status = put_id(&out, w->specials[special]);
        begin = at + length;
        at = begin - 1;
    }
    if (status == DDP_OK)
        status = put_text(&out, text + begin, bytes - begin);
    free(out.piece.at);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * See nfc.h. Nearly all text is in normal form C: only stretches with characters that could change
 * go through utf8proc, each with the character before it. */
#include "config.h"

#include "data/text/nfc.h"

#include "core/text.h"

#include <utf8proc.h>

size_t ddp_utf8_check(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t word;
        if (bytes - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof word;
                continue;
            }
        }
        const int length = ddp_text_character(text + at, bytes - at);
        if (length <= 0)
            return at;
        at += (size_t)length;
    }
    return bytes;
}

uint32_t ddp_utf8_decode(const char *text, size_t *bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *bytes = 1;
        return at[0];
    }
    if (at[0] < 0xe0) {
        *bytes = 2;
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    }
    if (at[0] < 0xf0) {
        *bytes = 3;
        return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    }
    *bytes = 4;
    return (at[0] & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

size_t ddp_utf8_encode(uint32_t character, char *text)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)character, (utf8proc_uint8_t *)text);
}

/* Does a character stay as it is, whatever stands around it, unless something joins it from behind?
 * Marks and the later parts of Hangul syllables join what is before them. */
static bool is_stable(uint32_t character)
{
    if (character >= 0x1160 && character < 0x1200)
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)character);
    const bool mark = p->category == UTF8PROC_CATEGORY_MN || p->category == UTF8PROC_CATEGORY_MC ||
                      p->category == UTF8PROC_CATEGORY_ME;
    return !mark && p->combining_class == 0 &&
           (p->decomp_seqindex == UINT16_MAX || p->decomp_type != 0);
}

/* The next character from `at` that is not stable. What is below U+0300 stays as it is, so are the
 * ideographs from U+4000. */
static size_t next_unstable(const char *text, size_t bytes, size_t at)
{
    while (at < bytes) {
        const unsigned char byte = (unsigned char)text[at];
        size_t length = 1;
        if (byte >= 0xe4 && byte <= 0xe9)
            length = 3;
        else if (byte >= 0xcc && !is_stable(ddp_utf8_decode(text + at, &length)))
            return at;
        at += length;
    }
    return bytes;
}

size_t ddp_nfc_check(const char *text, size_t bytes)
{
    return next_unstable(text, bytes, 0);
}

static size_t next_stable(const char *text, size_t bytes, size_t at)
{
    size_t length;
    while (at < bytes && !is_stable(ddp_utf8_decode(text + at, &length)))
        at += length;
    return at;
}

enum ddp_status ddp_nfc_append(struct ddp_buffer *out, const char *text, size_t bytes)
{
    enum ddp_status status = DDP_OK;
    for (size_t done = 0; status == DDP_OK && done < bytes;) {
        size_t from = next_unstable(text, bytes, done);
        const size_t to = next_stable(text, bytes, from);
        if (from < bytes && from > done)
            do /* the character before it, which it may join */
                from--;
            while (from > done && ((unsigned char)text[from] & 0xc0) == 0x80);
        status = ddp_buffer_append(out, text + done, from - done);
        if (status == DDP_OK && from < to) {
            utf8proc_uint8_t *normal = NULL;
            const utf8proc_ssize_t length =
                utf8proc_map((const utf8proc_uint8_t *)text + from, (utf8proc_ssize_t)(to - from),
                             &normal, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
            status = length < 0
                         ? ddp_fail(DDP_ERR_MEMORY, "out of memory: a text of %zu bytes", to - from)
                         : ddp_buffer_append(out, (const char *)normal, (size_t)length);
            free(normal);
        }
        done = to;
    }
    return status;
}

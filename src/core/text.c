/* SPDX-License-Identifier: MIT
 *
 * See text.h. */
#include "config.h"

#include "core/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* How many bytes a first byte announces, and the least character that needs them; 0: it is none. */
static int announced(unsigned char first, uint32_t *least)
{
    if (first < 0x80) {
        *least = 0;
        return 1;
    }
    if (first >= 0xc2 && first < 0xe0) {
        *least = 0x80;
        return 2;
    }
    if (first >= 0xe0 && first < 0xf0) {
        *least = 0x800;
        return 3;
    }
    *least = 0x10000;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

int ddp_text_character(const char *text, size_t bytes)
{
    const unsigned char *t = (const unsigned char *)text;
    uint32_t least;
    const int length = announced(t[0], &least);
    if (length < 2)
        return length;
    uint32_t code = t[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((size_t)i == bytes)
            return -1;
        if ((t[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (t[i] & 0x3fu);
    }
    return code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

bool ddp_text_ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), count = strlen(ending);
    return length >= count && strcmp(text + length - count, ending) == 0;
}

bool ddp_text_is_utf8(const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const int length = ddp_text_character(text, left);
        if (length <= 0)
            return false;
        text += length;
        left -= (size_t)length;
    }
    return true;
}

int ddp_text_columns(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static bool is_control(const unsigned char *character, int length)
{
    if (length == 1)
        return (character[0] < 0x20 && character[0] != '\t') || character[0] == 0x7f;
    return length == 2 && character[0] == 0xc2 && character[1] < 0xa0; /* C1 */
}

size_t ddp_text_clean(char *out, size_t size, const char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        const unsigned char *t = (const unsigned char *)text + at;
        const int length = ddp_text_character(text + at, bytes - at);
        const size_t taken = length > 0 ? (size_t)length : 1;
        char escape[8];
        const char *put = text + at;
        size_t count = taken;
        if (length <= 0 || is_control(t, length)) {
            count = (size_t)snprintf(escape, sizeof escape, taken == 2 ? "\\u%04x" : "\\x%02x",
                                     (unsigned)t[taken - 1]);
            put = escape;
        }
        if (count >= size - used)
            break;
        memcpy(out + used, put, count);
        used += count;
        at += taken;
    }
    out[used] = '\0';
    return used;
}

const char *ddp_text_show(char out[DDP_TEXT_SHOWN], const char *text)
{
    ddp_text_clean(out, DDP_TEXT_SHOWN, text, strlen(text));
    return out;
}

const char *ddp_text_bytes(double bytes, char out[DDP_TEXT_BYTES])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    int unit = 0;
    for (; bytes >= 999.5 && unit < 6; unit++)
        bytes /= 1000;
    if (isnan(bytes))
        return "-";
    snprintf(out, DDP_TEXT_BYTES, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes,
             units[unit]);
    return out;
}

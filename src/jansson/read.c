/* SPDX-License-Identifier: MIT
 *
 * See jansson.h: values read. As strict as the library: UTF-8 only, integers that fit, no depth
 * that would take the stack. */
#include "config.h"

#include "jansson/value.h"

#include "core/parse.h"

#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 2048

struct reader {
    const char *text, *next, *end;
    unsigned flags;
    int depth;
    json_error_t *error;
};

static json_t *wrong(struct reader *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static json_t *wrong(struct reader *in, const char *format, ...)
{
    json_error_t *error = in->error;
    va_list arguments;
    if (!error || error->text[0])
        return NULL;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    const size_t position = (size_t)(in->next - in->text);
    error->position = position < INT_MAX ? (int)position : INT_MAX;
    error->line = 1;
    for (const char *at = in->text; at < in->next; at++)
        error->line += *at == '\n';
    return NULL;
}

static char peek(struct reader *in)
{
    while (in->next < in->end && *in->next && strchr(" \t\n\r", *in->next))
        in->next++;
    return in->next < in->end ? *in->next : '\0';
}

static json_t *unexpected(struct reader *in, const char *wanted)
{
    if (in->next >= in->end)
        return wrong(in, "%s expected near end of file", wanted);
    const size_t left = (size_t)(in->end - in->next), shown = strcspn(in->next, " \t\r\n,]}");
    const size_t most = left < 20 ? left : 20;
    return wrong(in, "%s expected near '%.*s'", wanted, (int)(shown < most ? shown : most),
                 in->next);
}

static bool take(struct reader *in, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(in->end - in->next) < length || memcmp(in->next, word, length) != 0)
        return false;
    in->next += length;
    return true;
}

/* --- strings ---------------------------------------------------------------------------------- */

static bool read_hex(struct reader *in, uint32_t *code)
{
    *code = 0;
    if (in->end - in->next < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdefABCDEF";
        const char *found = in->next[i] ? strchr(digits, in->next[i]) : NULL;
        if (!found)
            return false;
        const uint32_t digit = (uint32_t)(found - digits);
        *code = *code << 4 | (digit > 15 ? digit - 6 : digit);
    }
    in->next += 4;
    return true;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(first[more] | code >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        *to++ = (char)(0x80 | (code >> 6 * i & 0x3f));
    return to;
}

/* Behind the backslash. NULL: wrong. */
static char *read_escape(struct reader *in, char *to)
{
    static const char letters[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
    const char letter = in->next < in->end ? *in->next : '\0';
    const char *found = letter ? strchr(letters, letter) : NULL;
    uint32_t code, low;
    if (found) {
        in->next++;
        *to++ = plain[found - letters];
        return to;
    }
    if (!take(in, "u") || !read_hex(in, &code)) {
        wrong(in, "invalid escape");
        return NULL;
    }
    if (code >= 0xd800 && code <= 0xdbff && take(in, "\\u") && read_hex(in, &low) &&
        low >= 0xdc00 && low <= 0xdfff)
        return put_utf8(to, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
    if (code >= 0xd800 && code <= 0xdfff) {
        wrong(in, "invalid Unicode '\\u%04X'", (unsigned)code);
        return NULL;
    }
    if (code == 0 && !(in->flags & JSON_ALLOW_NUL)) {
        wrong(in, "\\u0000 is not allowed without JSON_ALLOW_NUL");
        return NULL;
    }
    return put_utf8(to, code);
}

/* Into `to`, which has room for what is left of the text; NULL: wrong. */
static char *read_characters(struct reader *in, char *to)
{
    while (true) {
        const size_t left = (size_t)(in->end - in->next);
        const size_t count = json_utf8((const unsigned char *)in->next, left);
        if (left == 0) {
            wrong(in, "premature end of input");
            return NULL;
        }
        if (count == 0) {
            wrong(in, "unable to decode byte 0x%x", (unsigned)(unsigned char)*in->next);
            return NULL;
        }
        if ((unsigned char)*in->next < 0x20) {
            wrong(in, "control character 0x%x", (unsigned)(unsigned char)*in->next);
            return NULL;
        }
        if (take(in, "\""))
            return to;
        if (take(in, "\\")) {
            to = read_escape(in, to);
            if (!to)
                return NULL;
            continue;
        }
        memcpy(to, in->next, count);
        to += count;
        in->next += count;
    }
}

/* The bytes up to the string's end, at most; an escape is never longer as a character. */
static size_t room_of(const struct reader *in)
{
    const char *at = in->next;
    while (at < in->end && *at != '"')
        at += *at == '\\' && at + 1 < in->end ? 2 : 1;
    return (size_t)(at - in->next);
}

static json_t *read_string(struct reader *in)
{
    in->next++;
    char *buffer = malloc(room_of(in) + 1);
    if (!buffer)
        return wrong(in, "out of memory");
    const char *end = read_characters(in, buffer);
    json_t *value = end ? json_text(buffer, (size_t)(end - buffer)) : NULL;
    free(buffer);
    return value || !end ? value : wrong(in, "out of memory");
}

/* --- numbers ---------------------------------------------------------------------------------- */

static const char *digits_from(const struct reader *in, const char *at)
{
    while (at < in->end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* The end of a number; NULL: there is none. */
static const char *number_end(const struct reader *in, bool *real)
{
    const char *at = in->next + (*in->next == '-'), *end = digits_from(in, at);
    if (end == at || (*at == '0' && end - at > 1))
        return NULL;
    *real = false;
    if (end < in->end && *end == '.') {
        *real = true;
        at = end + 1;
        end = digits_from(in, at);
        if (end == at)
            return NULL;
    }
    if (end < in->end && (*end == 'e' || *end == 'E')) {
        *real = true;
        at = end + 1;
        at += at < in->end && (*at == '-' || *at == '+');
        end = digits_from(in, at);
        if (end == at)
            return NULL;
    }
    return end;
}

static json_t *read_real(struct reader *in, const char *text)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return wrong(in, "out of memory");
    json_t *value = json_real(strtod_l(text, NULL, c));
    freelocale(c);
    return value ? value : wrong(in, "real number overflow");
}

static json_t *read_number(struct reader *in)
{
    bool real;
    const char *end = number_end(in, &real);
    json_t *value = NULL;
    int64_t integer = 0;
    if (!end)
        return wrong(in, "invalid token near '%.*s'", 1, in->next);
    char *copy = strndup(in->next, (size_t)(end - in->next));
    if (!copy)
        return wrong(in, "out of memory");
    if (real)
        value = read_real(in, copy);
    else if (ddp_parse_int64(copy, INT64_MIN, INT64_MAX, &integer))
        value = json_integer(integer);
    else
        wrong(in, "too big integer");
    free(copy);
    in->next = end;
    return value;
}

/* --- values ----------------------------------------------------------------------------------- */

static json_t *read_value(struct reader *in);

/* A member's key, in `object`; NULL: wrong. */
static json_t *read_key(struct reader *in, const json_t *object)
{
    if (peek(in) != '"')
        return unexpected(in, "string or '}'");
    json_t *key = read_string(in);
    if (!key)
        return NULL;
    if (strlen(json_string_value(key)) != json_string_length(key))
        wrong(in, "NUL byte in object key not supported");
    else if (in->flags & JSON_REJECT_DUPLICATES && json_object_get(object, json_string_value(key)))
        wrong(in, "duplicate object key near '%s'", json_string_value(key));
    else if (peek(in) != ':')
        unexpected(in, "':'");
    else {
        in->next++;
        return key;
    }
    json_decref(key);
    return NULL;
}

static bool read_member(struct reader *in, json_t *parent)
{
    if (json_is_array(parent))
        return json_array_append_new(parent, read_value(in)) == 0;
    json_t *key = read_key(in, parent);
    const bool good =
        key && json_object_set_new(parent, json_string_value(key), read_value(in)) == 0;
    json_decref(key);
    return good;
}

static json_t *read_members(struct reader *in, json_t *parent, char end)
{
    const char close[] = {'\'', end, '\'', '\0'};
    bool good = parent && in->depth++ < MOST_DEPTH;
    in->next++;
    if (good && peek(in) == end) {
        in->next++;
    } else {
        while (good && (good = read_member(in, parent)) && peek(in) == ',')
            in->next++;
        if (good && peek(in) != end)
            good = unexpected(in, close);
        in->next += good;
    }
    if (good) {
        in->depth--;
        return parent;
    }
    json_decref(parent);
    return wrong(in, in->depth > MOST_DEPTH ? "maximum parsing depth reached" : "out of memory");
}

static json_t *read_value(struct reader *in)
{
    switch (peek(in)) {
    case '{':
        return read_members(in, json_object(), '}');
    case '[':
        return read_members(in, json_array(), ']');
    case '"':
        return read_string(in);
    default:
        break;
    }
    if (in->next >= in->end)
        return wrong(in, "unexpected end of input");
    if (take(in, "null"))
        return json_null();
    if (take(in, "true"))
        return json_value(JSON_TRUE);
    if (take(in, "false"))
        return json_value(JSON_FALSE);
    return read_number(in);
}

json_t *json_loadb(const char *text, size_t bytes, unsigned flags, json_error_t *error)
{
    struct reader in = {text, text, text + bytes, flags, 0, error};
    if (error)
        *error = (json_error_t){.line = -1};
    const char first = peek(&in);
    if (first != '{' && first != '[')
        return unexpected(&in, "'[' or '{'");
    json_t *value = read_value(&in);
    peek(&in);
    if (value && in.next < in.end) {
        json_decref(value);
        return unexpected(&in, "end of file");
    }
    return value;
}

json_t *json_loads(const char *text, unsigned flags, json_error_t *error)
{
    return json_loadb(text, strlen(text), flags, error);
}

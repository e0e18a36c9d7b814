/* SPDX-License-Identifier: MIT
 *
 * See jansson.h: values written, and packed from a format. */
#include "config.h"

#include "jansson/value.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- packing ---------------------------------------------------------------------------------- */

struct pack {
    const char *next;
    bool failed;
    va_list arguments;
};

static char next_of(struct pack *pack)
{
    pack->next += strspn(pack->next, " ,:");
    return *pack->next ? *pack->next++ : '\0';
}

static json_t *pack_value(struct pack *pack, char what);

static json_t *pack_members(struct pack *pack, json_t *parent, char end)
{
    for (char what = next_of(pack); what != end; what = next_of(pack)) {
        if (what == '\0') {
            pack->failed = true;
            break;
        }
        const char *key = end == '}' ? va_arg(pack->arguments, const char *) : NULL;
        if (key)
            what = next_of(pack);
        json_t *value = pack_value(pack, what);
        /* All arguments are taken, come what may, since values among them are owned. */
        if ((key ? json_object_set_new(parent, key, value) : json_array_append_new(parent, value)))
            pack->failed = true;
    }
    return parent;
}

static json_t *pack_value(struct pack *pack, char what)
{
    switch (what) {
    case '{':
        return pack_members(pack, json_object(), '}');
    case '[':
        return pack_members(pack, json_array(), ']');
    case 's':
        return json_string(va_arg(pack->arguments, const char *));
    case 'i':
        return json_integer(va_arg(pack->arguments, int));
    case 'I':
        return json_integer(va_arg(pack->arguments, json_int_t));
    case 'f':
        return json_real(va_arg(pack->arguments, double));
    case 'b':
        return json_value(va_arg(pack->arguments, int) ? JSON_TRUE : JSON_FALSE);
    case 'o': {
        json_t *value = va_arg(pack->arguments, json_t *);
        const bool may_be_null = *pack->next == '?';
        pack->next += may_be_null;
        return value || !may_be_null ? value : json_null();
    }
    default:
        return NULL;
    }
}

json_t *json_pack(const char *format, ...)
{
    struct pack pack = {.next = format};
    va_start(pack.arguments, format);
    json_t *value = pack_value(&pack, next_of(&pack));
    va_end(pack.arguments);
    if (!pack.failed)
        return value;
    json_decref(value);
    return NULL;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_text(FILE *out, const char *text, size_t length)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    fputc('"', out);
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)text[i];
        const char *found = byte ? strchr(plain, byte) : NULL;
        if (found)
            fprintf(out, "\\%c", letters[found - plain]);
        else if (byte < 0x20)
            fprintf(out, "\\u%04X", (unsigned)byte);
        else
            fputc(byte, out);
    }
    fputc('"', out);
}

/* As "%.17g" but that it shows a real number to be one: 1.0, 1e-5. */
static void write_real(FILE *out, double real, int digits)
{
    char text[64];
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t old = c ? uselocale(c) : (locale_t)0;
    snprintf(text, sizeof text, "%.*g", digits ? digits : 17, real);
    if (c) {
        uselocale(old);
        freelocale(c);
    }
    const char *exponent = strchr(text, 'e');
    if (!exponent) {
        fprintf(out, "%s%s", text, strchr(text, '.') ? "" : ".0");
        return;
    }
    const char *number = exponent + 1 + (exponent[1] == '+' || exponent[1] == '-');
    number += strspn(number, "0");
    fprintf(out, "%.*se%s%s", (int)(exponent - text), text, exponent[1] == '-' ? "-" : "", number);
}

static void write_value(FILE *out, const json_t *value, unsigned flags, int depth);

static void write_line(FILE *out, unsigned flags, int depth, bool between)
{
    if (JSON_INDENT(flags))
        fprintf(out, "\n%*s", (int)JSON_INDENT(flags) * depth, "");
    else if (between && !(flags & JSON_COMPACT))
        fputc(' ', out);
}

static void write_members(FILE *out, const json_t *parent, unsigned flags, int depth)
{
    const bool object = json_is_object(parent);
    fputc(object ? '{' : '[', out);
    for (size_t i = 0; i < parent->count; i++) {
        if (i > 0)
            fputc(',', out);
        write_line(out, flags, depth + 1, i > 0);
        if (object) {
            write_text(out, parent->members[i].key, strlen(parent->members[i].key));
            fputs(flags & JSON_COMPACT ? ":" : ": ", out);
        }
        write_value(out, parent->members[i].value, flags, depth + 1);
    }
    if (parent->count > 0)
        write_line(out, flags, depth, false);
    fputc(object ? '}' : ']', out);
}

static void write_value(FILE *out, const json_t *value, unsigned flags, int depth)
{
    switch (value->kind) {
    case JSON_NULL:
        fputs("null", out);
        break;
    case JSON_FALSE:
        fputs("false", out);
        break;
    case JSON_TRUE:
        fputs("true", out);
        break;
    case JSON_INTEGER:
        fprintf(out, "%lld", value->integer);
        break;
    case JSON_REAL:
        write_real(out, value->real, (int)(flags >> 11 & 0x1f));
        break;
    case JSON_STRING:
        write_text(out, value->text, value->length);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        write_members(out, value, flags, depth);
        break;
    }
}

char *json_dumps(const json_t *value, unsigned flags)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = value ? open_memstream(&text, &bytes) : NULL;
    if (!out)
        return NULL;
    write_value(out, value, flags, 0);
    const bool failed = ferror(out);
    if (fclose(out) == 0 && text && !failed)
        return text;
    free(text);
    return NULL;
}

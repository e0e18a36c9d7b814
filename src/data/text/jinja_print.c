/* SPDX-License-Identifier: MIT
 *
 * See jinja_parts.h: values as text, as Python's str() and json.dumps() write them, and JSON as
 * values. */
#include "config.h"

#include "data/text/jinja_parts.h"

#include "data/text/nfc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define DEEPEST 200 /* lists and dicts in each other */

/* As repr() of Python: the fewest digits that read back as the same number. */
static void put_real(struct jinja_run *run, struct jinja_builder *builder, double real)
{
    char digits[40], text[64];
    int precision = 0;
    if (isnan(real) || isinf(real)) {
        ddp_jinja_puts(run, builder, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision, real);
    while (strtod(digits, NULL) != real && precision++ < 16);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, sizeof text, "%s", digits);
    else if (precision > exponent)
        snprintf(text, sizeof text, "%.*f", precision - exponent, real);
    else
        snprintf(text, sizeof text, "%.1f", real);
    ddp_jinja_puts(run, builder, text);
}

/* repr() of a string. Characters beyond ASCII count as printable. */
static void put_quoted(struct jinja_run *run, struct jinja_builder *builder,
                       struct jinja_string text)
{
    const bool doubled = memchr(text.at, '\'', text.bytes) && !memchr(text.at, '"', text.bytes);
    const char quote = doubled ? '"' : '\'', marks[] = {quote, '\0'};
    ddp_jinja_puts(run, builder, marks);
    for (size_t i = 0; i < text.bytes && run->status == DDP_OK; i++) {
        const char c = text.at[i];
        char escape[8] = {'\\', c, '\0'};
        if (c == '\n' || c == '\r' || c == '\t')
            escape[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        else if ((unsigned char)c < ' ' || c == 127)
            snprintf(escape, sizeof escape, "\\x%02x", c);
        else if (c != '\\' && c != quote) {
            ddp_jinja_put(run, builder, ddp_jinja_part(text, i, i + 1));
            continue;
        }
        ddp_jinja_puts(run, builder, escape);
    }
    ddp_jinja_puts(run, builder, marks);
}

static void put_inner(struct jinja_run *run, struct jinja_builder *builder,
                      struct jinja_value value, int depth);

static void put_parts(struct jinja_run *run, struct jinja_builder *builder,
                      struct jinja_value value, int depth)
{
    const bool list = value.type == JINJA_LIST;
    const size_t count = list ? value.list->count : value.dict->count;
    ddp_jinja_puts(run, builder, !list ? "{" : value.tuple ? "(" : "[");
    for (size_t i = 0; i < count && run->status == DDP_OK; i++) {
        if (i > 0)
            ddp_jinja_puts(run, builder, ", ");
        if (!list) {
            put_quoted(run, builder, value.dict->at[i].key);
            ddp_jinja_puts(run, builder, ": ");
        }
        put_inner(run, builder, list ? value.list->at[i] : value.dict->at[i].value, depth + 1);
    }
    ddp_jinja_puts(run, builder, !list ? "}" : !value.tuple ? "]" : count == 1 ? ",)" : ")");
}

static void put_inner(struct jinja_run *run, struct jinja_builder *builder,
                      struct jinja_value value, int depth)
{
    char text[32];
    if (depth > DEEPEST)
        (void)ddp_jinja_fail(run, "data of more than %d levels", DEEPEST);
    if (run->status != DDP_OK)
        return;
    switch (value.type) {
    case JINJA_UNDEFINED:
        ddp_jinja_puts(run, builder, depth > 0 ? "Undefined" : "");
        return;
    case JINJA_NONE:
        ddp_jinja_puts(run, builder, "None");
        return;
    case JINJA_BOOL:
        ddp_jinja_puts(run, builder, value.number ? "True" : "False");
        return;
    case JINJA_INT:
        snprintf(text, sizeof text, "%" PRId64, value.number);
        ddp_jinja_puts(run, builder, text);
        return;
    case JINJA_FLOAT:
        put_real(run, builder, value.real);
        return;
    case JINJA_STRING:
        if (depth > 0)
            put_quoted(run, builder, value.text);
        else
            ddp_jinja_put(run, builder, value.text);
        return;
    case JINJA_LIST:
    case JINJA_DICT:
        put_parts(run, builder, value, depth);
        return;
    default:
        (void)ddp_jinja_fail(run, "%s is no text", ddp_jinja_type_name(value));
    }
}

void ddp_jinja_put_value(struct jinja_run *run, struct jinja_builder *builder,
                         struct jinja_value value)
{
    put_inner(run, builder, value, 0);
}

struct jinja_value ddp_jinja_str(struct jinja_run *run, struct jinja_value value)
{
    struct jinja_builder builder = {0};
    if (value.type == JINJA_STRING)
        return value;
    put_inner(run, &builder, value, 0);
    return ddp_jinja_built(&builder);
}

/* --- JSON ------------------------------------------------------------------------------------- */

struct jinja_value ddp_jinja_from_json(struct jinja_run *run, const json_t *data, uint16_t owner,
                                       const char *owned)
{
    struct jinja_value value = {.type = JINJA_UNDEFINED};
    const char *key;
    json_t *part;
    if (json_is_string(data)) {
        struct jinja_string text = {json_string_value(data), NULL, json_string_length(data)};
        uint16_t *owners = owner ? ddp_jinja_take(run, text.bytes + 1, sizeof *owners) : NULL;
        for (size_t i = 0; owners && i < text.bytes; i++)
            owners[i] = owner;
        text.owners = owners;
        return ddp_jinja_string(text);
    }
    if (json_is_integer(data))
        return ddp_jinja_int(json_integer_value(data));
    if (json_is_real(data))
        return (struct jinja_value){.type = JINJA_FLOAT, .real = json_real_value(data)};
    if (json_is_boolean(data))
        return ddp_jinja_bool(json_is_true(data));
    value.type = JINJA_NONE;
    if (run->depth > DEEPEST)
        (void)ddp_jinja_fail(run, "data of more than %d levels", DEEPEST);
    if (json_is_null(data) || run->status != DDP_OK)
        return value;
    run->depth++;
    if (json_is_array(data)) {
        const size_t count = json_array_size(data);
        value = ddp_jinja_list(run, count);
        for (size_t i = 0; run->status == DDP_OK && i < count; i++)
            value.list->at[i] =
                ddp_jinja_from_json(run, json_array_get(data, i),
                                    owner == UINT16_MAX ? (uint16_t)(i + 1) : owner, NULL);
    } else {
        value = (struct jinja_value){.type = JINJA_DICT};
        value.dict = ddp_jinja_take(run, 1, sizeof *value.dict);
        json_object_foreach((json_t *)data, key, part)
        {
            const struct jinja_string name = {key, NULL, strlen(key)};
            const bool traced = owned ? strcmp(key, owned) == 0 : strcmp(key, "role") != 0;
            const uint16_t whose = !traced ? 0 : owned ? UINT16_MAX : owner;
            const struct jinja_value inner = ddp_jinja_from_json(run, part, whose, NULL);
            if (value.dict)
                ddp_jinja_set(run, value.dict, name, inner);
        }
    }
    run->depth--;
    return value;
}

struct dump {
    struct jinja_run *run;
    struct jinja_builder *builder;
    struct jinja_string indent, between, colon; /* indent.at NULL: one line */
    bool ascii, sorted;
};

static void put_json_string(const struct dump *d, struct jinja_string text)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    ddp_jinja_puts(d->run, d->builder, "\"");
    for (size_t i = 0, from = 0; i <= text.bytes && d->run->status == DDP_OK; i++) {
        const unsigned char c = i < text.bytes ? (unsigned char)text.at[i] : 0;
        const char *found = c ? strchr(plain, c) : NULL;
        char escape[16] = "";
        size_t bytes = 1;
        if (i < text.bytes && !found && c >= ' ' && (c < 128 || !d->ascii))
            continue;
        ddp_jinja_put(d->run, d->builder, ddp_jinja_part(text, from, i));
        if (i == text.bytes)
            break;
        const uint32_t code = c < 128 ? c : ddp_utf8_decode(text.at + i, &bytes);
        if (found)
            snprintf(escape, sizeof escape, "\\%c", letters[found - plain]);
        else if (code < 0x10000)
            snprintf(escape, sizeof escape, "\\u%04" PRIx32, code);
        else
            snprintf(escape, sizeof escape, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd7c0 + (code >> 10),
                     0xdc00 + (code & 0x3ff));
        struct jinja_string whole = {escape, NULL, strlen(escape)};
        uint16_t owners[16];
        for (size_t k = 0; k < whole.bytes; k++)
            owners[k] = text.owners ? text.owners[i] : 0;
        whole.owners = owners;
        ddp_jinja_put(d->run, d->builder, whole);
        i += bytes - 1;
        from = i + 1;
    }
    ddp_jinja_puts(d->run, d->builder, "\"");
}

static void put_line(const struct dump *d, int depth)
{
    if (!d->indent.at)
        return;
    ddp_jinja_puts(d->run, d->builder, "\n");
    for (int i = 0; i < depth; i++)
        ddp_jinja_put(d->run, d->builder, d->indent);
}

/* The keys of a dict in their order: each once. */
static struct jinja_pair *sorted_pairs(const struct dump *d, const struct jinja_dict *dict)
{
    struct jinja_pair *pairs = ddp_jinja_take(d->run, dict->count + 1, sizeof *pairs);
    for (size_t i = 0; pairs && i < dict->count; i++) {
        size_t at = i;
        for (; at > 0 && ddp_jinja_compare(d->run, ddp_jinja_string(pairs[at - 1].key),
                                           ddp_jinja_string(dict->at[i].key)) > 0;
             at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = dict->at[i];
    }
    return pairs;
}

static void put_json(const struct dump *d, struct jinja_value value, int depth)
{
    if (depth > DEEPEST)
        (void)ddp_jinja_fail(d->run, "data of more than %d levels", DEEPEST);
    if (!ddp_jinja_work(d->run, 0))
        return;
    if (value.type == JINJA_STRING) {
        put_json_string(d, value.text);
    } else if (value.type == JINJA_NONE || value.type == JINJA_BOOL) {
        ddp_jinja_puts(d->run, d->builder,
                       value.type == JINJA_NONE ? "null"
                       : value.number           ? "true"
                                                : "false");
    } else if (value.type == JINJA_INT || value.type == JINJA_FLOAT) {
        ddp_jinja_put_value(d->run, d->builder, value);
    } else if (value.type == JINJA_LIST || value.type == JINJA_DICT) {
        const bool list = value.type == JINJA_LIST;
        const size_t count = list ? value.list->count : value.dict->count;
        const struct jinja_pair *pairs = list ? NULL : value.dict->at;
        if (!list && d->sorted)
            pairs = sorted_pairs(d, value.dict);
        ddp_jinja_puts(d->run, d->builder, list ? "[" : "{");
        for (size_t i = 0; i < count && d->run->status == DDP_OK; i++) {
            if (i > 0)
                ddp_jinja_put(d->run, d->builder, d->between);
            put_line(d, depth + 1);
            if (!list) {
                put_json_string(d, pairs[i].key);
                ddp_jinja_put(d->run, d->builder, d->colon);
            }
            put_json(d, list ? value.list->at[i] : pairs[i].value, depth + 1);
        }
        if (count > 0)
            put_line(d, depth);
        ddp_jinja_puts(d->run, d->builder, list ? "]" : "}");
    } else {
        (void)ddp_jinja_fail(d->run, "%s is no JSON", ddp_jinja_type_name(value));
    }
}

void ddp_jinja_put_json(struct jinja_run *run, struct jinja_builder *builder,
                        struct jinja_value value, struct jinja_args *args)
{
    const struct jinja_value ascii = ddp_jinja_arg(args, 0, "ensure_ascii"),
                             indent = ddp_jinja_arg(args, 1, "indent"),
                             between = ddp_jinja_arg(args, 2, "separators"),
                             sorted = ddp_jinja_arg(args, 3, "sort_keys");
    static const char spaces[] = "                ";
    struct dump d = {.run = run, .builder = builder};
    if (indent.type == JINJA_STRING)
        d.indent = indent.text;
    else if (indent.type == JINJA_INT)
        d.indent = ddp_jinja_part(ddp_jinja_text(spaces).text, 0,
                                  indent.number < 0    ? 0
                                  : indent.number > 16 ? 16
                                                       : (size_t)indent.number);
    d.between = ddp_jinja_text(d.indent.at ? "," : ", ").text;
    d.colon = ddp_jinja_text(": ").text;
    if (between.type == JINJA_LIST && between.list->count == 2) {
        d.between = ddp_jinja_str(run, between.list->at[0]).text;
        d.colon = ddp_jinja_str(run, between.list->at[1]).text;
    }
    d.ascii = ddp_jinja_true(ascii);
    d.sorted = ddp_jinja_true(sorted);
    put_json(&d, value, 0);
}

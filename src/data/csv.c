/* SPDX-License-Identifier: MIT
 *
 * See csv.h. */
#include "config.h"

#include "data/csv.h"

#include "core/log.h"
#include "core/text.h"

#include <string.h>

static enum ddp_status check_encoding(const struct ddp_csv *csv)
{
    const size_t bytes = (size_t)(csv->end - csv->at);
    size_t line = 1;
    if (bytes >= 2 && (memcmp(csv->at, "\xff\xfe", 2) == 0 || memcmp(csv->at, "\xfe\xff", 2) == 0))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: the text is UTF-16, and tables are read as UTF-8: convert it with "
                        "iconv -f UTF-16 -t UTF-8",
                        csv->name);
    for (size_t i = 0; i < bytes;) {
        const unsigned char byte = (unsigned char)csv->at[i];
        const int width = byte < 0x80 ? 1 : ddp_text_character(csv->at + i, bytes - i);
        if (byte == 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: line %zu has a byte 0: it is not a text",
                            csv->name, line);
        if (width <= 0)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: line %zu: byte 0x%02x is not UTF-8: if the text is Windows-1252 "
                            "or Latin-1, convert it with iconv -f WINDOWS-1252 -t UTF-8",
                            csv->name, line, byte);
        line += byte == '\n';
        i += (size_t)width;
    }
    return DDP_OK;
}

enum ddp_status ddp_csv_open(struct ddp_csv *csv, const char *name, const char *text, size_t bytes,
                             char separator)
{
    static const char mark[] = "\xef\xbb\xbf";
    const bool marked = bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0;
    *csv = (struct ddp_csv){
        .name = name, .at = text, .end = text + bytes, .separator = separator, .line = 1};
    const enum ddp_status status = check_encoding(csv);
    csv->at += marked ? sizeof mark - 1 : 0;
    return status;
}

/* Bytes of a line's end that is here; 0: there is none. A \r alone is not one. */
static size_t line_end(const struct ddp_csv *csv)
{
    if (csv->at < csv->end && *csv->at == '\n')
        return 1;
    return csv->end - csv->at >= 2 && csv->at[0] == '\r' && csv->at[1] == '\n' ? 2 : 0;
}

bool ddp_csv_more(struct ddp_csv *csv)
{
    for (size_t bytes; (bytes = line_end(csv)) > 0; csv->line++)
        csv->at += bytes;
    return csv->at < csv->end;
}

/* Behind the first quote. */
static enum ddp_status take_quoted(struct ddp_csv *csv, struct ddp_csv_field *field)
{
    const size_t first = csv->line;
    field->quoted = true;
    field->at = ++csv->at;
    for (;; csv->at++) {
        if (csv->at == csv->end)
            return ddp_fail(DDP_ERR_FORMAT, "%s: line %zu: a quote is never closed", csv->name,
                            first);
        csv->line += *csv->at == '\n';
        if (*csv->at != '"')
            continue;
        if (csv->at + 1 == csv->end || csv->at[1] != '"')
            break;
        csv->at++;
    }
    field->bytes = (size_t)(csv->at++ - field->at);
    return DDP_OK;
}

enum ddp_status ddp_csv_field(struct ddp_csv *csv, struct ddp_csv_field *field)
{
    enum ddp_status status = DDP_OK;
    *field = (struct ddp_csv_field){.at = csv->at};
    if (csv->at < csv->end && *csv->at == '"') {
        status = take_quoted(csv, field);
    } else {
        while (csv->at < csv->end && *csv->at != csv->separator && line_end(csv) == 0)
            csv->at++;
        field->bytes = (size_t)(csv->at - field->at);
    }
    if (status != DDP_OK)
        return status;
    const size_t ending = line_end(csv);
    field->last = csv->at == csv->end || ending > 0;
    if (!field->last && *csv->at != csv->separator)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: line %zu: something follows a closed quote: a quote inside a quoted "
                        "field is written twice",
                        csv->name, csv->line);
    csv->at += field->last ? ending : 1;
    csv->line += ending > 0;
    return DDP_OK;
}

size_t ddp_csv_text(const struct ddp_csv_field *field, char *text, size_t size)
{
    const char *at = field->at, *end = at + field->bytes;
    size_t all = 0;
    while (!field->quoted && at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (!field->quoted && at < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (; at < end; at++, all++) {
        if (all + 1 < size)
            text[all] = *at;
        at += field->quoted && *at == '"';
    }
    text[all < size ? all : size - 1] = '\0';
    return all;
}

/* SPDX-License-Identifier: MIT
 *
 * See sentences.h. */
#include "config.h"

#include "data/sentences.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/text.h"
#include "data/csv.h"
#include "data/line_reader.h"
#include "data/text/buffer.h"
#include "data/text_file.h"

#include <math.h>

#define LINES 4096 /* at a time */

/* The names that people use. The last text may be missing where `open` says so. */
static const struct {
    const char *names[DDP_SENTENCE_TEXTS];
    bool contrasts, open;
} forms[] = {
    {{"text"}, false, false},
    {{"sentence1", "sentence2"}, false, true},
    {{"sentence"}, false, false},
    {{"premise", "hypothesis"}, false, false},
    {{"question1", "question2"}, false, false},
    {{"anchor", "positive", "negative"}, true, true},
};

#define FORMS ((int)(sizeof forms / sizeof forms[0]))

static enum ddp_status take_label(struct ddp_sentence_line *line, const json_t *label, bool typed,
                                  const char *where)
{
    const char *text = json_string_value(label);
    double number;
    int64_t integer;
    if (!label || json_is_null(label) || (!typed && text && !*text))
        return DDP_OK;
    if (json_is_integer(label) ||
        (!typed && text &&
         ddp_parse_int64(text, -INT64_C(1000000000000), 1000000000000, &integer))) {
        line->kind = DDP_SENTENCE_INTEGER;
        line->number = text ? (double)integer : (double)json_integer_value(label);
    } else if (json_is_real(label) ||
               (!typed && text && ddp_parse_double(text, -1e30, 1e30, &number))) {
        line->kind = DDP_SENTENCE_REAL;
        line->number = text ? number : json_real_value(label);
    } else if (text || json_is_boolean(label)) {
        line->kind = DDP_SENTENCE_WORD;
        line->word = text ? text : json_is_true(label) ? "true" : "false";
    } else {
        return ddp_fail(DDP_ERR_FORMAT, "%s: the label is neither a number nor a word", where);
    }
    return DDP_OK;
}

enum ddp_status ddp_sentence_take(struct ddp_sentence_line *line, const json_t *root, bool typed,
                                  const char *where)
{
    char found[256];
    int form = 0;
    *line = (struct ddp_sentence_line){0};
    while (form < FORMS && !json_object_get(root, forms[form].names[0]))
        form++;
    if (form == FORMS)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: no text in it: there must be \"text\", or \"sentence1\" and "
                        "\"sentence2\", with a \"label\", or \"anchor\", \"positive\" and perhaps "
                        "\"negative\"; it has %s: name yours with --columns text=NAME,label=NAME",
                        where, ddp_columns_found(root, found, sizeof found));
    line->form = form;
    line->contrasts = forms[form].contrasts;
    for (int i = 0; i < DDP_SENTENCE_TEXTS && forms[form].names[i]; i++) {
        const json_t *text = json_object_get(root, forms[form].names[i]);
        const bool last = i + 1 == DDP_SENTENCE_TEXTS || !forms[form].names[i + 1];
        if ((!text || json_is_null(text)) && last && forms[form].open)
            break;
        if (!json_is_string(text))
            return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" is %s", where, forms[form].names[i],
                            text ? "not a string" : "missing");
        line->texts[line->text_count++] = text;
    }
    const json_t *label = json_object_get(root, "label");
    if (line->contrasts)
        return DDP_OK;
    return take_label(line, label ? label : json_object_get(root, "score"), typed, where);
}

struct walk {
    const char *path;
    const struct ddp_columns *columns;
    enum ddp_status (*put)(void *arg, const struct ddp_sentence_line *line, const char *where);
    void *arg;
};

/* Frees the object. */
static enum ddp_status put_object(const struct walk *walk, json_t *root, bool typed, size_t number)
{
    struct ddp_sentence_line line;
    char where[DDP_TEXT_SHOWN + 32], shown[DDP_TEXT_SHOWN];
    snprintf(where, sizeof where, "%s:%zu", ddp_text_show(shown, walk->path), number);
    enum ddp_status status = ddp_columns_apply(walk->columns, &root, where);
    if (status == DDP_OK)
        status = ddp_sentence_take(&line, root, typed, where);
    if (status == DDP_OK)
        status = walk->put(walk->arg, &line, where);
    json_decref(root);
    return status;
}

static enum ddp_status walk_lines(const struct walk *walk)
{
    ddp_line_reader *reader = NULL;
    struct ddp_line *lines = ddp_array_alloc(LINES, sizeof *lines);
    enum ddp_status status = lines ? ddp_line_reader_open(&reader, walk->path) : DDP_ERR_MEMORY;
    for (size_t count = 1; status == DDP_OK && count > 0;) {
        status = ddp_line_reader_next(reader, lines, LINES, &count);
        for (size_t i = 0; status == DDP_OK && i < count; i++) {
            char name[DDP_TEXT_SHOWN + 32], shown[DDP_TEXT_SHOWN];
            json_t *root = NULL;
            snprintf(name, sizeof name, "%s:%u", ddp_text_show(shown, walk->path),
                     (unsigned)lines[i].number);
            status =
                ddp_json_parse_object(&root, name, lines[i].at, lines[i].bytes, JSON_ALLOW_NUL);
            if (status == DDP_OK)
                status = put_object(walk, root, true, lines[i].number);
        }
    }
    ddp_line_reader_close(reader);
    free(lines);
    return status;
}

/* A field as a string. *text is a buffer for it. */
static enum ddp_status read_field(struct ddp_csv *csv, struct ddp_csv_field *field,
                                  struct ddp_buffer *text, size_t *bytes)
{
    enum ddp_status status = ddp_csv_field(csv, field);
    if (status == DDP_OK)
        status = ddp_buffer_reserve(text, field->bytes + 1);
    if (status == DDP_OK)
        *bytes = ddp_csv_text(field, text->at, field->bytes + 1);
    return status;
}

/* The fields of a record in an object, under the names of the header. */
static enum ddp_status read_record(struct ddp_csv *csv, json_t *header, json_t *root,
                                   struct ddp_buffer *text)
{
    struct ddp_csv_field field = {.last = false};
    const size_t line = csv->line, columns = json_array_size(header);
    enum ddp_status status = DDP_OK;
    size_t column = 0, bytes = 0;
    for (; status == DDP_OK && !field.last; column++) {
        status = read_field(csv, &field, text, &bytes);
        if (status == DDP_OK && !root &&
            json_array_append_new(header, json_stringn(text->at, bytes)) != 0)
            status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", csv->name);
        if (status == DDP_OK && root && column < columns &&
            json_object_set_new(root, json_string_value(json_array_get(header, column)),
                                json_stringn(text->at, bytes)) != 0)
            status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", csv->name);
    }
    if (status == DDP_OK && root && column != columns)
        return ddp_fail(DDP_ERR_FORMAT, "%s:%zu: it has %zu fields, and the first line %zu",
                        csv->name, line, column, columns);
    return status;
}

static enum ddp_status walk_records(const struct walk *walk, const struct ddp_text *all, bool tabs)
{
    struct ddp_csv csv;
    struct ddp_buffer text = {0};
    json_t *header = json_array();
    enum ddp_status status = header ? ddp_csv_open(&csv, walk->path, (const char *)all->at,
                                                   all->bytes, tabs ? '\t' : ',')
                                    : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK && ddp_csv_more(&csv))
        status = read_record(&csv, header, NULL, &text);
    while (status == DDP_OK && ddp_csv_more(&csv)) {
        const size_t line = csv.line;
        json_t *root = json_object();
        status = root ? read_record(&csv, header, root, &text)
                      : ddp_fail(DDP_ERR_MEMORY, "out of memory");
        if (status == DDP_OK)
            status = put_object(walk, root, false, line);
        else
            json_decref(root);
    }
    json_decref(header);
    free(text.at);
    return status;
}

static bool is_table(const char *path, const char *ending)
{
    char gz[16];
    snprintf(gz, sizeof gz, "%s.gz", ending);
    return ddp_text_ends_with(path, ending) || ddp_text_ends_with(path, gz);
}

enum ddp_status ddp_sentences_walk(const char *path, const struct ddp_columns *columns,
                                   enum ddp_status (*put)(void *arg,
                                                          const struct ddp_sentence_line *line,
                                                          const char *where),
                                   void *arg)
{
    const struct walk walk = {path, columns, put, arg};
    const bool tabs = is_table(path, ".tsv");
    struct ddp_text text = {0};
    if (!tabs && !is_table(path, ".csv"))
        return walk_lines(&walk);
    FILE *file = fopen(path, "rbe");
    enum ddp_status status = file ? ddp_text_read(&text, file, path, false, ddp_memory_total() / 2)
                                  : ddp_fail_path(path, "open the data");
    if (file)
        fclose(file);
    if (status == DDP_OK)
        status = walk_records(&walk, &text, tabs);
    free(text.at);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * See table_schema.h. */
#include "config.h"

#include "data/table_schema.h"

#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void column_free(struct ddp_table_column *column)
{
    for (size_t i = 0; i < column->value_count; i++)
        free(column->values[i]);
    free(column->values);
    free(column->name);
    *column = (struct ddp_table_column){0};
}

void ddp_table_schema_free(struct ddp_table_schema *schema)
{
    for (size_t i = 0; i < schema->input_count; i++)
        column_free(&schema->inputs[i]);
    free(schema->inputs);
    column_free(&schema->target);
    *schema = (struct ddp_table_schema){0};
}

size_t ddp_table_schema_width(const struct ddp_table_schema *schema)
{
    size_t width = 0;
    for (size_t i = 0; i < schema->input_count; i++)
        width += ddp_table_embeds(&schema->inputs[i]) ? 0
                 : schema->inputs[i].words            ? schema->inputs[i].value_count
                                                      : 1;
    return width;
}

/* --- values ----------------------------------------------------------------------------------- */

/* 2024-01-31, with or without a time; 31.1.2024; 1/31/24. */
static bool is_date(const char *text)
{
    int parts = 1, digits = 0;
    char separator = '\0';
    const char *at = text;
    for (; *at && *at != ' ' && *at != 'T'; at++)
        if (*at >= '0' && *at <= '9') {
            digits++;
        } else if (strchr("-./", *at) && at > text && (!separator || separator == *at)) {
            separator = *at;
            parts++;
        } else {
            return false;
        }
    return parts == 3 && digits >= 4 && digits <= 8;
}

enum ddp_table_value ddp_table_value_of(const char *text, double *number)
{
    static const char *const missing[] = {"",     "NA",   "N/A",  "NaN", "nan", "null",
                                          "NULL", "None", "#N/A", "?",   NULL};
    for (int i = 0; missing[i]; i++)
        if (strcmp(text, missing[i]) == 0)
            return DDP_TABLE_MISSING;
    if (ddp_parse_double(text, -(double)FLT_MAX, (double)FLT_MAX, number))
        return DDP_TABLE_NUMBER;
    return is_date(text) ? DDP_TABLE_DATE : DDP_TABLE_WORD;
}

void ddp_table_class_name(char text[DDP_TABLE_WORD_BYTES])
{
    double number;
    if (ddp_table_value_of(text, &number) == DDP_TABLE_NUMBER && number == floor(number) &&
        fabs(number) < 1e15)
        snprintf(text, DDP_TABLE_WORD_BYTES, "%.0f", number + 0.0);
}

/* Numbers before words, and in their order. */
static int compare(const char *a, const char *b)
{
    double x, y;
    const bool first = ddp_table_value_of(a, &x) == DDP_TABLE_NUMBER;
    const bool second = ddp_table_value_of(b, &y) == DDP_TABLE_NUMBER;
    if (first && second && x != y)
        return x < y ? -1 : 1;
    return first != second ? (first ? -1 : 1) : strcmp(a, b);
}

size_t ddp_table_place(const struct ddp_table_column *column, const char *value, bool *found)
{
    size_t begin = 0, end = column->value_count;
    *found = false;
    while (begin < end && !*found) {
        const size_t middle = begin + (end - begin) / 2;
        const int order = compare(column->values[middle], value);
        *found = order == 0;
        if (order == 0)
            begin = middle;
        else if (order < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

enum ddp_status ddp_table_add_value(struct ddp_table_column *column, const char *value)
{
    bool found;
    const size_t at = ddp_table_place(column, value, &found);
    char *copy = found ? NULL : strdup(value);
    if (found)
        return DDP_OK;
    if (!copy)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for the words of a table");
    const enum ddp_status status =
        ddp_array_append(&column->values, &column->value_count, &copy, sizeof copy);
    if (status != DDP_OK) {
        free(copy);
        return status;
    }
    memmove(column->values + at + 1, column->values + at,
            (column->value_count - 1 - at) * sizeof *column->values);
    column->values[at] = copy;
    return DDP_OK;
}

/* --- text ------------------------------------------------------------------------------------- */

static json_t *column_json(const struct ddp_table_column *column)
{
    if (!column->words)
        return json_pack("{s:s, s:f, s:f, s:f}", "name", column->name, "fill", column->fill, "mean",
                         column->mean, "std", column->std);
    json_t *words = json_array();
    for (size_t i = 0; i < column->value_count; i++)
        json_array_append_new(words, json_string(column->values[i]));
    return json_pack("{s:s, s:o}", "name", column->name, "words", words);
}

char *ddp_table_schema_text(const struct ddp_table_schema *schema)
{
    json_t *columns = json_array();
    for (size_t i = 0; i < schema->input_count; i++)
        json_array_append_new(columns, column_json(&schema->inputs[i]));
    json_t *root = json_pack("{s:s, s:o, s:o}", "kind", "table", "target",
                             column_json(&schema->target), "columns", columns);
    char *text = root && json_array_size(columns) == schema->input_count
                     ? ddp_json_text(root, JSON_COMPACT)
                     : NULL;
    json_decref(root);
    if (!text)
        (void)ddp_fail(DDP_ERR_MEMORY, "out of memory for the columns of a table");
    return text;
}

/* False: it is no column. Lack of memory is one too: texts that we wrote are short. */
static bool parse_column(struct ddp_table_column *column, const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "name"));
    const json_t *words = json_object_get(json, "words"), *word;
    size_t i;
    if (!name || !(column->name = strdup(name)))
        return false;
    column->words = words != NULL;
    if (!words) {
        column->fill = json_number_value(json_object_get(json, "fill"));
        column->mean = json_number_value(json_object_get(json, "mean"));
        column->std = json_number_value(json_object_get(json, "std"));
        return column->std > 0;
    }
    json_array_foreach(words, i, word)
    {
        const char *value = json_string_value(word);
        if (!value || strlen(value) >= DDP_TABLE_WORD_BYTES || i >= DDP_TABLE_EMBEDDED ||
            ddp_table_add_value(column, value) != DDP_OK || column->value_count != i + 1 ||
            strcmp(column->values[i], value) != 0)
            return false;
    }
    return column->value_count > 0;
}

enum ddp_status ddp_table_schema_parse(struct ddp_table_schema *schema, const char *text,
                                       const char *name)
{
    json_t *root = NULL, *column;
    size_t i;
    *schema = (struct ddp_table_schema){0};
    enum ddp_status status = ddp_json_parse_object(&root, name, text, strlen(text), 0);
    const json_t *columns = json_object_get(root, "columns");
    const size_t count = json_array_size(columns);
    bool whole = count > 0 && count <= DDP_TABLE_COLUMNS &&
                 parse_column(&schema->target, json_object_get(root, "target"));
    if (status == DDP_OK && whole) {
        schema->inputs = ddp_array_alloc(count, sizeof *schema->inputs);
        status = schema->inputs ? DDP_OK : DDP_ERR_MEMORY;
        schema->input_count = schema->inputs ? count : 0;
    }
    json_array_foreach(columns, i, column) whole =
        whole && i < schema->input_count && parse_column(&schema->inputs[i], column);
    if (status == DDP_OK && !whole)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s is a table, and the model that is loaded did not learn from one: its "
                          "description has no columns",
                          name);
    json_decref(root);
    return status;
}

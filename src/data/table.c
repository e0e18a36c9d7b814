/* SPDX-License-Identifier: MIT
 *
 * Tables: .csv and .tsv files, a sample a row. Numbers are scaled and gaps filled by what the
 * training rows have; words become numbers of 0 and 1, or places of an embedding. All rows are kept
 * in memory. What the columns mean is found out from the training rows, or was kept with the
 * weights. */
#include "config.h"

#include "core/label.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/split.h"
#include "data/table_schema.h"
#include "data/text_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN        (-1.0) /* a word that the training rows do not have */
#define NOTICE_COLUMNS 3

struct table {
    struct ddp_dataset base;
    struct ddp_table_schema schema;
    bool given; /* the schema was: it stays */
    bool labelled, lenient;
    double *cells; /* (rows, inputs + target): a number, NaN, or the place of a word */
    size_t width;  /* cells of a row */
    size_t rows, room;
    int *roles; /* of the table's columns: a cell of the row, or -1 */
    char *description, *notice;
    char **lines; /* the header and the rows as they were written, where they are kept */
    size_t line_count;
    bool keep;
    const char *line; /* to be kept once its end is known */
};

/* --- reading ---------------------------------------------------------------------------------- */

static float scaled(const struct ddp_table_column *column, double value)
{
    return (float)(((isnan(value) ? column->fill : value) - column->mean) / column->std);
}

static enum ddp_status table_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                  void *x, int32_t *labels)
{
    const struct table *t = (const struct table *)dataset;
    const struct ddp_table_column *target = &t->schema.target;
    const size_t numbers = ddp_table_schema_width(&t->schema);
    float *to = x;
    for (size_t i = 0; i < count; i++) {
        const double *cell = t->cells + (size_t)indices[i] * t->width;
        int32_t *word = (int32_t *)(void *)(to + numbers), place = 0;
        for (size_t k = 0; k < t->schema.input_count; k++, cell++) {
            const struct ddp_table_column *column = &t->schema.inputs[k];
            if (ddp_table_embeds(column)) {
                *word++ = place + 1 + (int32_t)*cell;
                place += 1 + (int32_t)column->value_count;
                continue;
            }
            if (!column->words)
                *to++ = scaled(column, *cell);
            for (size_t v = 0; v < column->value_count; v++)
                *to++ = *cell == (double)v;
        }
        to = (float *)(void *)word;
        if (labels && t->labelled && target->words) {
            labels[i] = *cell < 0 ? DDP_LABEL_NONE : (int32_t)*cell;
        } else if (labels && t->labelled) {
            const float number = (float)((*cell - target->mean) / target->std);
            memcpy(&labels[i], &number, sizeof number);
        }
    }
    return DDP_OK;
}

static const char *table_sample_name(const ddp_dataset *dataset, int64_t index)
{
    const struct table *t = (const struct table *)dataset;
    return t->lines ? t->lines[(size_t)index + 1] : NULL;
}

static void table_close(ddp_dataset *dataset)
{
    struct table *t = (struct table *)dataset;
    for (size_t i = 0; i < t->line_count; i++)
        free(t->lines[i]);
    free(t->lines);
    free(t->description);
    free(t->notice);
    free(t->roles);
    free(t->cells);
    ddp_table_schema_free(&t->schema);
}

static enum ddp_status table_split(ddp_dataset *whole, ddp_dataset *train, ddp_dataset *test);

static const struct ddp_dataset_ops ops = {.read = table_read,
                                           .sample_name = table_sample_name,
                                           .split = table_split,
                                           .close = table_close};

/* --- scaling ---------------------------------------------------------------------------------- */

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of one column of the training rows.
 *   values  room for one of each row */
static void fit_column(const struct table *t, struct ddp_table_column *column, size_t cell,
                       const uint32_t *rows, size_t count, double *values, size_t *missing)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        const double value = t->cells[(rows ? rows[i] : i) * t->width + cell];
        if (!isnan(value))
            values[known++] = value;
    }
    *missing = count - known;
    qsort(values, known, sizeof *values, rising);
    column->fill = known > 0 ? (values[(known - 1) / 2] + values[known / 2]) / 2 : 0;
    double sum = column->fill * (double)*missing, squares = 0;
    for (size_t i = 0; i < known; i++)
        sum += values[i];
    column->mean = sum / (double)count;
    for (size_t i = 0; i < known; i++)
        squares += (values[i] - column->mean) * (values[i] - column->mean);
    squares += (double)*missing * (column->fill - column->mean) * (column->fill - column->mean);
    column->std = sqrt(squares / (double)count);
    column->std = column->std > 0 ? column->std : 1;
}

static void add_notice(FILE *out, const struct ddp_table_column *column, size_t missing, int listed)
{
    char shown[64];
    ddp_text_clean(shown, sizeof shown, column->name, strlen(column->name));
    fprintf(out, "%s%zu missing values of '%s' ", listed ? ", " : "", missing, shown);
    if (column->words)
        fputs("are a word of their own", out);
    else
        fprintf(out, "become the median, %g", column->fill);
}

/* Every class must be there to be learned. */
static enum ddp_status check_classes(const struct table *t, const uint32_t *rows, size_t count)
{
    const struct ddp_table_column *target = &t->schema.target;
    size_t *seen = ddp_array_alloc(target->value_count + 1, sizeof *seen);
    enum ddp_status status = seen ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        seen[(size_t)t->cells[(rows ? rows[i] : i) * t->width + t->width - 1]]++;
    for (size_t v = 0; status == DDP_OK && v < target->value_count; v++)
        if (seen[v] == 0)
            status = ddp_fail(DDP_ERR_INVALID,
                              "%s: the class '%s' of '%s' is in the test part alone, so it cannot "
                              "be learned: take its rows out, or split with another --val-split",
                              t->base.path, target->values[v], target->name);
    free(seen);
    return status;
}

/* Describes the set by its training rows.
 *   rows  NULL: all */
static enum ddp_status fit(struct table *t, const uint32_t *rows, size_t count)
{
    size_t bytes = 0, missing = 0;
    int listed = 0, more = 0;
    double *values = ddp_array_alloc(count, sizeof *values);
    free(t->notice);
    t->notice = NULL;
    FILE *out = open_memstream(&t->notice, &bytes);
    enum ddp_status status = values && out ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i <= t->schema.input_count; i++) {
        const bool target = i == t->schema.input_count;
        struct ddp_table_column *column = target ? &t->schema.target : &t->schema.inputs[i];
        missing = 0;
        if (!column->words)
            fit_column(t, column, i, rows, count, values, &missing);
        for (size_t r = 0; column->words && !target && !*column->values[0] && r < count; r++)
            missing += t->cells[(rows ? rows[r] : r) * t->width + i] == 0;
        if (missing > 0 && listed < NOTICE_COLUMNS)
            add_notice(out, column, missing, listed++);
        else
            more += missing > 0;
    }
    if (more > 0)
        fprintf(out, ", and so in %d more columns", more);
    free(values);
    if (out && fclose(out) != 0)
        status = DDP_ERR_MEMORY;
    if (status != DDP_OK)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", t->base.path);
    return t->schema.target.words ? check_classes(t, rows, count) : DDP_OK;
}

/* What is known of the set once its columns are. */
static enum ddp_status describe(struct table *t)
{
    struct ddp_dataset_info *info = &t->base.info;
    const struct ddp_table_column *target = &t->schema.target;
    free(t->description);
    t->description = ddp_table_schema_text(&t->schema);
    if (!t->description)
        return DDP_ERR_MEMORY;
    info->description = t->description;
    info->notice = t->notice && *t->notice ? t->notice : NULL;
    info->class_count = target->words ? (int64_t)target->value_count : 0;
    info->class_names = target->words ? (const char *const *)target->values : NULL;
    info->float_labels = t->labelled && !target->words;
    info->label_mean = target->words ? 0 : target->mean;
    info->label_std = target->words ? 0 : target->std;
    info->label_count = t->labelled;
    info->table_header = t->lines ? t->lines[0] : NULL;
    return DDP_OK;
}

static enum ddp_status table_split(ddp_dataset *whole, ddp_dataset *train, ddp_dataset *test)
{
    struct table *t = (struct table *)whole;
    const struct ddp_dataset_info *info = &t->base.info;
    ddp_dataset *const parts[] = {train, test};
    enum ddp_status status = DDP_OK;
    if (t->given)
        return DDP_OK;
    status = fit(t, ddp_split_samples(train), (size_t)train->info.sample_count);
    if (status == DDP_OK)
        status = describe(t);
    for (int i = 0; status == DDP_OK && i < 2; i++) {
        parts[i]->info.description = info->description;
        parts[i]->info.notice = info->notice;
        parts[i]->info.label_mean = info->label_mean;
        parts[i]->info.label_std = info->label_std;
    }
    return status;
}

/* --- rows ------------------------------------------------------------------------------------- */

static enum ddp_status put_word(const struct table *t, const struct ddp_table_column *column,
                                const struct ddp_csv *at, char *text, double *cell)
{
    const bool target = column == &t->schema.target;
    double number;
    bool found;
    if (target)
        ddp_table_class_name(text);
    const bool missing = ddp_table_value_of(text, &number) == DDP_TABLE_MISSING;
    const size_t place = ddp_table_place(column, missing && !target ? "" : text, &found);
    *cell = found ? (double)place : UNKNOWN;
    if (!found && target && !t->lenient)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: line %zu: the class '%s' of '%s' is not one of the %zu that the "
                        "training data has",
                        at->name, at->line, text, column->name, column->value_count);
    return DDP_OK;
}

/* Keeps the line that ends here, without its end, and begins the next. */
static enum ddp_status keep_line(struct table *t, const char *end)
{
    const char *line = t->line;
    t->line = end;
    if (!t->keep || !line)
        return DDP_OK;
    while (end > line && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    char *copy = strndup(line, (size_t)(end - line));
    enum ddp_status status =
        copy ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", t->base.path);
    if (status == DDP_OK)
        status = ddp_array_append(&t->lines, &t->line_count, &copy, sizeof copy);
    if (status != DDP_OK)
        free(copy);
    return status;
}

/* Names in its place where the table has none. */
static enum ddp_status keep_header(struct table *t, const struct ddp_table_text *text)
{
    char *header = NULL;
    size_t bytes = 0;
    t->line = text->header ? text->first : NULL;
    if (!t->keep || text->header)
        return DDP_OK;
    FILE *out = open_memstream(&header, &bytes);
    for (size_t i = 0; out && i < text->count; i++)
        fprintf(out, "%s%s", i ? (char[]){text->begin.separator, 0} : "", text->names[i]);
    enum ddp_status status = out && fclose(out) == 0 ? ddp_array_append(&t->lines, &t->line_count,
                                                                        &header, sizeof header)
                                                     : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status != DDP_OK)
        free(header);
    return status;
}

static enum ddp_status put_field(void *arg, const struct ddp_csv *at, size_t row, size_t column,
                                 char *text, size_t bytes)
{
    struct table *t = arg;
    const enum ddp_status status = column == 0 ? keep_line(t, at->at) : DDP_OK;
    if (t->roles[column] < 0 || status != DDP_OK)
        return status;
    const size_t role = (size_t)t->roles[column];
    const bool target = role == t->schema.input_count;
    const struct ddp_table_column *to = target ? &t->schema.target : &t->schema.inputs[role];
    if (row >= t->room) {
        const size_t room = 2 * t->room + 256;
        double *cells = reallocarray(t->cells, room, t->width * sizeof *cells);
        if (!cells)
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory for %zu rows", at->name, row);
        t->cells = cells;
        t->room = room;
    }
    double *cell = t->cells + row * t->width + role;
    if (to->words)
        return put_word(t, to, at, text, cell);
    const enum ddp_table_value kind =
        bytes < DDP_TABLE_WORD_BYTES ? ddp_table_value_of(text, cell) : DDP_TABLE_WORD;
    if (kind != DDP_TABLE_NUMBER)
        *cell = NAN;
    if (kind >= DDP_TABLE_WORD || (kind == DDP_TABLE_MISSING && target && !t->lenient)) {
        char shown[64];
        ddp_text_clean(shown, sizeof shown, text, strlen(text));
        return ddp_fail(DDP_ERR_INVALID, "%s: line %zu: '%s' of the column '%s' is not a number",
                        at->name, at->line, shown, to->name);
    }
    return DDP_OK;
}

/* Which cell each column of the table goes to. */
static enum ddp_status assign(struct table *t, const struct ddp_table_text *text)
{
    t->roles = ddp_array_alloc(text->count, sizeof *t->roles);
    if (!t->roles)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < text->count; i++)
        t->roles[i] = -1;
    for (size_t k = 0; k <= t->schema.input_count; k++) {
        const bool target = k == t->schema.input_count;
        const char *name = target ? t->schema.target.name : t->schema.inputs[k].name;
        size_t at = 0;
        while (at < text->count && strcmp(text->names[at], name) != 0)
            at++;
        if (at < text->count)
            t->roles[at] = (int)k;
        else if (!target || !t->lenient)
            return ddp_fail(DDP_ERR_FORMAT, "%s: the column '%s' is missing%s", text->begin.name,
                            name,
                            target ? ", which is the target" : ", which the model learned from");
        t->labelled = target ? at < text->count : t->labelled;
    }
    return DDP_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum ddp_status find_schema(struct table *t, const struct ddp_table_text *text,
                                   const char *given, const struct ddp_dataset_options *options)
{
    const struct ddp_table_choice choice = {options->target, options->columns, options->ignore};
    t->given = given != NULL;
    if (!given)
        return ddp_table_guess(&t->schema, text, &choice);
    enum ddp_status status = ddp_table_schema_parse(&t->schema, given, t->base.path);
    if (status == DDP_OK && choice.target && strcmp(choice.target, t->schema.target.name) != 0)
        status = ddp_fail(DDP_ERR_INVALID,
                          "--target %s: the model that is loaded predicts '%s': leave --target out",
                          choice.target, t->schema.target.name);
    return status;
}

static enum ddp_status fill(struct table *t, const struct ddp_table_text *text)
{
    struct ddp_dataset_info *info = &t->base.info;
    t->width = t->schema.input_count + 1;
    enum ddp_status status = assign(t, text);
    if (status == DDP_OK)
        status = keep_header(t, text);
    if (status == DDP_OK)
        status = ddp_table_walk(text, put_field, t, &t->rows);
    if (status == DDP_OK)
        status = keep_line(t, text->begin.end);
    if (status == DDP_OK && t->rows == 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the table has no rows", t->base.path);
    if (status != DDP_OK)
        return status;
    info->sample_count = (int64_t)t->rows;
    info->dim_count = 1;
    for (size_t k = 0; k < t->schema.input_count; k++) {
        const int64_t words = (int64_t)t->schema.inputs[k].value_count;
        if (!ddp_table_embeds(&t->schema.inputs[k]))
            continue;
        info->word_count++;
        info->word_rows += 1 + words; /* the first is of words that are not known */
        info->word_most = words > info->word_most ? words : info->word_most;
    }
    info->sample_values = ddp_table_schema_width(&t->schema) + (size_t)info->word_count;
    info->dims[0] = (int64_t)info->sample_values;
    info->sample_bytes = info->sample_values * sizeof(float);
    info->memory_bytes = t->room * t->width * sizeof *t->cells;
    if (!t->given)
        status = fit(t, NULL, t->rows);
    return status == DDP_OK ? describe(t) : status;
}

/* given: a description; NULL: it is found out */
static enum ddp_status open_set(ddp_dataset **result, const char *path, const char *given,
                                const struct ddp_dataset_options *options)
{
    struct table *t = ddp_dataset_alloc(sizeof *t, &ops, path);
    struct ddp_table_text table = {0};
    struct ddp_text text = {0};
    if (!t)
        return DDP_ERR_MEMORY;
    *result = &t->base;
    t->lenient = options->unlabelled;
    t->keep = options->keep_rows;
    t->base.info = (struct ddp_dataset_info){.source = "table",
                                             .path = t->base.path,
                                             .x_dtype = DDP_F32,
                                             .shuffled = true,
                                             .normalized = true,
                                             .channel_count = 1,
                                             .std = {1}};
    enum ddp_status status = ddp_table_text_open(&table, &text, t->base.path,
                                                 options->header_given ? &options->header : NULL);
    t->base.info.separator = table.begin.separator;
    if (status == DDP_OK)
        status = find_schema(t, &table, given, options);
    if (status == DDP_OK)
        status = fill(t, &table);
    ddp_table_text_close(&table, &text);
    return status;
}

static enum ddp_status table_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                  ddp_dataset **test)
{
    if (!options->path)
        return ddp_fail(DDP_ERR_INVALID, "give a table with --data: FILE.csv or FILE.tsv");
    enum ddp_status status = open_set(train, options->path, options->description, options);
    if (status == DDP_OK && test && options->val)
        status = open_set(test, options->val, (*train)->info.description, options);
    return status;
}

/* By its name, whether it is there or not: then the missing file can be named. */
static bool table_recognise(const char *path)
{
    return ddp_text_ends_with(path, ".csv") || ddp_text_ends_with(path, ".tsv") ||
           ddp_text_ends_with(path, ".csv.gz") || ddp_text_ends_with(path, ".tsv.gz");
}

const struct ddp_dataset_source ddp_dataset_table = {
    .name = "table",
    .help = "a table: FILE.csv or FILE.tsv, also .gz",
    .takes_val = true,
    .recognise = table_recognise,
    .open = table_open,
};

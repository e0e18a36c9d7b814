/* SPDX-License-Identifier: MIT
 *
 * What the columns of a table hold, from all of its rows. See table_schema.h. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/table_schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LISTED 20 /* columns that a message names */

/* --- rows ------------------------------------------------------------------------------------- */

enum ddp_status ddp_table_walk(const struct ddp_table_text *table, ddp_table_take *take, void *arg,
                               size_t *rows)
{
    struct ddp_csv csv = table->begin;
    enum ddp_status status = DDP_OK;
    for (*rows = 0; status == DDP_OK && ddp_csv_more(&csv); ++*rows) {
        const struct ddp_csv begin = csv;
        struct ddp_csv_field field = {0};
        size_t count = 0;
        while (status == DDP_OK && !field.last) {
            char text[DDP_TABLE_WORD_BYTES];
            status = ddp_csv_field(&csv, &field);
            if (status == DDP_OK && count < table->count)
                status =
                    take(arg, &begin, *rows, count, text, ddp_csv_text(&field, text, sizeof text));
            count++;
        }
        if (status == DDP_OK && count != table->count)
            status = ddp_fail(DDP_ERR_FORMAT,
                              "%s: line %zu has %zu field%s, and the table has %zu column%s",
                              csv.name, begin.line, count, count == 1 ? "" : "s", table->count,
                              table->count == 1 ? "" : "s");
    }
    return status;
}

/* --- columns by name -------------------------------------------------------------------------- */

static bool is_listed(const char *list, const char *name)
{
    const size_t bytes = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == bytes && memcmp(at, name, bytes) == 0)
            return true;
    return false;
}

/* "a, b and 3 more" */
static const char *list_names(const struct ddp_table_text *table, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < table->count && i < LISTED && used < size; i++) {
        char shown[64];
        ddp_text_clean(shown, sizeof shown, table->names[i], strlen(table->names[i]));
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", shown);
    }
    if (table->count > LISTED && used < size)
        snprintf(text + used, size - used, " and %zu more", table->count - LISTED);
    return text;
}

static bool has_name(const struct ddp_table_text *table, const char *name, size_t bytes)
{
    for (size_t i = 0; i < table->count; i++)
        if (strlen(table->names[i]) == bytes && memcmp(table->names[i], name, bytes) == 0)
            return true;
    return false;
}

static enum ddp_status check_names(const struct ddp_table_text *table, const char *flag,
                                   const char *list)
{
    char names[LISTED * 66 + 32];
    const bool one = strcmp(flag, "target") == 0;
    for (const char *at = list; at && *at;) {
        const size_t bytes = one ? strlen(at) : strcspn(at, ",");
        if (!has_name(table, at, bytes))
            return ddp_fail(DDP_ERR_INVALID, "--%s: %s has no column '%.*s': it has %s", flag,
                            table->begin.name, (int)bytes, at,
                            list_names(table, names, sizeof names));
        at += bytes;
        at += *at == ',';
    }
    return DDP_OK;
}

static enum ddp_status check_choice(const struct ddp_table_text *table,
                                    const struct ddp_table_choice *choice)
{
    char names[LISTED * 66 + 32];
    if (!choice->target)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s is a table: name the column to predict with --target COLUMN: it has "
                        "%s%s",
                        table->begin.name, list_names(table, names, sizeof names),
                        table->header ? "" : " (numbered, because the first line is no header)");
    enum ddp_status status = check_names(table, "target", choice->target);
    if (status == DDP_OK)
        status = check_names(table, "columns", choice->columns);
    return status == DDP_OK ? check_names(table, "ignore", choice->ignore) : status;
}

/* --- what a column holds ---------------------------------------------------------------------- */

struct guess {
    struct ddp_table_column *column; /* NULL: it is left out */
    size_t most;                     /* values that are kept */
    size_t numbers, words, dates, missing;
    bool whole; /* all numbers are */
    size_t word_line;
    char word[40]; /* the first one */
};

struct guesses {
    struct guess *of; /* each column of the table */
    const struct ddp_table_column *target;
};

static enum ddp_status guess_field(void *arg, const struct ddp_csv *at, size_t row, size_t column,
                                   char *text, size_t bytes)
{
    const struct guesses *guesses = arg;
    struct guess *guess = &guesses->of[column];
    const bool target = guess->column && guess->column == guesses->target;
    double number = 0;
    (void)row;
    if (!guess->column)
        return DDP_OK;
    if (bytes >= DDP_TABLE_WORD_BYTES)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: line %zu: column '%s' has a text of %zu bytes, which is neither a "
                        "number nor a word: leave it out with --ignore '%s'",
                        at->name, at->line, guess->column->name, bytes, guess->column->name);
    const enum ddp_table_value kind = ddp_table_value_of(text, &number);
    if (kind == DDP_TABLE_MISSING && target)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: line %zu: the target '%s' is missing%s%s: take such rows out of the "
                        "training data",
                        at->name, at->line, guess->column->name, *text ? ": it says " : "", text);
    guess->missing += kind == DDP_TABLE_MISSING;
    guess->numbers += kind == DDP_TABLE_NUMBER;
    guess->dates += kind == DDP_TABLE_DATE;
    guess->words += kind == DDP_TABLE_WORD;
    guess->whole = guess->whole && (kind != DDP_TABLE_NUMBER || number == floor(number));
    if (kind >= DDP_TABLE_WORD && !guess->word_line) {
        guess->word_line = at->line;
        ddp_text_clean(guess->word, sizeof guess->word, text, bytes);
    }
    if (kind >= DDP_TABLE_WORD && !target && guess->column->value_count < guess->most)
        guess->most = DDP_TABLE_EMBEDDED + 1; /* of numbers alone, so many are not kept */
    if (guess->column->value_count >= guess->most)
        return DDP_OK;
    if (target)
        ddp_table_class_name(text);
    return ddp_table_add_value(guess->column, kind == DDP_TABLE_MISSING ? "" : text);
}

static void drop_values(struct ddp_table_column *column)
{
    for (size_t i = 0; i < column->value_count; i++)
        free(column->values[i]);
    free(column->values);
    column->values = NULL;
    column->value_count = 0;
}

static enum ddp_status decide_input(struct guess *guess, size_t rows, const char *table)
{
    struct ddp_table_column *column = guess->column;
    const char *name = column->name;
    const size_t texts = guess->words + guess->dates;
    column->words = texts > 0;
    if (guess->numbers == 0 && texts == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: column '%s' has no values: leave it out with --ignore '%s'", table,
                        name, name);
    if (guess->dates > 0 && guess->words == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: column '%s' holds dates, such as %s in line %zu: leave it out with "
                        "--ignore '%s', or put numbers in its place, such as years or days",
                        table, name, guess->word, guess->word_line, name);
    if (column->words && ddp_table_embeds(column) &&
        (guess->numbers > texts || guess->most <= DDP_TABLE_WORDS + 1))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: column '%s' holds numbers, but line %zu says '%s': correct it, leave "
                        "it empty, or leave the column out with --ignore '%s'",
                        table, name, guess->word_line, guess->word, name);
    if (column->words && column->value_count > DDP_TABLE_EMBEDDED)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: column '%s' has more than %d different words, such as '%s': leave it "
                        "out with --ignore '%s', or group them",
                        table, name, DDP_TABLE_EMBEDDED, guess->word, name);
    if (column->words && ddp_table_embeds(column) && 2 * column->value_count > rows)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: column '%s' has %zu different words in %zu rows, such as '%s', too "
                        "many to learn what each means: leave it out with --ignore '%s', or group "
                        "them",
                        table, name, column->value_count, rows, guess->word, name);
    if (!column->words)
        drop_values(column);
    return DDP_OK;
}

static enum ddp_status decide_target(struct guess *guess, size_t rows, const char *table)
{
    struct ddp_table_column *column = guess->column;
    const bool numbers = guess->words + guess->dates == 0;
    if (column->value_count < 2)
        return ddp_fail(
            DDP_ERR_INVALID,
            "%s: the target '%s' has the same value in all rows, '%s': there is nothing "
            "to learn",
            table, column->name, column->value_count ? column->values[0] : "");
    if (!numbers && guess->numbers > guess->words + guess->dates &&
        (!guess->whole || 2 * column->value_count > rows))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: the target '%s' holds numbers, but line %zu says '%s': correct it, or "
                        "take the row out",
                        table, column->name, guess->word_line, guess->word);
    column->words = !numbers || (guess->whole && column->value_count <= DDP_TABLE_FEW);
    if (column->words && column->value_count > DDP_TABLE_CLASSES)
        return ddp_fail(
            DDP_ERR_INVALID,
            "%s: the target '%s' has more than %d different words, such as '%s' in line "
            "%zu: they cannot be learned as classes",
            table, column->name, DDP_TABLE_CLASSES, guess->word, guess->word_line);
    if (!column->words)
        drop_values(column);
    return DDP_OK;
}

/* Which columns are inputs. */
static enum ddp_status choose_columns(struct ddp_table_schema *schema,
                                      const struct ddp_table_text *table,
                                      const struct ddp_table_choice *choice, struct guess *guesses)
{
    schema->inputs = ddp_array_alloc(table->count, sizeof *schema->inputs);
    if (!schema->inputs)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < table->count; i++) {
        const char *name = table->names[i];
        const bool target = strcmp(name, choice->target) == 0;
        guesses[i].whole = true;
        guesses[i].most = (target ? DDP_TABLE_CLASSES : DDP_TABLE_WORDS) + 1;
        if (!target && (is_listed(choice->ignore, name) ||
                        (choice->columns && !is_listed(choice->columns, name))))
            continue;
        guesses[i].column = target ? &schema->target : &schema->inputs[schema->input_count++];
        if (!(guesses[i].column->name = strdup(name)))
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", table->begin.name);
    }
    return schema->input_count > 0
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID, "%s: no column is left to predict '%s' from",
                          table->begin.name, choice->target);
}

enum ddp_status ddp_table_guess(struct ddp_table_schema *schema, const struct ddp_table_text *table,
                                const struct ddp_table_choice *choice)
{
    struct guesses guesses = {.target = &schema->target};
    size_t rows = 0;
    *schema = (struct ddp_table_schema){0};
    enum ddp_status status = check_choice(table, choice);
    if (status != DDP_OK)
        return status;
    guesses.of = ddp_array_alloc(table->count, sizeof *guesses.of);
    status = guesses.of ? choose_columns(schema, table, choice, guesses.of) : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_table_walk(table, guess_field, &guesses, &rows);
    if (status == DDP_OK && rows == 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the table has no rows", table->begin.name);
    for (size_t i = 0; status == DDP_OK && i < table->count; i++)
        if (guesses.of[i].column)
            status = guesses.of[i].column == &schema->target
                         ? decide_target(&guesses.of[i], rows, table->begin.name)
                         : decide_input(&guesses.of[i], rows, table->begin.name);
    free(guesses.of);
    return status;
}

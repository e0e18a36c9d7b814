/* SPDX-License-Identifier: MIT
 *
 * The text of a table: the names of its columns. See table_schema.h. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/table_schema.h"
#include "data/text_file.h"

#include <stdlib.h>
#include <string.h>

/* The fields of the first line as names. */
static enum ddp_status read_names(struct ddp_table_text *table, struct ddp_csv *csv, bool *numbers)
{
    struct ddp_csv_field field = {0};
    enum ddp_status status = DDP_OK;
    *numbers = false;
    while (status == DDP_OK && !field.last) {
        char text[DDP_TABLE_WORD_BYTES], *name = NULL;
        double number;
        status = ddp_csv_field(csv, &field);
        if (status != DDP_OK)
            break;
        const size_t bytes = ddp_csv_text(&field, text, sizeof text);
        *numbers = *numbers || ddp_table_value_of(text, &number) == DDP_TABLE_NUMBER;
        if (table->count == DDP_TABLE_COLUMNS)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: more than %d columns: is it a table, with commas "
                            "(.csv) or tabs (.tsv) between its fields?",
                            csv->name, DDP_TABLE_COLUMNS);
        if (bytes >= sizeof text)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: the name of column %zu has %zu bytes: up to %d are "
                            "possible",
                            csv->name, table->count + 1, bytes, DDP_TABLE_WORD_BYTES - 1);
        if (!(name = strdup(text)))
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", csv->name);
        status = ddp_array_append(&table->names, &table->count, &name, sizeof name);
        if (status != DDP_OK)
            free(name);
    }
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names must tell columns apart; without a header they are 1, 2, ... */
static enum ddp_status settle_names(struct ddp_table_text *table)
{
    for (size_t i = 0; !table->header && i < table->count; i++) {
        free(table->names[i]);
        if (asprintf(&table->names[i], "%zu", i + 1) < 0) {
            table->names[i] = NULL;
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", table->begin.name);
        }
    }
    char **sorted = ddp_array_alloc(table->count, sizeof *sorted);
    if (!sorted)
        return DDP_ERR_MEMORY;
    memcpy(sorted, table->names, table->count * sizeof *sorted);
    qsort(sorted, table->count, sizeof *sorted, by_name);
    enum ddp_status status = DDP_OK;
    for (size_t i = 1; status == DDP_OK && i < table->count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status =
                ddp_fail(DDP_ERR_FORMAT,
                         "%s: two columns are called '%s': rename one; if the first line is no "
                         "header, give --no-header",
                         table->begin.name, sorted[i]);
    free(sorted);
    return status;
}

enum ddp_status ddp_table_text_open(struct ddp_table_text *table, struct ddp_text *text,
                                    const char *path, const bool *header)
{
    const bool tabs = ddp_text_ends_with(path, ".tsv") || ddp_text_ends_with(path, ".tsv.gz");
    struct ddp_csv *csv = &table->begin;
    bool numbers = false;
    FILE *file = fopen(path, "rbe");
    enum ddp_status status = file ? ddp_text_read(text, file, path, false, ddp_memory_total() / 2)
                                  : ddp_fail_path(path, "open the data");
    if (file)
        fclose(file);
    if (status == DDP_OK)
        status = ddp_csv_open(csv, path, (const char *)text->at, text->bytes, tabs ? '\t' : ',');
    if (status == DDP_OK && !ddp_csv_more(csv))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the table is empty", path);
    const struct ddp_csv first = *csv;
    table->first = first.at;
    if (status == DDP_OK)
        status = read_names(table, csv, &numbers);
    if (status != DDP_OK)
        return status;
    table->header = header ? *header : !numbers;
    if (!table->header)
        *csv = first;
    return settle_names(table);
}

void ddp_table_text_close(struct ddp_table_text *table, struct ddp_text *text)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->names[i]);
    free(table->names);
    free(text->at);
}

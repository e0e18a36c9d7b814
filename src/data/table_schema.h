/* SPDX-License-Identifier: MIT
 *
 * What a table's columns mean: which are inputs, how they become numbers, and what is predicted. It
 * is kept with the weights, so that new rows are encoded as those of the training. */
#ifndef DDP_DATA_TABLE_SCHEMA_H
#define DDP_DATA_TABLE_SCHEMA_H

#include "data/csv.h"

#define DDP_TABLE_COLUMNS    65536
#define DDP_TABLE_WORDS      64    /* of an input column: each becomes a number, 0 or 1; if there */
#define DDP_TABLE_EMBEDDED   16384 /* are more, they are rows of an embedding */
#define DDP_TABLE_CLASSES    1024  /* of the target */
#define DDP_TABLE_FEW        20    /* whole numbers: fewer are classes */
#define DDP_TABLE_WORD_BYTES 256

struct ddp_table_column {
    char *name;
    bool words;    /* else numbers */
    char **values; /* words: sorted, as numbers where all are; "" stands for missing ones */
    size_t value_count;
    double fill, mean, std; /* numbers: what a missing one becomes, then (x - mean) / std */
};

struct ddp_table_schema {
    struct ddp_table_column *inputs;
    size_t input_count;
    struct ddp_table_column target; /* words: classes */
};

void ddp_table_schema_free(struct ddp_table_schema *schema); /* zeros are fine */

/* Whether an input column's words are rows of an embedding. */
static inline bool ddp_table_embeds(const struct ddp_table_column *column)
{
    return column->value_count > DDP_TABLE_WORDS;
}

/* Numbers of a sample, but those of columns that are embedded. */
size_t ddp_table_schema_width(const struct ddp_table_schema *schema);

/* The schema as JSON, in one line; freed with free(). NULL (logged): no memory. */
char *ddp_table_schema_text(const struct ddp_table_schema *schema);

/* The reverse; freed with ddp_table_schema_free(), also after a failure.
 *   name  for messages
 * DDP_ERR_FORMAT: it is none; DDP_ERR_MEMORY. */
enum ddp_status ddp_table_schema_parse(struct ddp_table_schema *schema, const char *text,
                                       const char *name);

/* --- values of fields ------------------------------------------------------------------------- */

/* What a field's text is. */
enum ddp_table_value { DDP_TABLE_MISSING, DDP_TABLE_NUMBER, DDP_TABLE_WORD, DDP_TABLE_DATE };
enum ddp_table_value ddp_table_value_of(const char *text, double *number);

/* A class as it is called: whole numbers without leading zeros and decimals. */
void ddp_table_class_name(char text[DDP_TABLE_WORD_BYTES]);

/* Where a value is among a column's, or would be; *found: it is there. */
size_t ddp_table_place(const struct ddp_table_column *column, const char *value, bool *found);

/* Puts a copy of a value in its place, if it is not there. DDP_ERR_MEMORY. */
enum ddp_status ddp_table_add_value(struct ddp_table_column *column, const char *value);

/* --- from a text ------------------------------------------------------------------------------ */

/* A table's text, and which of its fields matter. */
struct ddp_table_text {
    struct ddp_csv begin; /* at the first row */
    const char *first;    /* line, which may be a header */
    char **names;         /* of all columns */
    size_t count;
    bool header;
};

struct ddp_text;

/* Reads a file, and the names of its columns: 1, 2, ... where it has none.
 *   table, text [out]  zeros before; closed also after a failure
 *   header             whether the first line is one; NULL: if nothing in it is a number */
enum ddp_status ddp_table_text_open(struct ddp_table_text *table, struct ddp_text *text,
                                    const char *path, const bool *header);
void ddp_table_text_close(struct ddp_table_text *table, struct ddp_text *text);

/* What the user says of a table's columns; NULL: nothing. */
struct ddp_table_choice {
    const char *target, *columns, *ignore; /* the latter two: names with commas between */
};

/* Calls `take` for each field of each row in turn.
 *   row   from 0
 *   text  of DDP_TABLE_WORD_BYTES; *bytes: of all of it
 * DDP_ERR_FORMAT: a row has more or fewer fields than the table has columns. */
typedef enum ddp_status ddp_table_take(void *arg, const struct ddp_csv *at, size_t row,
                                       size_t column, char *text, size_t bytes);
enum ddp_status ddp_table_walk(const struct ddp_table_text *table, ddp_table_take *take, void *arg,
                               size_t *rows);

/* Finds out what the columns hold. Scaling stays open: mean, std and fill are zeros.
 *   schema [out]   freed with ddp_table_schema_free(), also after a failure
 * DDP_ERR_INVALID names the column that cannot be learned from, and what to do. */
enum ddp_status ddp_table_guess(struct ddp_table_schema *schema, const struct ddp_table_text *table,
                                const struct ddp_table_choice *choice);

#endif

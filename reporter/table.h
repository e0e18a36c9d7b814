/* SPDX-License-Identifier: MIT
 *
 * A table of short texts, shown in a terminal or in a page. Its first column is aligned to the
 * left, the others to the right. And numbers as people read them. */
#ifndef DDP_REPORTER_TABLE_H
#define DDP_REPORTER_TABLE_H

#include "ddp.h"

#define TABLE_CELL 256 /* bytes of a text, at most */

#define UNITS_TEXT 32

/* Three digits and no unit: "1.23", "45.6", "789", "12300"; "-" for NaN. */
const char *units_number(char text[UNITS_TEXT], double value);

struct table {
    char (*cells)[TABLE_CELL]; /* (rows, columns): the first row has the titles */
    int *widths;               /* of the columns */
    size_t rows, columns;
};

/* *table [out] has empty cells below its titles; freed with table_free(). DDP_ERR_MEMORY. */
enum ddp_status table_make(struct table *table, size_t rows, size_t columns,
                           const char *const titles[]);
void table_free(struct table *table);

/* Rows count from 1, below the titles. Control characters are not escaped here. */
void table_set(struct table *table, size_t row, size_t column, const char *format, ...)
    DDP_PRINTF(4, 5);

/* On a terminal that is too narrow, columns that do not fit follow below, each time behind the
 * first one. */
void table_print(const struct table *table, FILE *out);
void table_print_html(const struct table *table, FILE *out);

/* Text with what HTML reserves escaped. */
void html_print(FILE *out, const char *text);

#endif

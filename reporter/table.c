/* SPDX-License-Identifier: MIT
 *
 * See table.h. */
#include "config.h"

#include "reporter/table.h"

#include "core/memory.h"
#include "core/terminal.h"
#include "core/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *units_number(char text[UNITS_TEXT], double value)
{
    const double size = fabs(value);
    if (isnan(value))
        return "-";
    if ((size != 0 && size < 0.001) || size >= 1e9)
        snprintf(text, UNITS_TEXT, "%.2e", value);
    else
        snprintf(text, UNITS_TEXT, "%.*f",
                 size < 0.9995  ? 4
                 : size < 9.995 ? 3
                 : size < 99.95 ? 1
                                : 0,
                 value);
    return text;
}

enum ddp_status table_make(struct table *table, size_t rows, size_t columns,
                           const char *const titles[])
{
    *table = (struct table){.rows = rows + 1, .columns = columns};
    table->cells = ddp_array_alloc(table->rows * columns, sizeof *table->cells);
    table->widths = ddp_array_alloc(columns, sizeof *table->widths);
    if (!table->cells || !table->widths)
        return DDP_ERR_MEMORY;
    for (size_t c = 0; c < columns; c++)
        table_set(table, 0, c, "%s", titles[c]);
    return DDP_OK;
}

void table_free(struct table *table)
{
    free(table->cells);
    free(table->widths);
    *table = (struct table){.rows = 0};
}

static char *cell_of(const struct table *table, size_t row, size_t column)
{
    return table->cells[row * table->columns + column];
}

static int columns_of(const char *text)
{
    return ddp_text_columns(text, strlen(text));
}

void table_set(struct table *table, size_t row, size_t column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(cell_of(table, row, column), TABLE_CELL, format, args);
    va_end(args);
    const int width = columns_of(cell_of(table, row, column));
    if (width > table->widths[column])
        table->widths[column] = width;
}

static void print_row(const struct table *table, size_t row, size_t first, size_t end, FILE *out)
{
    const char *name = cell_of(table, row, 0);
    fprintf(out, "%s%*s", name, table->widths[0] - columns_of(name), "");
    for (size_t c = first; c < end; c++) {
        const char *text = cell_of(table, row, c);
        fprintf(out, "  %*s%s", table->widths[c] - columns_of(text), "", text);
    }
    fputc('\n', out);
}

void table_print(const struct table *table, FILE *out)
{
    const int width = ddp_terminal_columns(fileno(out));
    const int *widths = table->widths;
    for (size_t first = 1; first < table->columns;) {
        size_t end = first + 1;
        int used = widths[0] + 2 + widths[first];
        while (end < table->columns && (width == 0 || used + 2 + widths[end] <= width))
            used += 2 + widths[end++];
        if (first > 1)
            fputc('\n', out);
        for (size_t r = 0; r < table->rows; r++)
            print_row(table, r, first, end, out);
        first = end;
    }
}

void html_print(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

void table_print_html(const struct table *table, FILE *out)
{
    fputs("<div class=\"scroll\"><table>\n", out);
    for (size_t r = 0; r < table->rows; r++) {
        const char *cell = r == 0 ? "th scope=\"col\"" : "td";
        fputs("<tr>", out);
        for (size_t c = 0; c < table->columns; c++) {
            const bool head = r > 0 && c == 0, is_long = columns_of(cell_of(table, r, c)) > 40;
            fprintf(out, "<%s>",
                    head               ? "th scope=\"row\""
                    : r > 0 && is_long ? "td class=\"long\""
                                       : cell);
            html_print(out, cell_of(table, r, c));
            fprintf(out, "</%s>", r == 0 || head ? "th" : "td");
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

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
    table->cells = ddp_array_alloc(table->rows, sizeof *table->cells);
    for (size_t c = 0; table->cells && c < columns; c++)
        table_set(table, 0, c, "%s", titles[c]);
    return table->cells ? DDP_OK : DDP_ERR_MEMORY;
}

void table_free(struct table *table)
{
    free(table->cells);
    *table = (struct table){.rows = 0};
}

void table_set(struct table *table, size_t row, size_t column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(table->cells[row][column], TABLE_CELL, format, args);
    va_end(args);
}

static int columns_of(const char *text)
{
    return ddp_text_columns(text, strlen(text));
}

static void print_row(const struct table *table, size_t row, const int *widths, size_t first,
                      size_t end, FILE *out)
{
    const char *name = table->cells[row][0];
    fprintf(out, "%s%*s", name, widths[0] - columns_of(name), "");
    for (size_t c = first; c < end; c++) {
        const char *text = table->cells[row][c];
        fprintf(out, "  %*s%s", widths[c] - columns_of(text), "", text);
    }
    fputc('\n', out);
}

void table_print(const struct table *table, FILE *out)
{
    const int width = ddp_terminal_columns(fileno(out));
    int widths[TABLE_COLUMNS] = {0};
    for (size_t r = 0; r < table->rows; r++)
        for (size_t c = 0; c < table->columns; c++)
            if (columns_of(table->cells[r][c]) > widths[c])
                widths[c] = columns_of(table->cells[r][c]);
    for (size_t first = 1; first < table->columns;) {
        size_t end = first + 1;
        int used = widths[0] + 2 + widths[first];
        while (end < table->columns && (width == 0 || used + 2 + widths[end] <= width))
            used += 2 + widths[end++];
        if (first > 1)
            fputc('\n', out);
        for (size_t r = 0; r < table->rows; r++)
            print_row(table, r, widths, first, end, out);
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
            const bool head = r > 0 && c == 0;
            fprintf(out, "<%s>", head ? "th scope=\"row\"" : cell);
            html_print(out, table->cells[r][c]);
            fprintf(out, "</%s>", r == 0 || head ? "th" : "td");
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* SPDX-License-Identifier: MIT
 *
 * A page of HTML with its pictures inside: it needs no network, and is dark where the reader's
 * screen is. */
#ifndef DDP_REPORTER_PAGE_H
#define DDP_REPORTER_PAGE_H

#include "reporter/gnuplot.h"
#include "reporter/table.h"

struct page {
    FILE *out; /* what the caller may write to: HTML */
    char *text;
    size_t bytes;
};

/* DDP_ERR_MEMORY. */
enum ddp_status page_begin(struct page *page, const char *title);

void page_paragraph(struct page *page, const char *text);

void page_heading(struct page *page, const char *text);

/* Behind the charts, which chart_print() and chart_print_legend() wrote: shows their values. */
void page_script(struct page *page);

/* Writes the page to a file, unless status says that something failed before; frees it. Returns
 * that status, or DDP_ERR_IO, which names the file. */
enum ddp_status page_end(struct page *page, const char *path, enum ddp_status status);

/* Replaces a file by these bytes. DDP_ERR_IO names it. */
enum ddp_status page_write_file(const char *path, const char *text, size_t bytes);

/* Whether the file can be written. Minutes of work may come before that. */
enum ddp_status page_check_file(const char *path);

/* An SVG as a file of its own: with the rules that make it dark. */
enum ddp_status page_write_svg(const char *path, const char *svg);

#endif

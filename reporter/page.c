/* SPDX-License-Identifier: MIT
 *
 * See page.h. */
#include "config.h"

#include "reporter/page.h"

#include "core/atomic_file.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "background:#fff;color:#22262b}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid #d0d4d9;"
    "white-space:nowrap}\n"
    "th:first-child{text-align:left}\n"
    ".scroll{overflow-x:auto;margin:.6rem 0}\n"
    "svg{width:100%;height:auto;display:block}\n"
    "p{max-width:50rem}\n"
    "@media (prefers-color-scheme: dark){body{background:#16191d;color:#dde1e6}"
    "th,td{border-color:#3c424a}}\n";

enum ddp_status page_begin(struct page *page, const char *title)
{
    *page = (struct page){.out = NULL};
    page->out = open_memstream(&page->text, &page->bytes);
    if (!page->out)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          page->out);
    html_print(page->out, title);
    fprintf(page->out, "</title>\n<style>\n%s", style);
    plot_print_css(page->out);
    fputs("</style>\n</head>\n<body>\n<h1>", page->out);
    html_print(page->out, title);
    fputs("</h1>\n", page->out);
    return DDP_OK;
}

void page_paragraph(struct page *page, const char *text)
{
    fputs("<p>", page->out);
    html_print(page->out, text);
    fputs("</p>\n", page->out);
}

void page_picture(struct page *page, const char *title, const char *svg)
{
    const char *begin = strstr(svg, "<svg");
    fputs("<h2>", page->out);
    html_print(page->out, title);
    fputs("</h2>\n", page->out);
    if (!begin)
        return;
    fputs("<svg role=\"img\" aria-label=\"", page->out);
    html_print(page->out, title);
    fprintf(page->out, "\"%s", begin + strlen("<svg"));
}

enum ddp_status page_write_file(const char *path, const char *text, size_t bytes)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status != DDP_OK)
        return status;
    status = ddp_atomic_file_write(file, text, bytes);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    return status;
}

enum ddp_status page_check_file(const char *path)
{
    ddp_atomic_file *file;
    enum ddp_status status = path ? ddp_atomic_file_open(&file, path) : DDP_OK;
    if (path && status == DDP_OK)
        ddp_atomic_file_close(file);
    return status;
}

enum ddp_status page_end(struct page *page, const char *path, enum ddp_status status)
{
    fprintf(page->out, "<p><small>ddpreport %s</small></p>\n</body>\n</html>\n", ddp_version());
    if (fclose(page->out) != 0 && status == DDP_OK)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK)
        status = page_write_file(path, page->text, page->bytes);
    free(page->text);
    return status;
}

enum ddp_status page_write_svg(const char *path, const char *svg)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *begin = strstr(svg, "<svg"), *inside = begin ? strchr(begin, '>') : NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (inside) {
        fprintf(out, "%.*s\n<style>\n", (int)(inside + 1 - svg), svg);
        plot_print_css(out);
        fprintf(out, "</style>%s", inside + 1);
    }
    enum ddp_status status = fclose(out) == 0 ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK)
        status = page_write_file(path, text, bytes);
    free(text);
    return status;
}

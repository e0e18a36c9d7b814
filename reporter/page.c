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
    "body{font:15px/1.5 system-ui,sans-serif;max-width:110rem;margin:1.5rem auto;padding:0 1rem;"
    "background:var(--page);color:var(--text)}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:1.5rem 0 .3rem}p{max-width:50rem}\n"
    "table{border-collapse:separate;border-spacing:0;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.25rem .5rem;text-align:right;border-bottom:1px solid var(--grid);"
    "white-space:nowrap}\n"
    "td{max-width:24rem;overflow-wrap:anywhere}td.long{white-space:normal;min-width:12rem}\n"
    "th:first-child{text-align:left;position:sticky;left:0;background:var(--page)}\n"
    "tr:first-child th{vertical-align:bottom}\n"
    ".scroll{overflow-x:auto;margin:.6rem 0}\n"
    ".legend{position:sticky;top:0;z-index:2;background:var(--page);padding:.4rem 0;"
    "max-height:30vh;overflow-y:auto;border-bottom:1px solid var(--grid)}\n"
    ".legend label{display:inline-block;margin-right:1.2rem;overflow-wrap:anywhere}\n"
    ".legend svg{width:30px;height:10px;margin:0 .3rem}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,32rem),1fr));"
    "gap:0 2rem}\n"
    "figure{margin:1rem 0 0;min-width:0}figcaption{font-weight:bold}\n"
    "figcaption::first-letter{text-transform:uppercase}\n"
    ".plot{position:relative;height:16rem;margin:.6rem .8rem 1.5rem 3.8rem;touch-action:pan-y}\n"
    ".plot svg{position:absolute;width:100%;height:100%;overflow:visible}\n"
    ".plot i{position:absolute;font:13px sans-serif;border:0 solid var(--grid)}\n"
    ".plot b{position:absolute;font-weight:normal;white-space:nowrap}\n"
    ".y{left:0;right:0;border-top-width:1px!important}.y b{right:100%;top:-.6em;"
    "padding-right:.5em}\n"
    ".x{top:0;bottom:0;border-left-width:1px!important}.x b{top:100%;transform:translateX(-50%);"
    "padding-top:.3em}\n"
    ".axis{text-align:center;font-size:13px;margin:0 0 0 3rem;max-width:none}\n"
    "path{fill:none;stroke:currentColor;vector-effect:non-scaling-stroke;"
    "stroke-linejoin:round}\n"
    ".values,.means,.scores{stroke-width:2px}.pale{opacity:.3;stroke-width:1px}\n"
    ".scores{stroke-width:1px}.dots{stroke-width:6px;stroke-linecap:round}\n"
    ".values{stroke-linecap:round}.restarts{stroke-dasharray:5 4}.checkpoints{stroke-width:2px}\n"
    ".means.d1,.values.d1{stroke-dasharray:8 3}.means.d2,.values.d2{stroke-dasharray:2 3}\n"
    ".means.d3,.values.d3{stroke-dasharray:8 3 2 3}.means.d4,.values.d4{stroke-dasharray:"
    "8 3 2 3 2 3}\n"
    "#values{position:fixed;z-index:3;pointer-events:none;background:var(--page);font-size:13px;"
    "border:1px solid var(--grid);padding:.3rem .6rem;border-radius:4px;max-width:90vw;"
    "box-shadow:0 2px 8px #0004}\n"
    "#values[hidden],.cursor[hidden]{display:none}\n"
    "#values table{border:0}#values td,#values th{border:0;padding:0 .3rem;white-space:normal}\n"
    ".cursor{top:0;bottom:0;border-left:1px solid var(--text)!important}\n"
    ".bars{display:grid;grid-template-columns:max-content 1fr;gap:.3rem .8rem;"
    "align-items:center;max-width:70rem}\n"
    ".bars div{display:flex;height:1.4rem;align-items:center}\n"
    ".bars i{height:100%;background:currentColor}.bars "
    "small{padding-left:.4rem;white-space:nowrap}\n"
    ".key i{display:inline-block;width:.8rem;height:.8rem;background:currentColor;"
    "margin:0 .3rem 0 1rem}\n";

/* The values under the pointer, of the runs that are shown, in a table beside it. The names are
 * those in the page, and only ever become text. Neither < nor & is in it, so that the page is
 * well-formed XML. */
static const char script[] =
    "'use strict';\n"
    "const box = document.body.appendChild(document.createElement('div'));\n"
    "box.id = 'values';\n"
    "box.hidden = true;\n"
    "for (const title of document.querySelectorAll('.plot title'))\n"
    "  title.remove();\n"
    "function read(path) {\n"
    "  const numbers = path.dataset.values.split(' '), run = path.dataset.run;\n"
    "  const check = document.getElementById('run' + run);\n"
    "  return {check, run, name: check.parentNode.textContent.trim(),\n"
    "          colour: getComputedStyle(path).color,\n"
    "          what: path.classList.contains('scores') ? 'test ' : '',\n"
    "          x: numbers.filter((_, i) => i % 2 === 0).map(Number),\n"
    "          y: numbers.filter((_, i) => i % 2 === 1)};\n"
    "}\n"
    "function nearest(line, x) {\n"
    "  let at = 0;\n"
    "  line.x.forEach((v, i) => {\n"
    "    if (Math.abs(line.x[at] - x) > Math.abs(v - x))\n"
    "      at = i;\n"
    "  });\n"
    "  return {line, x: line.x[at], y: line.y[at], far: Math.abs(line.x[at] - x)};\n"
    "}\n"
    "function show(points, unit) {\n"
    "  const first = points.reduce((a, b) => a.far > b.far ? b : a);\n"
    "  const table = document.createElement('table'), rows = new Map();\n"
    "  table.createCaption().textContent = unit + ': ' + first.x;\n"
    "  for (const {line, x, y} of points) {\n"
    "    const late = x === first.x ? '' : ' (at ' + x + ')';\n"
    "    if (!rows.has(line.run)) {\n"
    "      const row = table.insertRow(), mark = row.insertCell(), name = row.insertCell();\n"
    "      rows.set(line.run, row);\n"
    "      mark.textContent = '\\u25a0';\n"
    "      mark.style.color = line.colour;\n"
    "      name.textContent = line.name;\n"
    "      name.style.textAlign = 'left';\n"
    "    }\n"
    "    rows.get(line.run).insertCell().textContent = line.what + y + late;\n"
    "  }\n"
    "  box.replaceChildren(table);\n"
    "  box.hidden = false;\n"
    "  return first.x;\n"
    "}\n"
    "for (const plot of document.querySelectorAll('.plot')) {\n"
    "  const [low, high, ...unit] = plot.dataset.axis.split(' ');\n"
    "  const range = high - low || 1;\n"
    "  const cursor = plot.appendChild(document.createElement('i'));\n"
    "  const hide = () => { box.hidden = cursor.hidden = true; };\n"
    "  let lines;\n"
    "  cursor.className = 'cursor';\n"
    "  hide();\n"
    "  plot.addEventListener('pointerleave', hide);\n"
    "  plot.addEventListener('pointermove', event => {\n"
    "    lines = lines || [...plot.querySelectorAll('[data-values]')].map(read);\n"
    "    const area = plot.getBoundingClientRect();\n"
    "    const x = +low + range * (event.clientX - area.left) / area.width;\n"
    "    const points = lines.filter(l => l.check.checked).map(l => nearest(l, x));\n"
    "    if (points.length === 0)\n"
    "      return hide();\n"
    "    const at = show(points, unit.join(' '));\n"
    "    cursor.hidden = false;\n"
    "    cursor.style.left = (high > low ? 100 * (at - low) / range : 50) + '%';\n"
    "    const left = event.clientX + 16, top = event.clientY + 16;\n"
    "    const right = innerWidth - box.offsetWidth - 8, end = innerHeight - box.offsetHeight - "
    "8;\n"
    "    box.style.left = Math.max(0, left > right ? event.clientX - 16 - box.offsetWidth : left)\n"
    "      + 'px';\n"
    "    box.style.top = Math.max(0, Math.min(top, end)) + 'px';\n"
    "  });\n"
    "}\n"
    "const legend = document.querySelector('.legend');\n"
    "const all = document.createElement('button');\n"
    "all.textContent = 'all / none';\n"
    "all.onclick = () => {\n"
    "  const checks = [...legend.querySelectorAll('input')];\n"
    "  const none = checks.every(c => !c.checked);\n"
    "  for (const c of checks)\n"
    "    c.checked = none;\n"
    "};\n"
    "legend.prepend(all, ' ');\n";

enum ddp_status page_begin(struct page *page, const char *title)
{
    *page = (struct page){.out = NULL};
    page->out = open_memstream(&page->text, &page->bytes);
    if (!page->out)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>",
          page->out);
    html_print(page->out, title);
    fputs("</title>\n<style>\n", page->out);
    plot_print_colours(page->out);
    fprintf(page->out, "%s</style>\n</head>\n<body>\n<h1>", style);
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

void page_heading(struct page *page, const char *text)
{
    fputs("<h2>", page->out);
    html_print(page->out, text);
    fputs("</h2>\n", page->out);
}

void page_script(struct page *page)
{
    fprintf(page->out, "<script>\n%s</script>\n", script);
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

/* gnuplot names a curve "runs_plot_1a", which browsers show under the pointer. */
static void print_without_titles(FILE *out, const char *svg)
{
    static const char begin[] = "<title>", end[] = "</title>";
    for (const char *at; (at = strstr(svg, begin)) != NULL;) {
        const char *after = strstr(at, end);
        fprintf(out, "%.*s", (int)(at - svg), svg);
        svg = after ? after + strlen(end) : at + strlen(begin);
    }
    fputs(svg, out);
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
        fputs("</style>", out);
        print_without_titles(out, inside + 1);
    }
    enum ddp_status status = fclose(out) == 0 ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK)
        status = page_write_file(path, text, bytes);
    free(text);
    return status;
}

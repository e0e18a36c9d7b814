/* SPDX-License-Identifier: MIT
 *
 * ddpreport compare: what was found, as two tables with the same rows, and as a page with bars. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "core/text.h"
#include "reporter/commands.h"
#include "reporter/compare.h"
#include "reporter/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- tables ----------------------------------------------------------------------------------- */

static const char notes[] =
    "A x B: A workers or replicas run B shards each, one after another. ms/step:\n"
    "the median of all steps of all repeats, then their quartiles. Speed-up and\n"
    "efficiency: against accumulation in one worker with the same shards. Sent:\n"
    "bytes that a step moves, as planned. Comm and wait: time of a step in which a\n"
    "worker communicates, or waits for others or for data, and does not compute.\n"
    "Weights: compared bit for bit with those of the same accumulation. Memory: of\n"
    "a worker, or of all replicas; planned, and the most that the process held,\n"
    "with program and data. Loss: the mean of the last tenth of the steps, which have\n"
    "seen the same samples in all ways.\n";

static const char local_notes[] =
    "Every H: local steps, as of trainer --sync-every H. Each worker updates weights\n"
    "of its own, and after H steps all take the average, so that the weights differ\n"
    "from the others by design; they are the same in each repeat. ms/step, comm and\n"
    "wait: of whole rounds of H steps.\n";

static const char *local_notes_of(const struct comparison *comparison)
{
    for (int i = 0; i < comparison->count; i++)
        if (comparison->variants[i].every > 1)
            return local_notes;
    return "";
}

/* Columns of the first table. */
enum {
    NAME,
    SAME,
    MS,
    SPREAD,
    SPEED,
    SPEEDUP,
    EFFICIENCY,
    SENT,
    COMMUNICATION,
    WAITING,
    LOSS,
    COLUMNS
};

static void set_times(struct table *table, const struct comparison *comparison, int i)
{
    const struct variant *variant = &comparison->variants[i];
    const struct measured *measured = &comparison->measured[i];
    const double speedup =
        comparison->measured[variant->baseline].times.median / measured->times.median;
    const size_t row = (size_t)i + 1;
    char text[2][UNITS_TEXT];
    table_set(table, row, NAME, "%s", variant->name);
    table_set(table, row, SAME, "%s",
              variant->baseline == i ? "(baseline)"
              : measured->differs    ? "DIFFER"
              : variant->every > 1   ? "by design"
                                     : "equal");
    table_set(table, row, MS, "%s", units_number(text[0], 1e3 * measured->times.median));
    table_set(table, row, SPREAD, "%s..%s", units_number(text[0], 1e3 * measured->times.low),
              units_number(text[1], 1e3 * measured->times.high));
    table_set(table, row, SPEED, "%s",
              units_number(text[0], comparison->items / measured->times.median));
    table_set(table, row, SPEEDUP, "%.2f", speedup);
    table_set(table, row, EFFICIENCY, "%.0f %%", 100 * speedup / (double)variant->units);
    table_set(table, row, SENT, "%s", ddp_text_bytes(measured->exchange, text[0]));
    table_set(table, row, COMMUNICATION, "%.3f", 1e3 * measured->communication);
    table_set(table, row, WAITING, "%.3f", 1e3 * measured->waiting);
    table_set(table, row, LOSS, "%.4f", measured->loss);
}

static void set_memory(struct table *table, const struct comparison *comparison, int i)
{
    const struct measured *measured = &comparison->measured[i];
    char text[UNITS_TEXT];
    double planned = 0;
    table_set(table, (size_t)i + 1, 0, "%s", comparison->variants[i].name);
    for (size_t k = 0; k < MEMORY_PARTS; k++) {
        planned += measured->memory[k];
        table_set(table, (size_t)i + 1, k + 1, "%s", ddp_text_bytes(measured->memory[k], text));
    }
    table_set(table, (size_t)i + 1, 5, "%s", ddp_text_bytes(planned, text));
    table_set(table, (size_t)i + 1, 6, "%s", ddp_text_bytes(measured->memory_peak, text));
}

static enum ddp_status make_tables(struct table *time, struct table *memory,
                                   const struct comparison *comparison)
{
    const bool gpu = strcmp(comparison->device, "cpu") != 0;
    const char *const times[COLUMNS] = {"time",
                                        "weights",
                                        "ms/step",
                                        "25..75 %",
                                        comparison->tokens ? "tokens/s" : "samples/s",
                                        "speed-up",
                                        "efficiency",
                                        "sent",
                                        "comm ms",
                                        "wait ms",
                                        "loss"};
    const char *const parts[7] = {"memory",
                                  "weights",
                                  "gradients",
                                  "optimizer",
                                  "activations",
                                  gpu ? "planned, GPU" : "planned",
                                  gpu ? "peak, host" : "peak"};
    *memory = (struct table){.rows = 0};
    enum ddp_status status = table_make(time, (size_t)comparison->count, COLUMNS, times);
    if (status == DDP_OK)
        status = table_make(memory, (size_t)comparison->count, 7, parts);
    for (int i = 0; status == DDP_OK && i < comparison->count; i++) {
        set_times(time, comparison, i);
        set_memory(memory, comparison, i);
    }
    return status;
}

static void describe(const struct comparison *comparison, FILE *out)
{
    fprintf(out,
            "%s, %" PRId64 " parameters, %s, on %s; global batch %" PRId64 " samples; %" PRId64
            " steps, %" PRId64 " repeat%s",
            comparison->model, comparison->parameters, comparison->data, comparison->device,
            comparison->global_batch, comparison->steps, comparison->repeats,
            comparison->repeats == 1 ? "" : "s");
    if (comparison->threads > 0 && strcmp(comparison->device, "cpu") == 0)
        fprintf(out, "; %" PRId64 " thread%s a worker", comparison->threads,
                comparison->threads == 1 ? "" : "s");
    fputc('\n', out);
}

/* --- pictures --------------------------------------------------------------------------------- */

#define BAR_PARTS 4

/* Stacked bars that lie, one for each way to train. */
struct bars {
    const char *title, *unit;
    void (*measure)(const struct comparison *comparison, int i, double parts[BAR_PARTS]);
    const char *parts[BAR_PARTS]; /* what they are called; NULL: there are fewer */
};

/* What is neither communication nor waiting counts as computing. */
static void measure_time(const struct comparison *comparison, int i, double parts[BAR_PARTS])
{
    const struct measured *measured = &comparison->measured[i];
    parts[1] = 1e3 * measured->communication;
    parts[2] = 1e3 * measured->waiting;
    parts[0] = 1e3 * measured->times.median - parts[1] - parts[2];
}

static void measure_speedup(const struct comparison *comparison, int i, double parts[BAR_PARTS])
{
    const struct measured *baseline = &comparison->measured[comparison->variants[i].baseline];
    parts[0] = baseline->times.median / comparison->measured[i].times.median;
}

static void measure_memory(const struct comparison *comparison, int i, double parts[BAR_PARTS])
{
    for (size_t k = 0; k < MEMORY_PARTS; k++)
        parts[k] = comparison->measured[i].memory[k] / 1e6;
}

/* What the parts of bar i are together. */
static double measure_bar(const struct bars *bars, const struct comparison *comparison, int i,
                          double parts[BAR_PARTS])
{
    double all = 0;
    memset(parts, 0, BAR_PARTS * sizeof *parts);
    bars->measure(comparison, i, parts);
    for (size_t k = 0; k < BAR_PARTS; k++)
        all += parts[k] = parts[k] > 0 ? parts[k] : 0; /* NaN: not known */
    return all;
}

static void print_bars(struct page *page, const struct bars *bars,
                       const struct comparison *comparison)
{
    static const size_t colours[BAR_PARTS] = {0, 1, 4, 5};
    double parts[BAR_PARTS], longest = 0;
    char text[UNITS_TEXT];
    for (int i = 0; i < comparison->count; i++)
        longest = fmax(longest, measure_bar(bars, comparison, i, parts));
    page_heading(page, bars->title);
    fputs("<p class=\"key\">", page->out);
    for (size_t k = 0; k < BAR_PARTS && bars->parts[k]; k++)
        fprintf(page->out, "<i class=\"c%zu\"></i>%s", colours[k], bars->parts[k]);
    fputs("</p>\n<div class=\"bars\">\n", page->out);
    for (int i = 0; i < comparison->count; i++) {
        const double all = measure_bar(bars, comparison, i, parts);
        fprintf(page->out, "<span>%s</span><div>", comparison->variants[i].name);
        for (size_t k = 0; k < BAR_PARTS; k++)
            if (parts[k] > 0)
                fprintf(page->out,
                        "<i class=\"c%zu\" style=\"width:%.2f%%\" title=\"%s: %s %s\"></i>",
                        colours[k], 80 * parts[k] / longest, bars->parts[k],
                        units_number(text, parts[k]), bars->unit);
        fprintf(page->out, "<small>%s %s</small></div>\n", units_number(text, all), bars->unit);
    }
    fputs("</div>\n", page->out);
}

static void print_pictures(struct page *page, const struct comparison *comparison)
{
    static const struct bars pictures[] = {
        {"Time of a step", "ms", measure_time, {"computing", "communication", "waiting"}},
        {"Speed-up over accumulation with the same shards", "times", measure_speedup, {"speed-up"}},
        {"Memory of a worker, as planned",
         "MB",
         measure_memory,
         {"weights", "gradients", "optimizer", "activations"}},
    };
    for (size_t i = 0; i < sizeof pictures / sizeof pictures[0]; i++)
        print_bars(page, &pictures[i], comparison);
}

/* --- both ------------------------------------------------------------------------------------- */

static enum ddp_status write_page(const struct comparison *comparison, const struct table *time,
                                  const struct table *memory, const char *path)
{
    struct page page;
    char *text = NULL;
    size_t bytes;
    enum ddp_status status = page_begin(&page, "Accumulation, DataParallel and DDP compared");
    if (status != DDP_OK)
        return status;
    FILE *out = open_memstream(&text, &bytes);
    if (out) {
        describe(comparison, out);
        fclose(out);
        page_paragraph(&page, text);
        free(text);
    }
    table_print_html(time, page.out);
    table_print_html(memory, page.out);
    page_paragraph(&page, notes);
    if (*local_notes_of(comparison))
        page_paragraph(&page, local_notes_of(comparison));
    print_pictures(&page, comparison);
    return page_end(&page, path, DDP_OK);
}

static enum ddp_status show(const struct comparison *comparison, const struct settings *settings)
{
    struct table time, memory;
    struct ddp_terminal_text lines;
    enum ddp_status status = make_tables(&time, &memory, comparison);
    if (status == DDP_OK) {
        describe(comparison, ddp_terminal_begin(&lines, stdout));
        ddp_terminal_end(&lines);
        fputc('\n', stdout);
        table_print(&time, stdout);
        fputc('\n', stdout);
        table_print(&memory, stdout);
        fputc('\n', stdout);
        ddp_terminal_print(stdout, "%s%s", notes, local_notes_of(comparison));
        fflush(stdout);
    }
    if (status == DDP_OK && !comparison->all_equal)
        status =
            ddp_fail(DDP_ERR_MISMATCH, "compare: weights differ that must be equal: see the table");
    if ((status == DDP_OK || status == DDP_ERR_MISMATCH) && settings->output) {
        const enum ddp_status written = write_page(comparison, &time, &memory, settings->output);
        status = status == DDP_OK ? written : status;
    }
    table_free(&time);
    table_free(&memory);
    return status;
}

enum ddp_status compare_show(const struct settings *settings, int *exit_code)
{
    struct comparison *comparison = ddp_array_alloc(1, sizeof *comparison);
    if (!comparison)
        return DDP_ERR_MEMORY;
    enum ddp_status status = page_check_file(settings->output);
    if (status == DDP_OK)
        status = compare_run(comparison, settings, exit_code);
    if (status == DDP_OK)
        status = show(comparison, settings);
    comparison_free(comparison);
    free(comparison);
    return status;
}

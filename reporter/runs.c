/* SPDX-License-Identifier: MIT
 *
 * ddpreport RUN.jsonl ...: the runs of logs as a table, and as pictures in a file or the
 * terminal. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "core/text.h"
#include "reporter/commands.h"
#include "reporter/page.h"
#include "reporter/pictures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PANEL_LINES 16 /* of a picture in the terminal */
#define FACTS_SHOWN 40 /* in the table of differences, at most */

enum ddp_status runs_read(struct run_log *log, const struct settings *settings)
{
    enum ddp_status status = DDP_OK;
    *log = (struct run_log){.count = 0};
    for (int i = 0; status == DDP_OK && i < settings->file_count; i++)
        status = run_log_read(log, settings->files[i], false);
    return status;
}

/* --- as a table ------------------------------------------------------------------------------- */

enum { RUN, MODE, STEPS, LOSS, TEST_LOSS, ACCURACY, MS, SPREAD, SPEED, RESTARTS, END, COLUMNS };

/* "-" for an end that is not known: the run goes on, or was killed. */
static const char *end_of(const struct log_run *run)
{
    return run->status[0] == '\0'                ? "-"
           : run->ended_early                    ? "early"
           : strcmp(run->status, "success") == 0 ? "done"
                                                 : run->status;
}

static enum ddp_status set_row(struct table *table, size_t row, const struct log_run *run)
{
    struct step_times times;
    char text[2][UNITS_TEXT];
    const int64_t units = run->replicas > 1 ? run->replicas : run->world_size;
    enum ddp_status status = step_times_of(&times, run->steps, run->step_count);
    if (status != DDP_OK)
        return status;
    const struct log_step *last = run->step_count ? &run->steps[run->step_count - 1] : NULL;
    const struct log_evaluation *test =
        run->evaluation_count ? &run->evaluations[run->evaluation_count - 1] : NULL;
    const double items = last ? run->steps[0].items : NAN;
    table_set(table, row, RUN, "%s", run->name);
    table_set(table, row, MODE, "%s x%" PRId64, run->mode, units);
    table_set(table, row, STEPS, "%" PRId64 "/%" PRId64, last ? last->step : 0, run->total_steps);
    table_set(table, row, LOSS, "%s", units_number(text[0], last ? last->loss : NAN));
    table_set(table, row, TEST_LOSS, "%s", units_number(text[0], test ? test->loss : NAN));
    if (test && !isnan(test->accuracy))
        table_set(table, row, ACCURACY, "%.2f %%", 100 * test->accuracy);
    else
        table_set(table, row, ACCURACY, "-");
    table_set(table, row, MS, "%s", units_number(text[0], 1e3 * times.median));
    table_set(table, row, SPREAD, "%s..%s", units_number(text[0], 1e3 * times.low),
              units_number(text[1], 1e3 * times.high));
    table_set(table, row, SPEED, "%s", units_number(text[0], items / times.median));
    table_set(table, row, RESTARTS, "%zu", run->restart_count);
    table_set(table, row, END, "%s", end_of(run));
    return DDP_OK;
}

static enum ddp_status make_table(struct table *table, const struct log_run *runs, size_t count)
{
    const char *const titles[COLUMNS] = {
        "run",      "mode",      "steps",
        "loss",     "test loss", "accuracy",
        "ms/step",  "25..75 %",  count > 0 && runs[0].tokens ? "tokens/s" : "samples/s",
        "restarts", "end"};
    enum ddp_status status = table_make(table, count, COLUMNS, titles);
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        status = set_row(table, i + 1, &runs[i]);
    return status;
}

static enum ddp_status print_table(const struct run_log *log, FILE *out)
{
    struct table table;
    enum ddp_status status = make_table(&table, log->runs, log->count);
    if (status == DDP_OK)
        table_print(&table, out);
    table_free(&table);
    return status;
}

/* --- in the terminal -------------------------------------------------------------------------- */

static enum ddp_status print_panel(const struct curves *curves, enum panel panel, int columns,
                                   int lines)
{
    char *picture = NULL;
    enum ddp_status status = curves_draw(curves, panel, PLOT_TEXT, columns, lines, &picture);
    if (status == DDP_OK && picture) {
        /* gnuplot begins with a form feed, and ends with empty lines. */
        const char *begin = picture + strspn(picture, "\f\n");
        size_t length = strlen(begin);
        while (length > 0 && strchr(" \n", begin[length - 1]))
            length--;
        printf("\n%.*s\n", (int)length, begin);
    }
    free(picture);
    return status;
}

static int columns_of_terminal(void)
{
    const int columns = ddp_terminal_columns(STDOUT_FILENO);
    return columns == 0 ? 79 : columns < 21 ? 20 : columns > 301 ? 300 : columns - 1;
}

static enum ddp_status print_panels(const struct curves *curves)
{
    enum ddp_status status = DDP_OK;
    for (int panel = 0; status == DDP_OK && panel < PANELS; panel++)
        status = print_panel(curves, (enum panel)panel, columns_of_terminal(), PANEL_LINES);
    return status;
}

/* --- in a file -------------------------------------------------------------------------------- */

/* Of all runs together, in the order in which they first appear. */
struct fact_name {
    char name[LOG_NAME];
    bool differs;
};

static enum ddp_status list_facts(struct fact_name **names, size_t *count,
                                  const struct curves *curves)
{
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; i < curves->count; i++)
        for (size_t k = 0; status == DDP_OK && k < curves->runs[i].fact_count; k++) {
            struct fact_name fact;
            size_t at = 0;
            memcpy(fact.name, curves->runs[i].facts[k].name, sizeof fact.name);
            while (at < *count && strcmp((*names)[at].name, fact.name) != 0)
                at++;
            if (at < *count)
                continue;
            fact.differs = false;
            const char *first = run_log_fact(&curves->runs[0], fact.name);
            for (size_t r = 1; r < curves->count; r++)
                if (strcmp(run_log_fact(&curves->runs[r], fact.name), first) != 0)
                    fact.differs = true;
            status = ddp_array_append(names, count, &fact, sizeof fact);
        }
    return status;
}

/* Runs below each other, and what differs between them. */
static enum ddp_status print_differences(FILE *out, const struct curves *curves,
                                         const struct fact_name *names, size_t count)
{
    const char *titles[1 + FACTS_SHOWN] = {"run"};
    struct table table;
    size_t columns = 1;
    for (size_t k = 0; k < count && columns <= FACTS_SHOWN; k++)
        if (names[k].differs)
            titles[columns++] = names[k].name;
    if (columns == 1)
        return DDP_OK;
    enum ddp_status status = table_make(&table, curves->count, columns, titles);
    for (size_t i = 0; status == DDP_OK && i < curves->count; i++) {
        table_set(&table, i + 1, 0, "%s", curves->runs[i].name);
        for (size_t c = 1; c < columns; c++)
            table_set(&table, i + 1, c, "%s", run_log_fact(&curves->runs[i], titles[c]));
    }
    if (status == DDP_OK)
        table_print_html(&table, out);
    table_free(&table);
    return status;
}

static enum ddp_status print_equal(FILE *out, const struct curves *curves,
                                   const struct fact_name *names, size_t count)
{
    static const char *const titles[] = {"", "value"};
    struct table table;
    size_t rows = 0;
    for (size_t k = 0; k < count; k++)
        rows += !names[k].differs;
    enum ddp_status status = table_make(&table, rows, 2, titles);
    rows = 0;
    for (size_t k = 0; status == DDP_OK && k < count; k++)
        if (!names[k].differs) {
            table_set(&table, ++rows, 0, "%s", names[k].name);
            table_set(&table, rows, 1, "%s", run_log_fact(&curves->runs[0], names[k].name));
        }
    if (status == DDP_OK) {
        fprintf(out, "<details><summary>%s</summary>\n",
                curves->count > 1 ? "The same in all runs" : "What the run was started with");
        table_print_html(&table, out);
        fputs("</details>\n", out);
    }
    table_free(&table);
    return status;
}

static enum ddp_status print_facts(struct page *page, const struct curves *curves)
{
    struct fact_name *names = NULL;
    size_t count = 0, differing = 0;
    enum ddp_status status = list_facts(&names, &count, curves);
    for (size_t k = 0; k < count; k++)
        differing += names[k].differs;
    if (curves->count > 1)
        page_heading(page, "What differs between the runs");
    if (curves->count > 1 && differing == 0)
        page_paragraph(page, "Nothing: options, seed, version and host are the same.");
    if (differing > FACTS_SHOWN)
        fprintf(page->out, "<p>The first %d of %zu.</p>\n", FACTS_SHOWN, differing);
    if (status == DDP_OK)
        status = print_differences(page->out, curves, names, count);
    if (status == DDP_OK && count > differing)
        status = print_equal(page->out, curves, names, count);
    free(names);
    return status;
}

/* Loss, evaluated metrics in the order in which the runs have them, and the other panels. */
static enum ddp_status print_charts(FILE *out, const struct curves *curves)
{
    enum ddp_status status = chart_print(out, curves, PANEL_LOSS, "loss");
    for (size_t i = 0; i < curves->count; i++)
        for (size_t k = 0; status == DDP_OK && k < curves->runs[i].metric_count; k++) {
            const char *metric = curves->runs[i].metrics[k].name;
            bool drawn = strcmp(metric, "loss") == 0;
            for (size_t j = 0; !drawn && j < i; j++)
                drawn = run_log_has_metric(&curves->runs[j], metric);
            if (!drawn)
                status = chart_print(out, curves, PANELS, metric);
        }
    for (int panel = PANEL_LOSS + 1; status == DDP_OK && panel < PANELS; panel++)
        status = chart_print(out, curves, (enum panel)panel, NULL);
    return status;
}

/* Which workers did which steps, of runs that were started more than once. */
static enum ddp_status print_starts(struct page *page, const struct curves *curves)
{
    static const char *const titles[] = {"run",     "from step",   "nodes",
                                         "workers", "steps again", "lost (s)"};
    char text[UNITS_TEXT];
    struct table table;
    size_t rows = 0, row = 0;
    for (size_t i = 0; i < curves->count; i++)
        rows += curves->runs[i].start_count > 1 ? curves->runs[i].start_count : 0;
    if (rows == 0)
        return DDP_OK;
    enum ddp_status status = table_make(&table, rows, 6, titles);
    for (size_t i = 0; status == DDP_OK && i < curves->count; i++)
        for (size_t k = 0; curves->runs[i].start_count > 1 && k < curves->runs[i].start_count;
             k++) {
            const struct log_start *start = &curves->runs[i].starts[k];
            table_set(&table, ++row, 0, "%s", curves->runs[i].name);
            table_set(&table, row, 1, "%" PRId64, start->first_step);
            table_set(&table, row, 2, "%" PRId64, start->nodes);
            table_set(&table, row, 3, "%" PRId64, start->workers);
            table_set(&table, row, 4, "%" PRId64, start->again);
            table_set(&table, row, 5, "%s", units_number(text, start->lost));
        }
    page_heading(page, "Workers");
    page_paragraph(page, "Each start of the workers: which steps were computed again, and how long "
                         "it took until the run was where it had been before.");
    if (status == DDP_OK)
        table_print_html(&table, page->out);
    table_free(&table);
    return status;
}

static enum ddp_status write_page(const struct settings *settings, const struct curves *curves)
{
    struct page page;
    struct table table;
    enum ddp_status status = page_begin(&page, "Training runs");
    if (status != DDP_OK)
        return status;
    status = print_facts(&page, curves);
    page_heading(&page, "Results");
    if (status == DDP_OK) {
        status = make_table(&table, curves->runs, curves->count);
        if (status == DDP_OK)
            table_print_html(&table, page.out);
        table_free(&table);
    }
    if (status == DDP_OK)
        status = print_starts(&page, curves);
    page_paragraph(&page,
                   "Strong lines are running means, pale ones the values themselves. Dots are "
                   "evaluations on the test set, ticks on the lower axis checkpoints, dashed "
                   "vertical lines restarts.");
    chart_print_legend(page.out, curves);
    fputs("<div class=\"charts\">\n", page.out);
    if (status == DDP_OK)
        status = print_charts(page.out, curves);
    fputs("</div>\n", page.out);
    page_script(&page);
    return page_end(&page, settings->output, status);
}

static enum ddp_status write_picture(const struct settings *settings, const struct curves *curves)
{
    const bool svg = ddp_text_ends_with(settings->output, ".svg");
    const enum plot_kind kind = svg ? PLOT_SVG : PLOT_PNG;
    char *picture = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        curves_draw_all(curves, kind, svg ? 1000 : 1400, svg ? 640 : 800, &picture, &bytes);
    if (status == DDP_OK)
        status = svg ? page_write_svg(settings->output, picture)
                     : page_write_file(settings->output, picture, bytes);
    free(picture);
    return status;
}

/* --- all -------------------------------------------------------------------------------------- */

enum ddp_status runs_check_output(const struct settings *settings)
{
    struct stat output, input;
    if (!settings->output || stat(settings->output, &output) < 0)
        return DDP_OK;
    for (int i = 0; i < settings->file_count; i++)
        if (stat(settings->files[i], &input) == 0 && input.st_dev == output.st_dev &&
            input.st_ino == output.st_ino)
            return ddp_fail(DDP_ERR_INVALID,
                            "--output %s: this is the file %s, which is read: use another name",
                            settings->output, settings->files[i]);
    return DDP_OK;
}

enum ddp_status runs_show(const struct settings *settings)
{
    struct run_log log = {.count = 0};
    enum ddp_status status = runs_check_output(settings);
    if (status == DDP_OK)
        status = page_check_file(settings->output);
    if (status == DDP_OK)
        status = runs_read(&log, settings);
    const struct curves curves = {log.runs, log.count, (enum x_axis)settings->x,
                                  settings->log_scale};
    if (status == DDP_OK)
        status = print_table(&log, stdout);
    fflush(stdout);
    if (status == DDP_OK && settings->terminal)
        status = print_panels(&curves);
    if (status == DDP_OK && settings->output)
        status = ddp_text_ends_with(settings->output, ".html") ? write_page(settings, &curves)
                                                               : write_picture(settings, &curves);
    run_log_free(&log);
    return status;
}

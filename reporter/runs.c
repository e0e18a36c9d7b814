/* SPDX-License-Identifier: MIT
 *
 * See runs.h. */
#include "config.h"

#include "reporter/runs.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "core/text.h"
#include "reporter/curves.h"
#include "reporter/page.h"
#include "reporter/run_table.h"
#include "reporter/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PANEL_LINES   16 /* of a picture in the terminal */
#define FOLLOW_MS     1000
#define SHORTEST_PLOT 8

/* The runs of all files. */
struct logs {
    struct run_log *logs;
    int log_count;
    struct log_run *runs; /* copies, without their arrays */
    size_t run_count;
};

static void free_logs(struct logs *logs)
{
    for (int i = 0; i < logs->log_count; i++)
        run_log_free(&logs->logs[i]);
    free(logs->logs);
    free(logs->runs);
    *logs = (struct logs){.log_count = 0};
}

static enum ddp_status read_logs(struct logs *logs, const struct settings *settings, bool quietly)
{
    enum ddp_status status = DDP_OK;
    *logs = (struct logs){.log_count = 0};
    logs->logs = ddp_array_alloc((size_t)settings->file_count, sizeof *logs->logs);
    if (!logs->logs)
        return DDP_ERR_MEMORY;
    while (status == DDP_OK && logs->log_count < settings->file_count) {
        struct run_log *log = &logs->logs[logs->log_count++];
        status = run_log_read(log, settings->files[logs->log_count - 1], quietly);
        logs->run_count += log->count;
    }
    logs->runs = ddp_array_alloc(logs->run_count + 1, sizeof *logs->runs);
    if (status != DDP_OK || !logs->runs)
        return status == DDP_OK ? DDP_ERR_MEMORY : status;
    size_t to = 0;
    for (int i = 0; i < logs->log_count; i++)
        for (size_t k = 0; k < logs->logs[i].count; k++)
            logs->runs[to++] = logs->logs[i].runs[k];
    return DDP_OK;
}

static enum ddp_status print_table(const struct logs *logs, FILE *out)
{
    struct table table;
    enum ddp_status status = run_table_make(&table, logs->runs, logs->run_count);
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
    size_t bytes = 0;
    enum ddp_status status =
        curves_draw(curves, panel, PLOT_TEXT, columns, lines, &picture, &bytes);
    if (status == DDP_OK && picture) {
        /* gnuplot begins with a form feed. */
        const char *begin = picture + strspn(picture, "\f\n");
        printf("\n%s", begin);
    }
    free(picture);
    return status;
}

static int columns_of_terminal(void)
{
    const int columns = ddp_terminal_columns(STDOUT_FILENO);
    return columns < 40 ? 79 : columns > 160 ? 159 : columns - 1;
}

static enum ddp_status print_panels(const struct curves *curves)
{
    enum ddp_status status = DDP_OK;
    for (int panel = 0; status == DDP_OK && panel < PANELS; panel++)
        status = print_panel(curves, (enum panel)panel, columns_of_terminal(), PANEL_LINES);
    return status;
}

/* --- in a file -------------------------------------------------------------------------------- */

static enum ddp_status add_timeline(struct page *page, const char *path)
{
    char *picture = NULL;
    struct trace trace;
    size_t bytes;
    enum ddp_status status = trace_read(&trace, path);
    if (status == DDP_OK)
        status = timeline_draw(&trace, PLOT_SVG, &picture, &bytes);
    if (status == DDP_OK) {
        page_picture(page, "Time line of a step", picture);
        page_paragraph(page, timeline_notes);
    }
    trace_free(&trace);
    free(picture);
    return status;
}

static enum ddp_status write_page(const struct settings *settings, const struct curves *curves)
{
    struct page page;
    struct table table;
    enum ddp_status status = page_begin(&page, "Training runs");
    if (status != DDP_OK)
        return status;
    status = run_table_make(&table, curves->runs, curves->count);
    if (status == DDP_OK)
        table_print_html(&table, page.out);
    table_free(&table);
    page_paragraph(&page,
                   "Strong lines are running means, pale ones the values themselves. Dots are "
                   "evaluations on the test set, strokes on the lower axis checkpoints, "
                   "broken vertical lines restarts.");
    for (int panel = 0; status == DDP_OK && panel < PANELS; panel++) {
        char *picture;
        size_t bytes;
        status = curves_draw(curves, (enum panel)panel, PLOT_SVG, 1000, 320, &picture, &bytes);
        if (status == DDP_OK && picture)
            page_picture(&page, curves_titles[panel], picture);
        free(picture);
    }
    if (status == DDP_OK && settings->trace)
        status = add_timeline(&page, settings->trace);
    return page_end(&page, settings->output, status);
}

static enum ddp_status write_picture(const struct settings *settings, const struct curves *curves)
{
    const bool svg = ddp_text_ends_with(settings->output, ".svg");
    const enum plot_kind kind = svg ? PLOT_SVG : PLOT_PNG;
    char *picture = NULL;
    size_t bytes = 0;
    enum ddp_status status;
    if (settings->trace) {
        struct trace trace;
        status = trace_read(&trace, settings->trace);
        if (status == DDP_OK)
            status = timeline_draw(&trace, kind, &picture, &bytes);
        trace_free(&trace);
    } else {
        status = curves_draw_all(curves, kind, 1400, 800, &picture, &bytes);
    }
    if (status == DDP_OK)
        status = svg ? page_write_svg(settings->output, picture)
                     : page_write_file(settings->output, picture, bytes);
    free(picture);
    return status;
}

enum ddp_status runs_show(const struct settings *settings)
{
    struct logs logs;
    enum ddp_status status = page_check_file(settings->output);
    if (status != DDP_OK)
        return status;
    status = read_logs(&logs, settings, false);
    const struct curves curves = {logs.runs, logs.run_count, (enum x_axis)settings->x};
    if (status == DDP_OK)
        status = print_table(&logs, stdout);
    fflush(stdout);
    if (status == DDP_OK && settings->terminal)
        status = print_panels(&curves);
    if (status == DDP_OK && settings->output)
        status = ddp_text_ends_with(settings->output, ".html") ? write_page(settings, &curves)
                                                               : write_picture(settings, &curves);
    free_logs(&logs);
    return status;
}

/* --- as the logs grow ------------------------------------------------------------------------- */

static bool all_ended(const struct logs *logs)
{
    for (int i = 0; i < logs->log_count; i++)
        if (!logs->logs[i].runs[logs->logs[i].count - 1].status[0])
            return false;
    return true;
}

/* Bytes of all logs; -1: one is not there, or still empty. */
static int64_t bytes_of(const struct settings *settings)
{
    int64_t bytes = 0;
    for (int i = 0; i < settings->file_count; i++) {
        struct stat status;
        if (stat(settings->files[i], &status) < 0)
            return errno == ENOENT ? -1 : 0; /* reading it says what is wrong */
        if (status.st_size == 0)
            return -1;
        bytes += status.st_size;
    }
    return bytes;
}

static enum ddp_status draw_frame(const struct logs *logs, const struct settings *settings)
{
    const struct curves curves = {logs->runs, logs->run_count, (enum x_axis)settings->x};
    struct winsize size = {.ws_row = 24};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    fputs("\033[H\033[2J", stdout);
    enum ddp_status status = print_table(logs, stdout);
    const int room = (size.ws_row > 0 ? size.ws_row : 24) - 2 * ((int)logs->run_count + 2) - 3;
    if (status == DDP_OK)
        status = print_panel(&curves, PANEL_LOSS, columns_of_terminal(),
                             room > SHORTEST_PLOT ? room : SHORTEST_PLOT);
    fflush(stdout);
    return status;
}

enum ddp_status runs_follow(const struct settings *settings)
{
    int64_t drawn = -1;
    bool waits = false;
    if (!isatty(STDOUT_FILENO))
        return ddp_fail(DDP_ERR_INVALID, "--follow needs a terminal: use --terminal, or --output "
                                         "FILE.html");
    for (;; usleep(FOLLOW_MS * 1000)) {
        struct logs logs;
        const int64_t bytes = bytes_of(settings);
        if (bytes < 0 && !waits) {
            ddp_log(DDP_LOG_INFO, "waiting for %s", settings->files[0]);
            waits = true;
        }
        if (bytes < 0 || bytes == drawn)
            continue;
        drawn = bytes;
        enum ddp_status status = read_logs(&logs, settings, true);
        if (status == DDP_OK)
            status = draw_frame(&logs, settings);
        const bool ended = status == DDP_OK && all_ended(&logs);
        free_logs(&logs);
        if (status != DDP_OK || ended || ferror(stdout))
            return status;
    }
}

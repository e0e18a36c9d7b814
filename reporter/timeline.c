/* SPDX-License-Identifier: MIT
 *
 * See pictures.h. */
#include "config.h"

#include "reporter/pictures.h"

#include "core/memory.h"
#include "core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 32  /* threads, at most */
#define LINE 300 /* letters of a row, at most */

const char timeline_notes[] =
    "The step of the trace that took the median time, as rank 0 saw it. Each row is a thread; the "
    "narrow bars below it are buckets of gradients that are reduced in the background.";

struct row {
    int process, thread;
};

struct window {
    double begin, end; /* microseconds */
    int64_t step;
};

static int compare_durations(const void *a, const void *b)
{
    const struct trace_span *one = *(struct trace_span *const *)a,
                            *other = *(struct trace_span *const *)b;
    const double first = one->end - one->begin, second = other->end - other->begin;
    return (first > second) - (first < second);
}

/* Of the first process that has steps. */
static enum ddp_status find_step(const struct trace *trace, struct window *window)
{
    const struct trace_span **steps = ddp_array_alloc(trace->span_count, sizeof *steps);
    size_t count = 0;
    if (!steps)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < trace->span_count; i++)
        if (trace->spans[i].kind == SPAN_STEP &&
            (count == 0 || trace->spans[i].process == steps[0]->process))
            steps[count++] = &trace->spans[i];
    qsort(steps, count, sizeof *steps, compare_durations);
    const struct trace_span *step = steps[count / 2];
    *window = (struct window){step->begin, step->end, step->step};
    free(steps);
    return DDP_OK;
}

static bool is_inside(const struct trace_span *span, const struct window *window)
{
    return span->end > window->begin && span->begin < window->end;
}

/* Threads that did something in that time; spans are in their order. */
static int find_rows(const struct trace *trace, const struct window *window, struct row rows[ROWS])
{
    int count = 0;
    for (size_t i = 0; i < trace->span_count; i++) {
        const struct trace_span *span = &trace->spans[i];
        const bool known = count > 0 && rows[count - 1].process == span->process &&
                           rows[count - 1].thread == span->thread;
        if (!known && count < ROWS && is_inside(span, window))
            rows[count++] = (struct row){span->process, span->thread};
    }
    return count;
}

/* "rank 0, training thread" */
static void name_row(char name[TRACE_NAME + 32], const struct trace *trace, const struct row *row)
{
    const char *thread = "thread";
    for (size_t i = 0; i < trace->thread_count; i++)
        if (trace->threads[i].process == row->process && trace->threads[i].thread == row->thread)
            thread = trace->threads[i].name;
    snprintf(name, TRACE_NAME + 32, "rank %d, %s", row->process, thread);
}

/* Does a picture show the span in this row, as of this kind? Of what is neither computing nor
 * communication nor waiting, it shows what lies in nothing else. */
static bool is_shown(const struct trace_span *span, const struct window *window,
                     const struct row *row, enum span_kind kind)
{
    return span->process == row->process && span->thread == row->thread && span->kind == kind &&
           (kind != SPAN_OTHER || span->depth == 0) && is_inside(span, window);
}

/* The part of a span that lies in the window, in ms from its beginning. */
static double begin_of(const struct trace_span *span, const struct window *window)
{
    return (span->begin > window->begin ? span->begin - window->begin : 0) / 1e3;
}

static double end_of(const struct trace_span *span, const struct window *window)
{
    return ((span->end < window->end ? span->end : window->end) - window->begin) / 1e3;
}

/* In the order in which they are drawn: the last covers the others. */
static const struct {
    enum span_kind kind;
    size_t colour;
    char letter;
    const char *title;
} kinds[] = {{SPAN_OTHER, 5, '-', "other work"},
             {SPAN_COMPUTE, 0, '#', "computing"},
             {SPAN_COMMUNICATION, 1, '=', "communication"},
             {SPAN_WAIT, 4, '.', "waiting"}};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* --- drawn ------------------------------------------------------------------------------------ */

enum ddp_status timeline_draw(const struct trace *trace, enum plot_kind kind, char **picture,
                              size_t *bytes)
{
    struct row rows[ROWS];
    struct window window;
    struct plot plot;
    char name[TRACE_NAME + 32];
    *picture = NULL;
    enum ddp_status status = find_step(trace, &window);
    if (status != DDP_OK)
        return status;
    const int row_count = find_rows(trace, &window, rows);
    status = plot_begin(&plot, kind, "timeline", 1000, 110 + 44 * row_count);
    if (status != DDP_OK)
        return status;
    fprintf(plot.script,
            "set xrange [0:%.6g]\nset xlabel 'time since the beginning of step %" PRId64
            " (ms)'\nset key tmargin center horizontal\n",
            (window.end - window.begin) / 1e3, window.step);
    for (int r = 0; r < row_count; r++) {
        name_row(name, trace, &rows[r]);
        plot_row(&plot, r, name);
        for (size_t k = 0; k < KINDS; k++)
            for (size_t i = 0; i < trace->span_count; i++) {
                const struct trace_span *span = &trace->spans[i];
                const bool background = span->depth == -1;
                if (is_shown(span, &window, &rows[r], kinds[k].kind))
                    plot_box(&plot, kinds[k].colour, begin_of(span, &window), end_of(span, &window),
                             r + (background ? 0.33 : -0.28), r + (background ? 0.42 : 0.28));
            }
    }
    for (size_t k = 0; k < KINDS; k++)
        plot_key(&plot, kinds[k].colour, kinds[k].title);
    return plot_end(&plot, picture, bytes);
}

/* --- as text ---------------------------------------------------------------------------------- */

/* One line of letters. What takes less than half a column is not seen. */
static void print_spans(const struct trace *trace, const struct window *window,
                        const struct row *row, bool background, const char *name, FILE *out,
                        int left, int width)
{
    const double scale = width / ((window->end - window->begin) / 1e3);
    char line[LINE];
    bool any = false;
    memset(line, ' ', (size_t)width);
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < trace->span_count; i++) {
            const struct trace_span *span = &trace->spans[i];
            if ((span->depth == -1) != background || !is_shown(span, window, row, kinds[k].kind))
                continue;
            const int begin = (int)(scale * begin_of(span, window) + 0.5);
            const int end = (int)(scale * end_of(span, window) + 0.5);
            if (begin < end && end <= width)
                memset(line + begin, kinds[k].letter, (size_t)(end - begin));
            any = true;
        }
    if (any)
        fprintf(out, "%s%*s |%.*s|\n", name, left - ddp_text_columns(name, strlen(name)), "", width,
                line);
}

enum ddp_status timeline_print(const struct trace *trace, int columns, FILE *out)
{
    static const char in_background[] = "  in the background";
    struct row rows[ROWS];
    struct window window;
    char name[TRACE_NAME + 32];
    enum ddp_status status = find_step(trace, &window);
    if (status != DDP_OK)
        return status;
    const int row_count = find_rows(trace, &window, rows);
    int left = (int)sizeof in_background - 1;
    for (int r = 0; r < row_count; r++) {
        name_row(name, trace, &rows[r]);
        const int used = ddp_text_columns(name, strlen(name));
        left = used > left ? used : left;
    }
    const int room = columns - left - 3, width = room < 20 ? 20 : room < LINE ? room : LINE;
    fprintf(out, "\nstep %" PRId64, window.step);
    for (size_t k = KINDS; k-- > 0;)
        fprintf(out, "  %c %s", kinds[k].letter, kinds[k].title);
    fputc('\n', out);
    for (int r = 0; r < row_count; r++) {
        name_row(name, trace, &rows[r]);
        print_spans(trace, &window, &rows[r], false, name, out, left, width);
        print_spans(trace, &window, &rows[r], true, in_background, out, left, width);
    }
    const int used = snprintf(name, sizeof name, "%.3g ms", (window.end - window.begin) / 1e3);
    fprintf(out, "%*s |0%*s%s|\n", left, "", width - used - 1, "", name);
    return DDP_OK;
}

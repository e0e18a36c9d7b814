/* SPDX-License-Identifier: MIT
 *
 * See timeline.h. */
#include "config.h"

#include "reporter/timeline.h"

#include "core/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 32 /* threads, at most */

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

static const char *name_of(const struct trace *trace, const struct row *row)
{
    for (size_t i = 0; i < trace->thread_count; i++)
        if (trace->threads[i].process == row->process && trace->threads[i].thread == row->thread)
            return trace->threads[i].name;
    return "thread";
}

/* Of operations, those that lie in nothing else; of all other spans, all. */
static bool is_shown(const struct trace_span *span, enum span_kind kind)
{
    return span->kind == kind && (kind != SPAN_OTHER || span->depth == 0);
}

/* "$waits << EOD": corners of boxes. Returns how many. */
static int write_boxes(struct plot *plot, const struct trace *trace, const struct window *window,
                       const struct row *rows, int row_count, enum span_kind kind)
{
    int count = 0;
    fprintf(plot->script, "$kind%d << EOD\n", (int)kind);
    for (int r = 0; r < row_count; r++)
        for (size_t i = 0; i < trace->span_count; i++) {
            const struct trace_span *span = &trace->spans[i];
            if (span->process != rows[r].process || span->thread != rows[r].thread ||
                !is_shown(span, kind) || !is_inside(span, window))
                continue;
            const double begin = span->begin > window->begin ? span->begin : window->begin;
            const double end = span->end < window->end ? span->end : window->end;
            const bool background = span->depth == -1;
            fprintf(plot->script, "%.6g %d %.6g %.6g %.3f %.3f\n", (begin - window->begin) / 1e3, r,
                    (begin - window->begin) / 1e3, (end - window->begin) / 1e3,
                    r + (background ? 0.33 : -0.28), r + (background ? 0.42 : 0.28));
            count++;
        }
    fputs("EOD\n", plot->script);
    return count;
}

static void write_axes(struct plot *plot, const struct trace *trace, const struct window *window,
                       const struct row *rows, int row_count)
{
    fprintf(plot->script,
            "set xrange [0:%.6g]\nset yrange [%.1f:-0.9] noreverse\nunset grid\n"
            "set xlabel 'time since the beginning of step %" PRId64 " (ms)'\nset ytics (",
            (window->end - window->begin) / 1e3, row_count - 0.4, window->step);
    for (int r = 0; r < row_count; r++) {
        char label[TRACE_NAME + 32];
        snprintf(label, sizeof label, "rank %d, %s", rows[r].process, name_of(trace, &rows[r]));
        fputs(r ? ", " : "", plot->script);
        plot_string(plot, label);
        fprintf(plot->script, " %d", r);
    }
    fputs(")\nset style fill solid 1 noborder\nset key tmargin center horizontal\n", plot->script);
}

enum ddp_status timeline_draw(const struct trace *trace, enum plot_kind kind, char **picture,
                              size_t *bytes)
{
    static const struct {
        enum span_kind kind;
        size_t colour;
        const char *title;
    } kinds[] = {{SPAN_OTHER, 5, "other work"},
                 {SPAN_COMPUTE, 0, "computing"},
                 {SPAN_COMMUNICATION, 1, "communication"},
                 {SPAN_WAIT, 4, "waiting"}};
    struct row rows[ROWS];
    struct window window;
    struct plot plot;
    const char *separator = "plot ";
    *picture = NULL;
    enum ddp_status status = find_step(trace, &window);
    if (status != DDP_OK)
        return status;
    const int row_count = find_rows(trace, &window, rows);
    status = plot_begin(&plot, kind, "timeline", 1000, 110 + 44 * row_count);
    if (status != DDP_OK)
        return status;
    write_axes(&plot, trace, &window, rows, row_count);
    bool has[4];
    for (size_t k = 0; k < 4; k++)
        has[k] = write_boxes(&plot, trace, &window, rows, row_count, kinds[k].kind) > 0;
    for (size_t k = 0; k < 4; k++) {
        if (!has[k])
            continue;
        fprintf(plot.script, "%s$kind%d using 1:2:3:4:5:6 with boxxyerror", separator,
                (int)kinds[k].kind);
        plot_colour(&plot, kinds[k].colour, false);
        fprintf(plot.script, " title '%s'", kinds[k].title);
        separator = ", ";
    }
    fputc('\n', plot.script);
    return plot_end(&plot, picture, bytes);
}

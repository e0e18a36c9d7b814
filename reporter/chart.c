/* SPDX-License-Identifier: MIT
 *
 * Charts of a page; see pictures.h. Curves are paths in a box that is stretched to the width of the
 * page, labels are HTML around it, so that a text has the same size on every screen. A path also
 * has its values, which the page's script shows. A class for each run lets it be switched off. */
#include "config.h"

#include "reporter/axis.h"
#include "reporter/pictures.h"
#include "reporter/table.h"

#include "core/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH  4000 /* of the box: steps in which paths are written */
#define HEIGHT 2000
#define MARKS  200 /* of a kind and run, at most */
#define DASHES 5
#define DOT    "h.01" /* a stroke almost without length, which has round ends */

/* Below each other, in this order. */
enum kind { VALUES, MEANS, SCORES, KINDS };

struct curve {
    struct series kinds[KINDS];
};

struct chart {
    FILE *out;
    const struct curves *curves;
    struct curve *all; /* of each run */
    struct plot_axis x, y;
    struct axis_ticks x_ticks, y_ticks;
    double factor, y_factor; /* of what is shown */
};

/* --- values ----------------------------------------------------------------------------------- */

static void thin(struct series *series)
{
    size_t shown[SERIES_POINTS];
    const size_t count = series_thin(series, shown);
    for (size_t k = 0; k < count; k++) {
        series->x[k] = series->x[shown[k]];
        series->y[k] = series->y[shown[k]];
    }
    series->count = count;
}

/* Brings values to the axes; those that a logarithmic axis does not have become gaps. */
static void scale(struct chart *chart, struct series *series)
{
    for (size_t i = 0; i < series->count; i++) {
        series->x[i] *= chart->factor;
        series->y[i] *= chart->y_factor;
        if (!isfinite(series->x[i]))
            series->x[i] = series->y[i] = NAN;
        if ((chart->y.log_scale && series->y[i] < CURVES_LEAST))
            series->y[i] = NAN;
        chart->x.low = fmin(chart->x.low, series->x[i]);
        chart->x.high = fmax(chart->x.high, series->x[i]);
        if (isnan(series->y[i]))
            continue;
        chart->y.low = fmin(chart->y.low, series->y[i]);
        chart->y.high = fmax(chart->y.high, series->y[i]);
    }
}

/* Where a step lies that may not have been logged, before scaling. */
static double place_of(const struct chart *chart, const struct series *steps,
                       const struct log_run *run, int64_t step)
{
    return chart->curves->axis == X_STEP ? (double)step : series_place(steps, run, step);
}

static enum ddp_status make_scores(const struct chart *chart, struct series *scores,
                                   const struct log_run *run, const char *metric,
                                   const struct series *steps)
{
    size_t wanted = 0;
    scores->x = ddp_array_alloc(run->score_count + 1, sizeof *scores->x);
    scores->y = ddp_array_alloc(run->score_count + 1, sizeof *scores->y);
    if (!scores->x || !scores->y)
        return DDP_ERR_MEMORY;
    while (wanted < run->metric_count && strcmp(run->metrics[wanted].name, metric) != 0)
        wanted++;
    for (size_t i = 0; i < run->score_count; i++)
        if (run->scores[i].metric == wanted) {
            scores->x[scores->count] = place_of(chart, steps, run, run->scores[i].step);
            scores->y[scores->count++] = run->scores[i].value;
        }
    return DDP_OK;
}

static enum ddp_status make_curve(struct chart *chart, size_t i, enum panel panel,
                                  const char *metric)
{
    const struct log_run *run = &chart->curves->runs[i];
    struct series *kinds = chart->all[i].kinds;
    const enum panel steps = panel == PANELS ? PANEL_LOSS : panel;
    enum ddp_status status = series_make(&kinds[VALUES], run, steps, chart->curves->axis);
    if (status == DDP_OK)
        status = series_make(&kinds[MEANS], run, steps, chart->curves->axis);
    if (status == DDP_OK && metric)
        status = make_scores(chart, &kinds[SCORES], run, metric, &kinds[VALUES]);
    for (size_t k = 0; status == DDP_OK && panel == PANELS && k < run->step_count; k++)
        kinds[VALUES].y[k] = NAN; /* of the steps only the axis is needed */
    if (status == DDP_OK &&
        (panel == PANELS || panel == PANEL_RATE || !series_smooth(&kinds[MEANS])))
        kinds[MEANS].count = 0;
    for (int kind = 0; status == DDP_OK && kind < KINDS; kind++) {
        thin(&kinds[kind]);
        scale(chart, &kinds[kind]);
    }
    return status;
}

/* --- paths ------------------------------------------------------------------------------------ */

/* Rounding may have left numbers outside of their range, or without any. */
static int place(double share, int size)
{
    return (int)round(size * fmin(fmax(share, 0), 1));
}

static int place_x(const struct chart *chart, double x)
{
    const double range = chart->x.high - chart->x.low;
    return place(range > 0 ? (x - chart->x.low) / range : 0.5, WIDTH);
}

static int place_y(const struct chart *chart, double y)
{
    const double low = chart->y_ticks.low, high = chart->y_ticks.high;
    return place(chart->y.log_scale ? log(high / y) / log(high / low) : (high - y) / (high - low),
                 HEIGHT);
}

static void begin_path(const struct chart *chart, const char *kind, size_t i)
{
    fprintf(chart->out, "<path class=\"%s r%zu c%zu d%zu\" d=\"", kind, i, i % PLOT_COLOURS,
            i % DASHES);
}

static void end_path(const struct chart *chart, size_t i)
{
    fputs("\"><title>", chart->out);
    html_print(chart->out, chart->curves->runs[i].name);
    fputs("</title></path>\n", chart->out);
}

/* For the script, as attributes of a path that has begun. */
static void print_values(const struct chart *chart, size_t i, const struct series *series)
{
    const char *separator = "\" data-values=\"";
    for (size_t k = 0; k < series->count; k++)
        if (!isnan(series->y[k])) {
            fprintf(chart->out, "%s%.9g %.6g", separator, series->x[k], series->y[k]);
            separator = " ";
        }
    fprintf(chart->out, "\" data-run=\"%zu", i);
}

static void print_path(const struct chart *chart, enum kind kind, size_t i)
{
    const struct curve *curve = &chart->all[i];
    const struct series *series = &curve->kinds[kind];
    const char *classes[KINDS] = {curve->kinds[MEANS].count > 0 ? "values pale" : "values", "means",
                                  "scores"};
    bool gap = true;
    if (!series_has_values(series))
        return;
    begin_path(chart, classes[kind], i);
    for (size_t k = 0; k < series->count; k++) {
        const bool ends = k + 1 == series->count || isnan(series->y[k + 1]);
        if (!isnan(series->y[k])) /* alone it is a dot */
            fprintf(chart->out, "%c%d %d%s", gap ? 'M' : 'L', place_x(chart, series->x[k]),
                    place_y(chart, series->y[k]), gap && ends ? DOT : "");
        gap = isnan(series->y[k]);
    }
    if (kind != MEANS)
        print_values(chart, i, series);
    end_path(chart, i);
    if (kind == SCORES) { /* again, as dots */
        begin_path(chart, "dots", i);
        for (size_t k = 0; k < series->count; k++)
            if (!isnan(series->y[k]))
                fprintf(chart->out, "M%d %d" DOT, place_x(chart, series->x[k]),
                        place_y(chart, series->y[k]));
        end_path(chart, i);
    }
}

/* Checkpoints as short strokes on the axis, restarts as broken lines from bottom to top. */
static void print_marks(const struct chart *chart, const char *kind, int top, size_t i,
                        const struct log_mark *marks, size_t count)
{
    const struct log_run *run = &chart->curves->runs[i];
    struct series steps;
    if (count == 0 || run->step_count == 0)
        return;
    if (series_make(&steps, run, PANEL_LOSS, chart->curves->axis) == DDP_OK) {
        begin_path(chart, kind, i);
        for (size_t k = 0; k < count; k += count / MARKS + 1) {
            const double x = chart->factor * place_of(chart, &steps, run, marks[k].step);
            if (x >= chart->x.low && x <= chart->x.high)
                fprintf(chart->out, "M%d %dV%d", place_x(chart, x), HEIGHT, top);
        }
        end_path(chart, i);
    }
    series_free(&steps);
}

/* --- all -------------------------------------------------------------------------------------- */

static void print_ticks(const struct chart *chart)
{
    char label[AXIS_LABEL];
    for (size_t k = 0; k < chart->y_ticks.count; k++) {
        axis_label(label, chart->y_ticks.at[k], chart->y.units);
        fprintf(chart->out, "<i class=\"y\" style=\"top:%.3f%%\"><b>%s</b></i>",
                100.0 * place_y(chart, chart->y_ticks.at[k]) / HEIGHT, label);
    }
    for (size_t k = 0; k < chart->x_ticks.count; k++) {
        const double x = chart->x_ticks.at[k];
        axis_label(label, x, true);
        if (x >= chart->x.low && x <= chart->x.high)
            fprintf(chart->out, "<i class=\"x\" style=\"left:%.3f%%\"><b>%s</b></i>",
                    100.0 * place_x(chart, x) / WIDTH, label);
    }
}

static void print_chart(const struct chart *chart, const char *title)
{
    const struct curves *curves = chart->curves;
    const char *x_label = curves_scale(curves).label;
    fputs("<figure><figcaption>", chart->out);
    html_print(chart->out, title);
    fprintf(chart->out, "</figcaption>\n<div class=\"plot\" data-axis=\"%.9g %.9g %s\">",
            chart->x.low, chart->x.high, x_label);
    print_ticks(chart);
    fprintf(chart->out,
            "\n<svg role=\"img\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
            "aria-label=\"",
            WIDTH, HEIGHT);
    html_print(chart->out, title);
    fputs("\">\n", chart->out);
    for (size_t i = 0; i < curves->count; i++) {
        const struct log_run *run = &curves->runs[i];
        print_marks(chart, "checkpoints", HEIGHT * 19 / 20, i, run->checkpoints,
                    run->checkpoint_count);
        print_marks(chart, "restarts", 0, i, run->restarts, run->restart_count);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < curves->count; i++)
            print_path(chart, (enum kind)kind, i);
    fprintf(chart->out, "</svg></div><p class=\"axis\">%s</p></figure>\n", x_label);
}

/* "test bits per byte" */
static void print_metric_chart(const struct chart *chart, const char *metric)
{
    char title[LOG_NAME + 16];
    snprintf(title, sizeof title, "test %s%s", metric, chart->y_factor == 1 ? "" : " (%)");
    for (char *at = title; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    print_chart(chart, title);
}

enum ddp_status chart_print(FILE *out, const struct curves *curves, enum panel panel,
                            const char *metric)
{
    const bool share = metric && strcmp(metric, "accuracy") == 0;
    const bool speed = panel == PANEL_SPEED;
    struct chart chart = {
        .out = out,
        .curves = curves,
        .all = ddp_array_alloc(curves->count, sizeof *chart.all),
        .x = {.low = INFINITY, .high = -INFINITY, .ticks = 6},
        .y = {.low = speed ? 0 : INFINITY,
              .high = -INFINITY,
              .log_scale = curves->log_scale && panel == PANEL_LOSS,
              .units = speed,
              .ticks = 6},
        .factor = curves_scale(curves).factor,
        .y_factor = share ? 100 : 1, /* percent */
    };
    enum ddp_status status = chart.all ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < curves->count; i++)
        status = make_curve(&chart, i, panel, metric);
    if (status == DDP_OK && chart.y.low <= chart.y.high) {
        chart.y.log_scale = chart.y.log_scale && chart.y.high >= 2 * chart.y.low;
        axis_ticks(&chart.x_ticks, &chart.x);
        axis_ticks(&chart.y_ticks, &chart.y);
        if (panel == PANELS)
            print_metric_chart(&chart, metric);
        else
            print_chart(&chart, curves_label(curves, panel));
    }
    for (size_t i = 0; chart.all && i < curves->count; i++)
        for (int kind = 0; kind < KINDS; kind++)
            series_free(&chart.all[i].kinds[kind]);
    free(chart.all);
    return status;
}

void chart_print_legend(FILE *out, const struct curves *curves)
{
    fputs("<style>\n", out);
    for (size_t i = 0; i < curves->count; i++)
        fprintf(out, "body:has(#run%zu:not(:checked)) .r%zu{display:none}\n", i, i);
    fputs("</style>\n<div class=\"legend\">\n", out);
    for (size_t i = 0; i < curves->count; i++) {
        fprintf(out,
                "<label><input type=\"checkbox\" id=\"run%zu\" checked=\"checked\"/>"
                "<svg viewBox=\"0 0 30 10\"><path class=\"means c%zu d%zu\" d=\"M0 5H30\"/></svg>"
                "<span>",
                i, i % PLOT_COLOURS, i % DASHES);
        html_print(out, curves->runs[i].name);
        fputs("</span></label>\n", out);
    }
    fputs("</div>\n", out);
}

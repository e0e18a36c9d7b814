/* SPDX-License-Identifier: MIT
 *
 * See pictures.h. */
#include "config.h"

#include "reporter/pictures.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>

#define MARKS  200 /* of a kind and run, at most */
#define NAMES  12  /* of curves in a key, at most */
#define DASHES 5   /* kinds of broken lines that gnuplot has */

const char *const curves_titles[PANELS] = {"Loss", "Learning rate", "Throughput",
                                           "Norm of the gradient", "Noise scale of the gradient"};
static const char *const names[PANELS] = {"loss", "rate", "speed", "norm", "noise"};

/* --- axes ------------------------------------------------------------------------------------- */

struct scale curves_scale(const struct curves *curves)
{
    double end = 0;
    for (size_t i = 0; i < curves->count; i++)
        end = fmax(end, series_end(&curves->runs[i], curves->axis));
    if (curves->axis == X_STEP)
        return (struct scale){1, "step"};
    if (curves->axis == X_TIME)
        return end > 2 * 3600 ? (struct scale){1.0 / 3600, "time (h)"}
               : end > 300    ? (struct scale){1.0 / 60, "time (min)"}
                              : (struct scale){1, "time (s)"};
    const bool tokens = curves->count > 0 && curves->runs[0].tokens;
    return end > 2e6   ? (struct scale){1e-6, tokens ? "million tokens" : "million samples"}
           : end > 2e3 ? (struct scale){1e-3, tokens ? "thousand tokens" : "thousand samples"}
                       : (struct scale){1, tokens ? "tokens" : "samples"};
}

/* What is evaluated without an accuracy has numbers as targets, and no loss in nats. */
const char *curves_label(const struct curves *curves, enum panel panel)
{
    const bool tokens = curves->count > 0 && curves->runs[0].tokens;
    const char *const labels[PANELS] = {"loss (nats)", "learning rate",
                                        tokens ? "tokens/s" : "samples/s", "gradient norm",
                                        "noise scale (samples)"};
    for (size_t i = 0; panel == PANEL_LOSS && i < curves->count; i++)
        if (curves->runs[i].evaluation_count > 0 && isnan(curves->runs[i].evaluations[0].accuracy))
            return "loss";
    return labels[panel];
}

/* --- data ------------------------------------------------------------------------------------- */

/* A value that a logarithmic axis does not have is not drawn. */
static bool is_drawn(const struct plot_axis *axis, double y)
{
    return !isnan(y) && !(axis->log_scale && y < CURVES_LEAST);
}

static void write_point(struct plot *plot, double x, double y, struct plot_axis *axis)
{
    fprintf(plot->script, "%.9g %.9g\n", x, y);
    axis->low = fmin(axis->low, y);
    axis->high = fmax(axis->high, y);
}

/* "$raw0 << EOD" and the points. */
static void write_series(struct plot *plot, const char *name, size_t i, const struct series *series,
                         double factor, struct plot_axis *axis)
{
    size_t shown[SERIES_POINTS];
    const size_t count = series_thin(series, shown);
    fprintf(plot->script, "$%s%zu << EOD\n", name, i);
    for (size_t k = 0; k < count; k++)
        if (isnan(series->y[shown[k]]))
            fputc('\n', plot->script); /* a gap */
        else
            write_point(plot, series->x[shown[k]] * factor, series->y[shown[k]], axis);
    fputs("EOD\n", plot->script);
}

/* What a panel has of a run. */
struct drawn {
    bool values, smooth, evaluations;
};

static void write_evaluations(struct plot *plot, const struct log_run *run, size_t i,
                              const struct series *series, double factor, struct plot_axis *axis)
{
    const size_t every = run->evaluation_count / SERIES_POINTS + 1;
    fprintf(plot->script, "$test%zu << EOD\n", i);
    for (size_t k = 0; k < run->evaluation_count; k += every)
        if (is_drawn(axis, run->evaluations[k].loss))
            write_point(plot, factor * series_place(series, run, run->evaluations[k].step),
                        run->evaluations[k].loss, axis);
    fputs("EOD\n", plot->script);
}

/* A line from the bottom up to a share of the height. */
static void write_mark(struct plot *plot, size_t i, double x, const char *top, const char *style)
{
    fprintf(plot->script, "set arrow from first %.9g, graph 0 to first %.9g, graph %s nohead %s", x,
            x, top, style);
    plot_colour(plot, i, false);
    fputc('\n', plot->script);
}

/* Checkpoints as short strokes on the axis, restarts as broken lines from bottom to top. */
static void write_marks(struct plot *plot, const struct log_run *run, size_t i,
                        const struct series *series, double factor)
{
    const size_t checkpoints = run->checkpoint_count / MARKS + 1;
    const size_t restarts = run->restart_count / MARKS + 1;
    for (size_t k = 0; k < run->checkpoint_count && plot->kind != PLOT_TEXT; k += checkpoints)
        write_mark(plot, i, factor * series_place(series, run, run->checkpoints[k].step), "0.05",
                   "lw 2");
    for (size_t k = 0; k < run->restart_count; k += restarts)
        write_mark(plot, i, factor * series_place(series, run, run->restarts[k].step), "1",
                   plot->kind == PLOT_TEXT ? "" : "dt 2");
}

static enum ddp_status write_run(struct plot *plot, const struct curves *curves, enum panel panel,
                                 size_t i, double factor, struct drawn *drawn,
                                 struct plot_axis *axis)
{
    const struct log_run *run = &curves->runs[i];
    struct series series;
    enum ddp_status status = series_make(&series, run, panel, curves->axis);
    for (size_t k = 0; status == DDP_OK && k < series.count; k++)
        if (!is_drawn(axis, series.y[k]))
            series.y[k] = NAN;
    drawn->values = status == DDP_OK && series_has_values(&series);
    drawn->evaluations = drawn->values && panel == PANEL_LOSS && run->evaluation_count > 0;
    const struct plot_axis before = *axis;
    if (drawn->values) {
        write_series(plot, "raw", i, &series, factor, axis);
        write_marks(plot, run, i, &series, factor);
    }
    drawn->smooth = drawn->values && panel != PANEL_RATE && series_smooth(&series);
    if (drawn->smooth && plot->kind == PLOT_TEXT) /* which shows no raw values then */
        *axis = before;
    if (drawn->smooth)
        write_series(plot, "smooth", i, &series, factor, axis);
    if (drawn->evaluations)
        write_evaluations(plot, run, i, &series, factor, axis);
    series_free(&series);
    return status;
}

/* --- one panel -------------------------------------------------------------------------------- */

/* What the marks mean. */
static void write_mark_keys(struct plot *plot, const struct curves *curves)
{
    size_t evaluations = 0, checkpoints = 0, restarts = 0;
    for (size_t i = 0; i < curves->count; i++) {
        evaluations += curves->runs[i].evaluation_count;
        checkpoints += curves->runs[i].checkpoint_count;
        restarts += curves->runs[i].restart_count;
    }
    if (evaluations > 0)
        fputs(", NaN with points ls 101 pt 7 ps 0.6 title 'evaluation'", plot->script);
    if (checkpoints > 0)
        fputs(", NaN with points ls 101 pt 2 ps 0.01 title '| checkpoint'", plot->script);
    if (restarts > 0)
        fputs(", NaN with lines ls 101 dt 2 title 'restart'", plot->script);
}

static void write_curves(struct plot *plot, const struct curves *curves, enum panel panel,
                         const struct drawn *drawn)
{
    const bool text = plot->kind == PLOT_TEXT;
    const char *separator = "plot ";
    char title[160];
    for (size_t pass = 0; pass < 3; pass++) /* raw below smooth below evaluations */
        for (size_t i = 0; i < curves->count; i++) {
            const bool wanted = pass == 0   ? drawn[i].values && !(text && drawn[i].smooth)
                                : pass == 1 ? drawn[i].smooth
                                            : drawn[i].evaluations;
            if (!wanted)
                continue;
            const bool pale = pass == 0 && drawn[i].smooth;
            snprintf(title, sizeof title, "%s%s", curves->runs[i].name, pass == 2 ? ", test" : "");
            fprintf(plot->script, "%s$%s%zu using 1:2 with %s", separator,
                    pass == 0   ? "raw"
                    : pass == 1 ? "smooth"
                                : "test",
                    i, pass == 2 ? (text ? "points" : "points pt 7 ps 0.6") : "lines");
            if (!text && pass < 2) /* broken lines let equal curves of other runs be seen */
                fprintf(plot->script, pale ? " lw 1" : " lw 2 dt %zu", i % DASHES + 1);
            plot_colour(plot, i, pale);
            fputs(" title ", plot->script);
            plot_string(plot, pale || i >= NAMES || (pass == 2 && !text) ? "" : title);
            separator = ", ";
        }
    if (curves->count > NAMES)
        fprintf(plot->script, ", NaN with points ps 0 title 'and %zu more'", curves->count - NAMES);
    if (!text && panel == PANEL_LOSS && separator[0] == ',')
        write_mark_keys(plot, curves);
    fputc('\n', plot->script);
}

/* values [out]: does any run have some? */
static enum ddp_status write_panel(struct plot *plot, const struct curves *curves, enum panel panel,
                                   bool *values)
{
    const struct scale scale = curves_scale(curves);
    const bool speed = panel == PANEL_SPEED;
    /* The key of several runs takes lines of the terminal. */
    struct plot_axis axis = {.low = speed ? 0 : INFINITY,
                             .high = -INFINITY,
                             .log_scale = curves->log_scale && panel == PANEL_LOSS,
                             .units = speed,
                             .ticks = plot->kind == PLOT_TEXT ? (curves->count > 2 ? 4 : 6) : 8};
    struct drawn *drawn = ddp_array_alloc(curves->count, sizeof *drawn);
    enum ddp_status status = drawn ? DDP_OK : DDP_ERR_MEMORY;
    *values = false;
    fputs("unset arrow\n", plot->script);
    for (size_t i = 0; status == DDP_OK && i < curves->count; i++) {
        status = write_run(plot, curves, panel, i, scale.factor, &drawn[i], &axis);
        *values = *values || drawn[i].values;
    }
    fputs("set xlabel ", plot->script);
    plot_string(plot, scale.label);
    fputs("\nset ylabel ", plot->script);
    plot_string(plot, curves_label(curves, panel));
    if (plot->kind == PLOT_TEXT) {
        fputs("\nset key top center outside horizontal width 2\nset title ", plot->script);
        plot_string(plot, curves_label(curves, panel));
        fputs("\nunset ylabel", plot->script);
    }
    fputc('\n', plot->script);
    plot_axis(plot, &axis);
    if (status == DDP_OK && *values)
        write_curves(plot, curves, panel, drawn);
    free(drawn);
    return status;
}

enum ddp_status curves_draw(const struct curves *curves, enum panel panel, enum plot_kind kind,
                            int width, int height, char **picture)
{
    struct plot plot;
    bool values = false;
    *picture = NULL;
    enum ddp_status status = plot_begin(&plot, kind, names[panel], width, height);
    if (status == DDP_OK)
        status = write_panel(&plot, curves, panel, &values);
    if (status == DDP_OK && values)
        return plot_end(&plot, picture, NULL);
    plot_drop(&plot);
    return status;
}

static bool has_noise(const struct curves *curves)
{
    for (size_t i = 0; i < curves->count; i++)
        for (size_t k = 0; k < curves->runs[i].step_count; k++)
            if (!isnan(curves->runs[i].steps[k].noise))
                return true;
    return false;
}

enum ddp_status curves_draw_all(const struct curves *curves, enum plot_kind kind, int width,
                                int height, char **picture, size_t *bytes)
{
    struct plot plot;
    bool values;
    *picture = NULL;
    enum ddp_status status = plot_begin(&plot, kind, "runs", width, height);
    if (status != DDP_OK)
        return status;
    const int columns = has_noise(curves) ? 3 : 2;
    fprintf(plot.script, "set multiplot layout 2,%d columnsfirst\n", columns);
    for (int panel = 0; status == DDP_OK && panel < PANELS && panel < 2 * columns; panel++) {
        fprintf(plot.script, "set title '%s'\n", curves_titles[panel]);
        status = write_panel(&plot, curves, (enum panel)panel, &values);
        if (!values)
            fputs("set multiplot next\n", plot.script);
    }
    fputs("unset multiplot\n", plot.script);
    if (status == DDP_OK)
        return plot_end(&plot, picture, bytes);
    plot_drop(&plot);
    return status;
}

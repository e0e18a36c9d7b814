/* SPDX-License-Identifier: MIT
 *
 * Pictures of runs, with evaluations, checkpoints and restarts as marks: by gnuplot a panel for the
 * loss, the learning rate, the speed and the norm of the gradient each, and charts of a page. */
#ifndef DDP_REPORTER_PICTURES_H
#define DDP_REPORTER_PICTURES_H

#include "reporter/gnuplot.h"
#include "reporter/series.h"

#define CURVES_LEAST 1e-300 /* on a logarithmic axis */

struct curves {
    const struct log_run *runs;
    size_t count;
    enum x_axis axis;
    bool log_scale; /* of the loss */
};

/* A picture of one panel, as plot_end() returns it. Without values of it *picture is NULL. */
enum ddp_status curves_draw(const struct curves *curves, enum panel panel, enum plot_kind kind,
                            int width, int height, char **picture);

/* All panels in one picture. */
enum ddp_status curves_draw_all(const struct curves *curves, enum plot_kind kind, int width,
                                int height, char **picture, size_t *bytes);

/* What the panel shows: "Loss". */
extern const char *const curves_titles[PANELS];

/* What its axis of values is called. */
const char *curves_label(const struct curves *curves, enum panel panel);

/* The horizontal axis. */
struct scale {
    double factor; /* of values on the axis */
    const char *label;
};

struct scale curves_scale(const struct curves *curves);

/* A chart as HTML, whose values page.c's script shows. Without values nothing is written.
 *   panel   PANELS: none, only the metric
 *   metric  an evaluated one; NULL: none
 * DDP_ERR_MEMORY. */
enum ddp_status chart_print(FILE *out, const struct curves *curves, enum panel panel,
                            const char *metric);

/* What switches the runs of all charts of a page on and off, and says which curve is whose. */
void chart_print_legend(FILE *out, const struct curves *curves);

#endif

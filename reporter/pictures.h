/* SPDX-License-Identifier: MIT
 *
 * Pictures of runs: a panel for the loss, the learning rate, the speed and the norm of the gradient
 * each, with evaluations, checkpoints and restarts as marks. */
#ifndef DDP_REPORTER_PICTURES_H
#define DDP_REPORTER_PICTURES_H

#include "reporter/gnuplot.h"
#include "reporter/series.h"

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

#endif

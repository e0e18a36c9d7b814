/* SPDX-License-Identifier: MIT
 *
 * Curves of a run: values over steps, tokens or time, smoothed, and thinned to what a picture can
 * show. */
#ifndef DDP_REPORTER_SERIES_H
#define DDP_REPORTER_SERIES_H

#include "reporter/run_log.h"
#include "reporter/settings.h"

enum panel { PANEL_LOSS, PANEL_RATE, PANEL_SPEED, PANEL_NORM, PANELS };

#define SERIES_POINTS 2000 /* of a curve in a picture, at most */

struct series {
    double *x, *y; /* y may be NaN: a gap */
    size_t count;
};

/* Freed with series_free(), also after a failure. DDP_ERR_MEMORY. */
enum ddp_status series_make(struct series *series, const struct log_run *run, enum panel panel,
                            enum x_axis axis);
void series_free(struct series *series);

/* A running mean over about a fiftieth of the values; false: there are too few, nothing is done. */
bool series_smooth(struct series *series);

/* Leaves at most SERIES_POINTS: of neighbours the smallest and the largest, in their order. */
void series_thin(struct series *series);

/* Where a step of the run lies on the axis of its series, which is whole; NaN without steps. */
double series_place(const struct series *series, const struct log_run *run, int64_t step);

/* The last place on the axis. */
double series_end(const struct log_run *run, enum x_axis axis);

bool series_has_values(const struct series *series);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Curves of a run: values over steps, tokens or time, smoothed, and thinned to what a picture can
 * show. */
#ifndef DDP_REPORTER_SERIES_H
#define DDP_REPORTER_SERIES_H

#include "reporter/run_log.h"
#include "reporter/settings.h"

enum panel { PANEL_LOSS, PANEL_RATE, PANEL_SPEED, PANEL_NORM, PANEL_NOISE, PANELS };

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

/* Which values a picture shows: of neighbours the smallest and the largest, in their order.
 *   shown [out]  their indices; returns how many */
size_t series_thin(const struct series *series, size_t shown[SERIES_POINTS]);

/* Where a step of the run lies on the axis of its series, which is whole; NaN without steps. */
double series_place(const struct series *series, const struct log_run *run, int64_t step);

/* The last place on the axis. */
double series_end(const struct log_run *run, enum x_axis axis);

bool series_has_values(const struct series *series);

/* Seconds of a step: the median and the quartiles around it, without the first step, which warms
 * up. NaN where nothing was logged. DDP_ERR_MEMORY. */
struct step_times {
    double median, low, high;
};
enum ddp_status step_times_of(struct step_times *times, const struct log_step *steps, size_t count);

/* The same where each step whose number is a multiple of `every` ends with a synchronisation: the
 * median is the mean over a round of `every` steps, of the medians of both kinds. Sorts the steps
 * by kind. */
enum ddp_status step_times_of_rounds(struct step_times *times, struct log_step *steps, size_t count,
                                     int64_t every);

#endif

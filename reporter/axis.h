/* SPDX-License-Identifier: MIT
 *
 * An axis of values: its range and its ticks, at 1, 2 or 5 times powers of ten. */
#ifndef DDP_REPORTER_AXIS_H
#define DDP_REPORTER_AXIS_H

#include "ddp.h"

#define AXIS_TICKS 48
#define AXIS_LABEL 32

struct plot_axis {
    double low, high; /* of the values; low > high: there are none */
    bool log_scale;   /* low > 0 */
    bool units;       /* 1.5M instead of 1500000 */
    int ticks;        /* about so many */
};

struct axis_ticks {
    double low, high;      /* of the axis, low < high: ticks lie on both, or there are none */
    double at[AXIS_TICKS]; /* rising */
    size_t count;
};

/* The axis has values. */
void axis_ticks(struct axis_ticks *ticks, const struct plot_axis *axis);

/* The text of a tick. */
void axis_label(char label[AXIS_LABEL], double value, bool units);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Pictures of a comparison: stacked bars, one for each way to train. */
#ifndef DDP_REPORTER_BARS_H
#define DDP_REPORTER_BARS_H

#include "reporter/gnuplot.h"

#define BARS_PARTS 4

struct bars {
    const char *name;  /* of the picture: letters */
    const char *label; /* of the axis, with its unit */
    size_t count, part_count;
    const char *titles[BARS_PARTS];
    /* Both are called with the index of a bar. */
    const char *(*title)(const void *arg, size_t bar);
    double (*value)(const void *arg, size_t bar, size_t part);
    const void *arg;
};

/* As plot_end() returns it. */
enum ddp_status bars_draw(const struct bars *bars, char **picture, size_t *bytes);

#endif

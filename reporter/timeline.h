/* SPDX-License-Identifier: MIT
 *
 * The time line of one step: what each thread of each worker did. */
#ifndef DDP_REPORTER_TIMELINE_H
#define DDP_REPORTER_TIMELINE_H

#include "reporter/gnuplot.h"
#include "reporter/trace_file.h"

/* The step of a trace that took the median time. As plot_end() returns it. */
enum ddp_status timeline_draw(const struct trace *trace, enum plot_kind kind, char **picture,
                              size_t *bytes);

extern const char timeline_notes[];

#endif

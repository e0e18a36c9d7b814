/* SPDX-License-Identifier: MIT
 *
 * Pictures by gnuplot, which runs as a program: a script goes in, a picture comes out. */
#ifndef DDP_REPORTER_GNUPLOT_H
#define DDP_REPORTER_GNUPLOT_H

#include "reporter/axis.h"

/* What a picture is drawn for. */
enum plot_kind { PLOT_SVG, PLOT_PNG, PLOT_TEXT };

/* A script that is being written. */
struct plot {
    FILE *script; /* NULL: no memory */
    char *text;
    size_t bytes;
    enum plot_kind kind;
};

#define PLOT_COLOURS 6

/* Begins a script: terminal, colours, grid.
 *   name           of the picture: letters, for the ids in SVG
 *   width, height  in pixels, or columns and lines
 * DDP_ERR_MEMORY. */
enum ddp_status plot_begin(struct plot *plot, enum plot_kind kind, const char *name, int width,
                           int height);

/* A text from outside as a string of the script. */
void plot_string(struct plot *plot, const char *text);

/* " lc rgb ..." of curve i: a strong line, or a pale one. Empty for text. */
void plot_colour(struct plot *plot, size_t i, bool pale);

/* The range of an axis of values and its ticks, each with its exact value. */
void plot_axis(struct plot *plot, const struct plot_axis *axis);

/* Runs gnuplot.
 *   picture [out]  with a 0 behind it, freed with free()
 *   bytes   [out]  of it; or NULL
 * Frees the script in any case. DDP_ERR_UNSUPPORTED: gnuplot is not installed, which is logged with
 * what to install; DDP_ERR_SYSTEM: gnuplot failed; DDP_ERR_MEMORY; DDP_ERR_PREEMPTED. */
enum ddp_status plot_end(struct plot *plot, char **picture, size_t *bytes);

/* Frees the script only. */
void plot_drop(struct plot *plot);

/* The rules of CSS by which pictures are dark where the reader's screen is. */
void plot_print_css(FILE *out);

/* The same colours for a page: rules that define --text, --grid, --page and --c0 and so on. */
void plot_print_colours(FILE *out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * See bars.h. */
#include "config.h"

#include "reporter/bars.h"

#include <stdlib.h>

enum ddp_status bars_draw(const struct bars *bars, char **picture, size_t *bytes)
{
    static const size_t colours[BARS_PARTS] = {0, 1, 4, 5};
    struct plot plot;
    *picture = NULL;
    enum ddp_status status =
        plot_begin(&plot, PLOT_SVG, bars->name, 1000, 110 + 34 * (int)bars->count);
    if (status != DDP_OK)
        return status;
    /* Lying: corners of boxes, for names stand beside their bars then. */
    for (size_t part = 0; part < bars->part_count; part++) {
        fprintf(plot.script, "$part%zu << EOD\n", part);
        for (size_t bar = 0; bar < bars->count; bar++) {
            double begin = 0;
            for (size_t below = 0; below < part; below++)
                begin += bars->value(bars->arg, bar, below);
            const double end = begin + bars->value(bars->arg, bar, part);
            fprintf(plot.script, "%.6g %zu %.6g %.6g %.2f %.2f\n", begin, bar, begin, end,
                    (double)bar - 0.32, (double)bar + 0.32);
        }
        fputs("EOD\n", plot.script);
    }
    fprintf(plot.script,
            "set xrange [0:*]\nset yrange [%.1f:-0.6] noreverse\nunset grid\n"
            "set grid xtics ls 102 dt solid\nset style fill solid 1 noborder\nset xlabel ",
            (double)bars->count - 0.4);
    plot_string(&plot, bars->label);
    fputs("\nset ytics (", plot.script);
    for (size_t bar = 0; bar < bars->count; bar++) {
        fputs(bar ? ", " : "", plot.script);
        plot_string(&plot, bars->title(bars->arg, bar));
        fprintf(plot.script, " %zu", bar);
    }
    fputs(")\n", plot.script);
    for (size_t part = 0; part < bars->part_count; part++) {
        fprintf(plot.script, "%s$part%zu using 1:2:3:4:5:6 with boxxyerror", part ? ", " : "plot ",
                part);
        plot_colour(&plot, colours[part], false);
        fputs(" title ", plot.script);
        plot_string(&plot, bars->titles[part]);
    }
    fputc('\n', plot.script);
    return plot_end(&plot, picture, bytes);
}

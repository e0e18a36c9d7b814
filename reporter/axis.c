/* SPDX-License-Identifier: MIT
 *
 * The ticks of an axis of values; see axis.h. gnuplot's own are rounded by their format, and lie on
 * each other in a terminal. */
#include "config.h"

#include "reporter/axis.h"

#include "reporter/gnuplot.h"

#include <math.h>

/* 8 digits: what rounding has left behind them is not shown. */
void axis_label(char label[AXIS_LABEL], double value, bool units)
{
    static const struct {
        double one;
        const char *letter;
    } parts[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    size_t i = 0;
    while (i < 3 && (!units || fabs(value) < 0.9999999 * parts[i].one))
        i++;
    snprintf(label, AXIS_LABEL, "%.8g%s", i < 3 ? value / parts[i].one : value,
             i < 3 ? parts[i].letter : "");
}

/* 1, 2 or 5 times a power of ten, at least this large. */
static double round_up(double least)
{
    const double power = pow(10, floor(log10(least)));
    const double share = least / power;
    return power * (share <= 1.0000001 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static void add_tick(struct axis_ticks *ticks, double value)
{
    if (ticks->count < AXIS_TICKS)
        ticks->at[ticks->count++] = value;
}

static void make_linear(struct axis_ticks *ticks, const struct plot_axis *axis)
{
    double low = axis->low, high = axis->high;
    if (!(high - low > 1e-6 * fmax(fabs(low), fabs(high)))) { /* a constant */
        const double room = low != 0 ? fabs(low) / 10 : 1;
        low -= room;
        high += room;
    }
    const double step = round_up((high - low) / axis->ticks);
    const double begin = floor(low / step + 1e-9), end = ceil(high / step - 1e-9);
    ticks->low = low;
    ticks->high = high;
    if (!(end - begin <= 4 * axis->ticks)) /* too small or large for doubles */
        return;
    ticks->low = begin * step;
    ticks->high = end * step;
    for (int i = 0; i <= (int)(end - begin); i++)
        add_tick(ticks, (begin + i) * step);
}

/* Mark i: 1, 2 and 5 times each power of ten. */
static double mark_at(int i)
{
    static const double digits[] = {1, 2, 5};
    const int power = (int)floor(i / 3.0);
    return digits[i - 3 * power] * pow(10, power);
}

static void make_logarithmic(struct axis_ticks *ticks, const struct plot_axis *axis)
{
    const double slack = 1 + 1e-9;
    int begin = 3 * (int)floor(log10(axis->low)) - 1;
    while (mark_at(begin + 1) <= axis->low * slack)
        begin++;
    int end = begin + 1, every = 1;
    while (mark_at(end) * slack < axis->high)
        end++;
    if (end - begin > axis->ticks) /* powers of ten alone */
        every = 3 * ((end - begin) / (3 * axis->ticks) + 1);
    ticks->low = mark_at(begin);
    ticks->high = mark_at(end);
    for (int i = begin; i <= end; i++)
        if (i % every == 0)
            add_tick(ticks, mark_at(i));
}

void axis_ticks(struct axis_ticks *ticks, const struct plot_axis *axis)
{
    *ticks = (struct axis_ticks){.count = 0};
    if (axis->log_scale && axis->high >= 2 * axis->low)
        make_logarithmic(ticks, axis);
    else
        make_linear(ticks, axis);
}

void plot_axis(struct plot *plot, const struct plot_axis *axis)
{
    struct axis_ticks ticks;
    char label[AXIS_LABEL];
    fprintf(plot->script, "%sset logscale y\nset yrange [*:*]\nset ytics autofreq\n",
            axis->log_scale ? "" : "un");
    if (axis->low > axis->high)
        return;
    axis_ticks(&ticks, axis);
    if (ticks.count == 0)
        return;
    fprintf(plot->script, "set yrange [%.15g:%.15g]\nset ytics (", ticks.low, ticks.high);
    for (size_t i = 0; i < ticks.count; i++) {
        axis_label(label, ticks.at[i], axis->units);
        fprintf(plot->script, "%s'%s' %.15g", i > 0 ? ", " : "", label, ticks.at[i]);
    }
    fputs(")\n", plot->script);
}

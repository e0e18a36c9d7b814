/* SPDX-License-Identifier: MIT
 *
 * See series.h. */
#include "config.h"

#include "reporter/series.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>

#define SMOOTH_LEAST 20 /* values */
#define SMOOTH_SHARE 50

/* Between two logged steps the others are taken to have been as large as the second. */
static double advance(const struct log_run *run, size_t i, enum x_axis axis, double x)
{
    const struct log_step *step = &run->steps[i];
    if (axis == X_STEP)
        return (double)step->step;
    if (axis == X_TIME)
        return step->time - run->start;
    const int64_t before = i > 0 ? run->steps[i - 1].step : 0;
    return x + (isnan(step->items) ? 0 : step->items) * (double)(step->step - before);
}

enum ddp_status series_make(struct series *series, const struct log_run *run, enum panel panel,
                            enum x_axis axis)
{
    double x = 0;
    *series = (struct series){.count = run->step_count};
    series->x = ddp_array_alloc(run->step_count + 1, sizeof *series->x);
    series->y = ddp_array_alloc(run->step_count + 1, sizeof *series->y);
    if (!series->x || !series->y)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < run->step_count; i++) {
        x = advance(run, i, axis, x);
        series->x[i] = x;
        const struct log_step *step = &run->steps[i];
        const double values[PANELS] = {step->loss, step->rate, step->speed, step->norm,
                                       step->noise};
        series->y[i] = isnan(x) ? NAN : values[panel];
    }
    return DDP_OK;
}

void series_free(struct series *series)
{
    free(series->x);
    free(series->y);
    *series = (struct series){.count = 0};
}

/* The first values weigh what they would in an endless past of such values. */
bool series_smooth(struct series *series)
{
    double sum = 0, weight = 0;
    if (series->count < SMOOTH_LEAST)
        return false;
    const double keep = 1 - 2 / (fmax((double)series->count / SMOOTH_SHARE, 4) + 1);
    for (size_t i = 0; i < series->count; i++) {
        if (isnan(series->y[i]))
            continue;
        sum = keep * sum + series->y[i];
        weight = keep * weight + 1;
        series->y[i] = sum / weight;
    }
    return true;
}

size_t series_thin(const struct series *series, size_t shown[SERIES_POINTS])
{
    const size_t buckets = SERIES_POINTS / 2, count = series->count;
    size_t kept = 0;
    if (count <= SERIES_POINTS) {
        while (kept < count) {
            shown[kept] = kept;
            kept++;
        }
        return kept;
    }
    for (size_t b = 0; b < buckets; b++) {
        const size_t begin = b * count / buckets, end = (b + 1) * count / buckets;
        size_t low = begin, high = begin;
        for (size_t i = begin; i < end; i++) {
            if (!(series->y[i] >= series->y[low]))
                low = i;
            if (!(series->y[i] <= series->y[high]))
                high = i;
        }
        shown[kept++] = low < high ? low : high;
        if (low != high)
            shown[kept++] = low < high ? high : low;
    }
    return kept;
}

double series_place(const struct series *series, const struct log_run *run, int64_t step)
{
    size_t low = 0, high = run->step_count;
    if (high == 0)
        return NAN;
    while (low + 1 < high) { /* the first at or behind the step */
        const size_t middle = (low + high - 1) / 2;
        if (run->steps[middle].step >= step)
            high = middle + 1;
        else
            low = middle + 1;
    }
    return series->x[low];
}

double series_end(const struct log_run *run, enum x_axis axis)
{
    double x = NAN;
    for (size_t i = 0; i < run->step_count; i++)
        x = advance(run, i, axis, i > 0 ? x : 0);
    return x;
}

bool series_has_values(const struct series *series)
{
    for (size_t i = 0; i < series->count; i++)
        if (!isnan(series->y[i]))
            return true;
    return false;
}

static int compare_numbers(const void *a, const void *b)
{
    const double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* The value below which a share of them lies, interpolated; sorts them. NaN of none. */
static double quantile(double *values, size_t count, double share)
{
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare_numbers);
    const double at = share * (double)(count - 1);
    const size_t below = (size_t)at;
    if (below + 1 >= count)
        return values[count - 1];
    return values[below] + (at - (double)below) * (values[below + 1] - values[below]);
}

enum ddp_status step_times_of(struct step_times *times, const struct log_step *steps, size_t count)
{
    const size_t first = count > 1;
    double *seconds = ddp_array_alloc(count + 1, sizeof *seconds);
    size_t known = 0;
    if (!seconds)
        return DDP_ERR_MEMORY;
    for (size_t i = first; i < count; i++)
        if (!isnan(steps[i].seconds))
            seconds[known++] = steps[i].seconds;
    times->median = quantile(seconds, known, 0.5);
    times->low = quantile(seconds, known, 0.25);
    times->high = quantile(seconds, known, 0.75);
    free(seconds);
    return DDP_OK;
}

enum ddp_status step_times_of_rounds(struct step_times *times, struct log_step *steps, size_t count,
                                     int64_t every)
{
    struct step_times local, last;
    size_t locals = 0;
    enum ddp_status status = step_times_of(times, steps, count);
    if (status != DDP_OK || every == 1)
        return status;
    for (size_t i = 0; i < count; i++)
        if (steps[i].step % every != 0) {
            const struct log_step step = steps[locals];
            steps[locals++] = steps[i];
            steps[i] = step;
        }
    status = step_times_of(&local, steps, locals);
    if (status == DDP_OK)
        status = step_times_of(&last, steps + locals, count - locals);
    times->median = local.median + (last.median - local.median) / (double)every;
    return status;
}

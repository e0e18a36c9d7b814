/* SPDX-License-Identifier: MIT
 *
 * See units.h. */
#include "config.h"

#include "reporter/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *units_bytes(char text[UNITS_TEXT], double bytes)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    int unit = 0;
    if (isnan(bytes))
        return "-";
    for (; bytes >= 999.5 && unit < 6; unit++)
        bytes /= 1000;
    snprintf(text, UNITS_TEXT, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes, names[unit]);
    return text;
}

const char *units_number(char text[UNITS_TEXT], double value)
{
    const double size = fabs(value);
    if (isnan(value))
        return "-";
    if (size != 0 && size < 0.001)
        snprintf(text, UNITS_TEXT, "%.2e", value);
    else
        snprintf(text, UNITS_TEXT, "%.*f",
                 size < 0.9995  ? 4
                 : size < 9.995 ? 3
                 : size < 99.95 ? 1
                                : 0,
                 value);
    return text;
}

static int compare(const void *a, const void *b)
{
    const double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

double units_quantile(double *values, size_t count, double share)
{
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare);
    const double at = share * (double)(count - 1);
    const size_t below = (size_t)at;
    if (below + 1 >= count)
        return values[count - 1];
    return values[below] + (at - (double)below) * (values[below + 1] - values[below]);
}

/* SPDX-License-Identifier: MIT
 *
 * The median of measurements. Includes nothing of libddp: mpicc compiles it too. */
#ifndef DDP_BENCH_MEDIAN_H
#define DDP_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int median_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, median_compare);
    return values[count / 2];
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * Numbers as people read them, and order statistics. */
#ifndef DDP_REPORTER_UNITS_H
#define DDP_REPORTER_UNITS_H

#include <stddef.h>

#define UNITS_TEXT 32

/* "12.3 MB"; "-" for NaN. Returns text. */
const char *units_bytes(char text[UNITS_TEXT], double bytes);

/* Three digits and no unit: "1.23", "45.6", "789", "12300"; "-" for NaN. */
const char *units_number(char text[UNITS_TEXT], double value);

/* The value below which a share of them lies, from 0 to 1, interpolated; sorts them. NaN of none.
 */
double units_quantile(double *values, size_t count, double share);

#endif

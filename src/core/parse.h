/* SPDX-License-Identifier: MIT
 *
 * Strict readers of numbers: the whole text must be the number, and it must be in range. They log
 * nothing; the caller knows the name of the flag or variable. */
#ifndef DDP_CORE_PARSE_H
#define DDP_CORE_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal integer in [min, max]. */
bool ddp_parse_int64(const char *text, int64_t min, int64_t max, int64_t *value);

/* Decimal integer in [0, UINT64_MAX]. */
bool ddp_parse_uint64(const char *text, uint64_t *value);

/* Finite decimal number in [min, max]. Always with a decimal point, whatever the locale. */
bool ddp_parse_double(const char *text, double min, double max, double *value);

/* A size of at least one byte: a decimal number and a unit: B, k, M, G, T or P for powers of 1000,
 * with or without a B, or KiB, MiB, ... for powers of 1024. */
bool ddp_parse_bytes(const char *text, double *bytes);

#endif

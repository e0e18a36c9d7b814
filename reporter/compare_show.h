/* SPDX-License-Identifier: MIT
 *
 * What a comparison found: printed, and as a page. */
#ifndef DDP_REPORTER_COMPARE_SHOW_H
#define DDP_REPORTER_COMPARE_SHOW_H

#include "reporter/compare.h"

/* Runs the comparison and shows it.
 *   exit_code [out]  of the program that failed; else unchanged
 * DDP_ERR_MISMATCH: weights that must be equal are not. */
enum ddp_status compare_show(const struct settings *settings, int *exit_code);

#endif

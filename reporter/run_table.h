/* SPDX-License-Identifier: MIT
 *
 * Runs in one table: how far they came, with what result, and how fast. */
#ifndef DDP_REPORTER_RUN_TABLE_H
#define DDP_REPORTER_RUN_TABLE_H

#include "reporter/run_log.h"
#include "reporter/table.h"

/* table [out]  freed with table_free(). DDP_ERR_MEMORY. */
enum ddp_status run_table_make(struct table *table, const struct log_run *runs, size_t count);

/* Seconds of a step: the median and the quartiles around it, without the first step, which warms
 * up. NaN where nothing was logged. DDP_ERR_MEMORY. */
struct step_times {
    double median, low, high;
};
enum ddp_status step_times_of(struct step_times *times, const struct log_step *steps, size_t count);

#endif

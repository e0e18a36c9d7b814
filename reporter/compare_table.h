/* SPDX-License-Identifier: MIT
 *
 * What a comparison found, as two tables with the same rows: time, and memory. */
#ifndef DDP_REPORTER_COMPARE_TABLE_H
#define DDP_REPORTER_COMPARE_TABLE_H

#include "reporter/compare.h"
#include "reporter/table.h"

/* Both freed with table_free(), also after a failure. DDP_ERR_MEMORY. */
enum ddp_status compare_tables_make(struct table *time, struct table *memory,
                                    const struct comparison *comparison);

/* What was compared, in a line or two of text. */
void compare_describe(const struct comparison *comparison, FILE *out);

/* What the columns mean. */
extern const char compare_notes[];

#endif

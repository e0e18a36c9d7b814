/* SPDX-License-Identifier: MIT
 *
 * What trainer --plan printed, read as the log of a run that has done no steps. */
#ifndef DDP_REPORTER_PLAN_TEXT_H
#define DDP_REPORTER_PLAN_TEXT_H

#include "reporter/run_log.h"

bool plan_text_is(const char *text, size_t bytes);

/* As run_log_parse(): the run has the fact "plan". Figures have the digits that the plan has.
 * DDP_ERR_FORMAT: names the file and what is missing; DDP_ERR_MEMORY. */
enum ddp_status plan_text_parse(struct run_log *log, const char *name, const char *text,
                                size_t bytes);

#endif

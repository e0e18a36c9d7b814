/* SPDX-License-Identifier: MIT
 *
 * ddpreport RUN.jsonl ...: the runs of logs as a table, and as pictures in a file or the terminal.
 */
#ifndef DDP_REPORTER_RUNS_H
#define DDP_REPORTER_RUNS_H

#include "reporter/settings.h"

enum ddp_status runs_show(const struct settings *settings);

/* --follow: until the last run has ended. */
enum ddp_status runs_follow(const struct settings *settings);

#endif

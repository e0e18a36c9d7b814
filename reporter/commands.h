/* SPDX-License-Identifier: MIT
 *
 * The commands of ddpreport. */
#ifndef DDP_REPORTER_COMMANDS_H
#define DDP_REPORTER_COMMANDS_H

#include "reporter/settings.h"

/* ddpreport RUN.jsonl ...: the runs of logs as a table, and as pictures in a file or the terminal.
 */
enum ddp_status runs_show(const struct settings *settings);

/* ddpreport export: the steps of a log as CSV, to standard output. */
enum ddp_status export_show(const struct settings *settings);

/* ddpreport compare: runs the comparison and shows it.
 *   exit_code [out]  of the program that failed; else unchanged
 * DDP_ERR_MISMATCH: weights that must be equal are not. */
enum ddp_status compare_show(const struct settings *settings, int *exit_code);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The commands of ddpreport. */
#ifndef DDP_REPORTER_COMMANDS_H
#define DDP_REPORTER_COMMANDS_H

#include "reporter/run_log.h"
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

/* ddpreport scale: a forecast from logs, as tables, and as a picture in a file. DDP_ERR_INVALID: no
 * run was on one machine, or a run is of another training. */
enum ddp_status scale_show(const struct settings *settings);

/* Is the output one of the files that are read? Work of minutes may have gone into them. */
enum ddp_status runs_check_output(const struct settings *settings);

/* All files, into a zeroed log. */
enum ddp_status runs_read(struct run_log *log, const struct settings *settings);

#endif

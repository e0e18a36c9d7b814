/* SPDX-License-Identifier: MIT
 *
 * What people read when a job fails: one line a failure. */
#ifndef DDP_LAUNCHER_REPORT_H
#define DDP_LAUNCHER_REPORT_H

#include "job/board.h"

#include <sys/types.h>

/* The exit code that stands for a wait status: the code itself, or 128 + the signal. */
int report_exit_code(int wait_status);

/* "SIGSEGV" for 11, "signal 77" for one without a name. The buffer is the caller's. */
const char *report_signal_name(int signal, char *text, size_t size);

/* Says how a worker ended and what it did last. `left`: workers that are being ended because of it.
 */
void report_failure(const struct ddp_board *board, int rank, pid_t pid, int wait_status, int left);

#endif

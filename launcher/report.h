/* SPDX-License-Identifier: MIT
 *
 * The messages of a job that fails: one line for each failure. */
#ifndef DDP_LAUNCHER_REPORT_H
#define DDP_LAUNCHER_REPORT_H

#include "job/board.h"

#include <sys/types.h>

/* Lines of the functions below that say what failed go to `out` from now on, each with a newline;
 * NULL: they are logged again. */
void report_collect(FILE *out);

/* In place of the wait status of a worker that has exited with 0, but without closing the job it
 * had joined: as one of exit code 1. */
#define REPORT_LEFT 0x10100

/* The same of one that a request to stop has killed before it could take it: exit code 75. */
#define REPORT_STOPPED 0x14b00

/* "all 4 workers exited with code 1" */
void report_alike(int workers, int wait_status, char *text, size_t size);

/* The exit code for a wait status: the code itself, or 128 + the signal. */
int report_exit_code(int wait_status);

/* "SIGSEGV" for 11, "signal 77" for one without a name. The buffer is the caller's. */
const char *report_signal_name(int signal, char *text, size_t size);

/* How a worker ended. */
struct report_end {
    int rank;         /* on this machine */
    const char *node; /* "node 1 (host)"; "": there is one */
    pid_t pid;
    int wait_status;
    long peak_kib;  /* of its memory, 0: unknown */
    bool no_memory; /* the out-of-memory killer has killed processes since the start */
    int left;       /* workers that are being ended because of it */
    int alike;      /* workers that all exited so; 0: it was this one first */
};

/* Logs it, with the worker's last activity. */
void report_failure(const struct ddp_board *board, const struct report_end *end);

/* Logs each line of a text, which is changed. */
void report_lines(char *text);

/* Shows the last lines that the worker wrote to standard error; nothing for "". The text is
 * changed. */
void report_last_words(int rank, char *text);

/* Shows what the worker itself gave as the reason of its failure: the first lines of the message,
 * the last of the stack ("": none). Both are changed. */
void report_reason(int rank, char *message, char *stack);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Programs that ddpreport starts and waits for, one at a time. They end when it does. */
#ifndef DDP_REPORTER_CHILD_H
#define DDP_REPORTER_CHILD_H

#include "ddp.h"

#include <signal.h>

struct child {
    char *const *argv; /* argv[0] is searched for in PATH */
    int in, out;       /* what become its standard input and output; -1: /dev/null */
    unsigned seconds;  /* after which SIGALRM ends it; 0: never */
};

#define CHILD_MISSING (-1)            /* there is no such program */
#define CHILD_LATE    (128 + SIGALRM) /* it took longer than `seconds` */

/* Runs a program to its end.
 *   code [out]   its exit code; 128 and the signal's number if one ended it; CHILD_MISSING
 *   said [out]   the end of what it wrote to standard error, freed with free()
 * DDP_ERR_SYSTEM, DDP_ERR_MEMORY; DDP_ERR_PREEMPTED: a signal asked ddpreport to end, after
 * child_watch_signals(). */
enum ddp_status child_run(const struct child *child, int *code, char **said);

/* SIGINT, SIGTERM and SIGHUP end the program that runs, with all that it has started, and then
 * ddpreport. From this call on no other program is started then, and child_end_by_signal() ends
 * ddpreport, when nothing is left behind. */
void child_watch_signals(void);
void child_end_by_signal(void); /* does nothing when there was none */

/* The last `most` bytes of a file, with a 0 behind them, freed with free(). */
enum ddp_status child_read(int fd, size_t most, char **text, size_t *bytes);

#endif

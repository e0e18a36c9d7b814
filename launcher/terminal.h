/* SPDX-License-Identifier: MIT
 *
 * Job control. Workers live in process groups of their own, so to the terminal they are background
 * jobs. A worker that wants to read from the terminal is lent it, and what Ctrl-Z stops is the
 * whole job. */
#ifndef DDP_LAUNCHER_TERMINAL_H
#define DDP_LAUNCHER_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct terminal {
    int fd;         /* the controlling terminal, or -1 */
    pid_t borrower; /* the group that has it, or 0 */
};

void terminal_open(struct terminal *terminal);

/* Takes the terminal back from a worker, and closes it. */
void terminal_close(struct terminal *terminal);

/* Whether ddprun, or the worker that it lent the terminal to, is in the foreground. */
bool terminal_is_ours(const struct terminal *terminal);

/* Stops ddprun until it is in the foreground, as any program in the background that uses the
 * terminal. False: no shell is there that could continue it. */
bool terminal_wait(const struct terminal *terminal);

/* Gives the terminal to a worker that was stopped for using it, and continues that worker. */
void terminal_lend(struct terminal *terminal, pid_t group);

/* Stops ddprun, after the workers have been stopped; returns when the shell continues it. */
void terminal_pause(struct terminal *terminal);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What is shown on a terminal: lines that break between words, and the one bar that may stand on
 * its last line. Launcher and workers share the bar: who writes a line first removes it. */
#ifndef DDP_CORE_TERMINAL_H
#define DDP_CORE_TERMINAL_H

#include "ddp.h"

#include <stdatomic.h>
#include <stdio.h>

/* Columns of the terminal, asked each time, for windows change; 0: it is none, or does not say. */
int ddp_terminal_columns(int fd);

/* Prints as fprintf() does; on a terminal, lines too long for it are broken between words. */
void ddp_terminal_print(FILE *out, const char *format, ...) DDP_PRINTF(2, 3);

/* Where this process's bar, or that of the worker which has the terminal, is shown; -1: nowhere. */
void ddp_bar_set_terminal(int fd);

/* The word that says how many columns of a bar are shown; the processes of a job share it. And the
 * end of that: this process has its own again, unless it shares another. */
void ddp_bar_share(_Atomic uint32_t *columns);
void ddp_bar_unshare(_Atomic uint32_t *columns);

/* A bar has been drawn, and the cursor stands behind it. */
void ddp_bar_shown(int columns);

/* Removes the bar, where one is shown. Safe in a signal handler, and from all threads. Returns
 * whether there was one. */
bool ddp_bar_clear(void);

/* The next message begins a line, although the terminal has just shown the "^C" of a key. Safe
 * where ddp_bar_clear() is. */
void ddp_bar_end_line(void);

/* A signal whose action is the default one, SIGINT say, removes the bar before it ends this
 * process. Undone by ddp_bar_unguard(). */
void ddp_bar_guard(int signal);
void ddp_bar_unguard(int signal);

#endif

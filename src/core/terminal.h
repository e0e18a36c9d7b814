/* SPDX-License-Identifier: MIT
 *
 * What is shown on a terminal: lines that break between words, and the one bar that may stand on
 * its last line. Launcher and workers share the bar: whoever writes a line removes it first. */
#ifndef DDP_CORE_TERMINAL_H
#define DDP_CORE_TERMINAL_H

#include "ddp.h"

#include <stdatomic.h>
#include <stdio.h>

/* Columns of the terminal, asked each time, since windows change; 0: not a terminal, or it does not
 * say. */
int ddp_terminal_columns(int fd);

/* Prints as fprintf() does; on a terminal, lines too long for it are broken between words. */
void ddp_terminal_print(FILE *out, const char *format, ...) DDP_PRINTF(2, 3);

/* The same for lines that are printed in pieces: to the stream that ddp_terminal_begin() returns,
 * until ddp_terminal_end() shows them. */
struct ddp_terminal_text {
    FILE *out, *pieces;
    char *text;
    size_t bytes;
};
FILE *ddp_terminal_begin(struct ddp_terminal_text *text, FILE *out);
void ddp_terminal_end(struct ddp_terminal_text *text);

/* Where this process's bar, or that of the worker that has the terminal, is shown; -1: nowhere. */
void ddp_bar_set_terminal(int fd);

/* The word that says how many columns of a bar are shown; the processes of a job share it. After
 * unsharing, this process has its own again, unless it shares another. */
void ddp_bar_share(_Atomic uint32_t *columns);
void ddp_bar_unshare(_Atomic uint32_t *columns);

/* A bar has been drawn, and the cursor is after it. */
void ddp_bar_shown(int columns);

/* Removes the bar, if one is shown. Safe in a signal handler, and from all threads. Returns whether
 * there was one. */
bool ddp_bar_clear(void);

/* The next message begins a line, although the terminal has just echoed "^C". Safe where
 * ddp_bar_clear() is. */
void ddp_bar_end_line(void);

/* A signal with its default action, such as SIGINT, removes the bar before it ends this process.
 * Undone by ddp_bar_unguard(). */
void ddp_bar_guard(int signal);
void ddp_bar_unguard(int signal);

#endif

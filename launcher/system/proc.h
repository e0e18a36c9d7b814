/* SPDX-License-Identifier: MIT
 *
 * Small files of /proc, read without malloc and stdio. */
#ifndef DDP_LAUNCHER_PROC_H
#define DDP_LAUNCHER_PROC_H

#include <stdbool.h>
#include <stddef.h>

/* Reads /proc/PID/NAME into a string, cut to `size` bytes. False: it cannot be read, or is empty;
 * text is "" then. */
bool proc_read(long pid, const char *name, char *text, size_t size);

/* The state of a process as proc(5) has it: 'R', 'S', 'T' ...; 0: not known. */
char proc_state(long pid);

#endif

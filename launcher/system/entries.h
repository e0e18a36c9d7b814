/* SPDX-License-Identifier: MIT
 *
 * The entries of a directory, for a fork of a process with threads: neither malloc nor stdio. */
#ifndef DDP_LAUNCHER_ENTRIES_H
#define DDP_LAUNCHER_ENTRIES_H

/* Calls `each` with the name of each entry of the open directory, from its beginning; "." and ".."
 * are left out. */
void entries_visit(int directory, void (*each)(void *arg, int directory, const char *name),
                   void *arg);

#endif

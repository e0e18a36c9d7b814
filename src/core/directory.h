/* SPDX-License-Identifier: MIT
 *
 * Directories by descriptor, so that nobody can put a link in place of what was checked. */
#ifndef DDP_CORE_DIRECTORY_H
#define DDP_CORE_DIRECTORY_H

#include "ddp.h"

#include <dirent.h>

/* Opens a directory inside another; one that may not be listed, only for looking up names. -1 sets
 * errno; a link is an error: ENOTDIR, ELOOP.
 *   parent  may be AT_FDCWD */
int ddp_directory_open(int parent, const char *name);

/* A stream over its entries with a descriptor of its own; NULL sets errno. */
DIR *ddp_directory_entries(int parent, const char *name);

/* The next entry that is neither "." nor ".."; NULL at the end. */
struct dirent *ddp_directory_next(DIR *entries);

/* fsync(), if the directory was opened for more than looking up names. -1 sets errno. */
int ddp_directory_sync(int directory);

/* Removes a directory with the files in it, or a file; not a directory that contains others. */
int ddp_directory_remove(int parent, const char *name);

/* Locks a directory, until the descriptor is closed.
 *   path     for messages
 *   wait_ms  for a holder that may be about to end
 *   use      what the holder does there, for messages: "writes its checkpoints"
 *   locked [out]  false (and, the first time, a warning): its file system has no locks
 * DDP_ERR_IO: another process holds the lock; it is named if the kernel tells. */
enum ddp_status ddp_directory_lock(int directory, const char *path, int wait_ms, const char *use,
                                   bool *locked);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Directories by descriptor: nobody can put a link in the place of what was looked at. */
#ifndef DDP_CORE_DIRECTORY_H
#define DDP_CORE_DIRECTORY_H

#include "ddp.h"

#include <dirent.h>

/* Opens a directory that is in another; without the right to list it, for looking names up alone.
 * -1 sets errno; links are an error there: ENOTDIR, ELOOP.
 *   parent  may be AT_FDCWD */
int ddp_directory_open(int parent, const char *name);

/* A stream over its entries with a descriptor of its own; NULL sets errno. */
DIR *ddp_directory_entries(int parent, const char *name);

/* The next entry that is neither "." nor ".."; NULL: there is none. */
struct dirent *ddp_directory_next(DIR *entries);

/* fsync(), where the directory was opened for more than looking names up. -1 sets errno. */
int ddp_directory_sync(int directory);

/* Removes a directory with the files in it, or a file; not a directory with others inside. */
int ddp_directory_remove(int parent, const char *name);

/* Takes the lock of a directory, which ends with the descriptor.
 *   path     for messages
 *   wait_ms  for a holder that may be ending
 *   use      what the holder does there, for messages: "writes its checkpoints"
 *   locked [out]  false (and, the first time, a warning): its file system has no locks
 * DDP_ERR_IO: another process has it, which is named if the kernel tells. */
enum ddp_status ddp_directory_lock(int directory, const char *path, int wait_ms, const char *use,
                                   bool *locked);

#endif

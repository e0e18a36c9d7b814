/* SPDX-License-Identifier: MIT
 *
 * A directory of files that appears whole or not at all: made beside its target under a temporary
 * name, synced, and exchanged with what is there. */
#ifndef DDP_CORE_ATOMIC_DIRECTORY_H
#define DDP_CORE_ATOMIC_DIRECTORY_H

#include "ddp.h"

typedef struct ddp_atomic_directory ddp_atomic_directory;

/* Makes a directory that will become `path`, whose parent must exist. Symbolic links are followed.
 *   directory [out]  freed with ddp_atomic_directory_close()
 * DDP_ERR_IO: names the path; also when it is something else than a directory. */
enum ddp_status ddp_atomic_directory_open(ddp_atomic_directory **directory, const char *path);

/* Where files are written until the commit, with core/atomic_file.h, which syncs them. */
const char *ddp_atomic_directory_path(const ddp_atomic_directory *directory);

/* Copies a file into it. DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_atomic_directory_copy(const ddp_atomic_directory *directory, const char *from,
                                          const char *name);

/* The directory that was there, which stays readable until the commit; NULL: none was. */
const char *ddp_atomic_directory_old(const ddp_atomic_directory *directory);

/* Makes it visible under its path. Files that were there are kept where the new directory has none
 * of that name, unless drops(name) says otherwise; subdirectories are kept always, and moved last.
 *   drops  may be NULL: all files are kept
 * DDP_ERR_IO: what was there is unchanged. */
enum ddp_status ddp_atomic_directory_commit(ddp_atomic_directory *directory,
                                            bool (*drops)(const char *name));

/* Frees the object; without a commit its files are removed. */
void ddp_atomic_directory_close(ddp_atomic_directory *directory);

#endif

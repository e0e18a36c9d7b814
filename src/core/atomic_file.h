/* SPDX-License-Identifier: MIT
 *
 * Files that are replaced atomically: written beside the target under a temporary name, synced,
 * renamed, the directory synced. Until commit the old file is untouched.
 *
 * A file that cannot be replaced (a mount point, or a writable file in a directory that is not) is
 * written in place. Its first bytes are zeros until commit, so that half a file is not taken for a
 * whole one. */
#ifndef DDP_CORE_ATOMIC_FILE_H
#define DDP_CORE_ATOMIC_FILE_H

#include "ddp.h"

typedef struct ddp_atomic_file ddp_atomic_file;

/* Opens a new file that will become `path`, with links followed as by ddp_path_follow().
 * DDP_ERR_IO names the path. */
enum ddp_status ddp_atomic_file_open(ddp_atomic_file **file, const char *path);

/* The same for a file in an open directory; no link is followed.
 *   directory  the caller's descriptor
 *   path       its last part is the name; the rest is for messages */
enum ddp_status ddp_atomic_file_open_at(ddp_atomic_file **file, int directory, const char *path);

/* Checks that there is room for this many bytes, at most `largest` of them in one file. Writes
 * nothing.
 * DDP_ERR_IO: the disk, the user's quota or the file size limit does not allow it. */
enum ddp_status ddp_atomic_file_reserve(ddp_atomic_file *file, uint64_t bytes, uint64_t largest);

/* Appends bytes. After an error only close may follow. */
enum ddp_status ddp_atomic_file_write(ddp_atomic_file *file, const void *data, size_t bytes);

/* Makes the file durable and visible under its path. On failure the old file is unchanged, unless
 * it is written in place. */
enum ddp_status ddp_atomic_file_commit(ddp_atomic_file *file);

/* Appends a text, commits and closes. */
enum ddp_status ddp_atomic_file_end(ddp_atomic_file *file, const char *text);

/* All of this with a text. DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_atomic_file_put(const char *path, const char *text);

/* Frees the object; without a commit the temporary file is removed. */
void ddp_atomic_file_close(ddp_atomic_file *file);

#endif

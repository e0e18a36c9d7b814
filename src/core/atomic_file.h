/* SPDX-License-Identifier: MIT
 *
 * Files that are replaced atomically: written beside the target under a temporary name, synced,
 * renamed, the directory synced. Until commit the old file is untouched. */
#ifndef DDP_CORE_ATOMIC_FILE_H
#define DDP_CORE_ATOMIC_FILE_H

#include "ddp.h"

typedef struct ddp_atomic_file ddp_atomic_file;

/* Opens a new file that will become `path`. DDP_ERR_IO names the path. */
enum ddp_status ddp_atomic_file_open(ddp_atomic_file **file, const char *path);

/* Appends bytes. After an error only close may follow. */
enum ddp_status ddp_atomic_file_write(ddp_atomic_file *file, const void *data, size_t bytes);

/* Makes the file durable and visible under its path. On failure the old file is unchanged. */
enum ddp_status ddp_atomic_file_commit(ddp_atomic_file *file);

/* All of it with a text. DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_atomic_file_put(const char *path, const char *text);

/* Frees the object; without a commit the temporary file is removed. */
void ddp_atomic_file_close(ddp_atomic_file *file);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What writers of files need of the system. */
#ifndef DDP_CORE_WRITE_H
#define DDP_CORE_WRITE_H

#include "ddp.h"

#include <sys/types.h>

/* Opens a file for writing as open() does, but does not wait for the reader of a FIFO: where there
 * is none, that is an error (ENXIO). */
int ddp_open_for_writing(const char *path, int flags);

/* What errno says after that: DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_open_failed(const char *path);

/* As write(), without SIGPIPE where nobody reads any more. */
ssize_t ddp_write_quietly(int fd, const void *data, size_t bytes);

/* Writes all bytes, in as many calls as it takes; -1 sets errno. */
int ddp_write_all(int fd, const void *data, size_t bytes);

/* fsync() of a file or directory; file systems that have nothing to sync there count as done. */
int ddp_sync(int fd);

/* "directory/name", freed with free(); NULL (logged) without memory. */
char *ddp_path_in(const char *directory, const char *name);

/* Is there anything of that name in a directory? */
bool ddp_path_is_in(const char *directory, const char *name);

/* The directory that a path's last part is in, freed with free(); NULL without memory. */
char *ddp_directory_of(const char *path);

/* mkdir -p. With `durable` each directory that is made is synced into the one above it.
 * DDP_ERR_IO names the directory that cannot be made. */
enum ddp_status ddp_make_directories(const char *path, bool durable);

#endif

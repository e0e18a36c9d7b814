/* SPDX-License-Identifier: MIT
 *
 * What writers of files need from the system. */
#ifndef DDP_CORE_WRITE_H
#define DDP_CORE_WRITE_H

#include "ddp.h"

#include <sys/types.h>

/* The path with all symbolic links followed, even if it does not exist yet. Links of other users
 * are not followed in a directory where everybody may create files, which is the kernel's own rule
 * where fs.protected_symlinks is set. Links in /proc are left to the kernel: they need not lead to
 * paths.
 *   followed [out]  freed with free()
 * DDP_ERR_IO: names such a link, or one that cannot be followed; DDP_ERR_MEMORY. */
enum ddp_status ddp_path_follow(char **followed, const char *path);

/* Opens a file for writing, and for reading too if possible: pipes and devices may be write-only.
 * Does not wait for the reader of a FIFO: if there is none, that is an error. Links are followed as
 * by ddp_path_follow().
 *   flags  further ones of open(): O_CREAT, O_APPEND, O_TRUNC
 * DDP_ERR_IO: names the path; DDP_ERR_MEMORY. */
enum ddp_status ddp_open_for_writing(int *fd, const char *path, int flags);

/* As write(), without SIGPIPE when nobody reads any more. */
ssize_t ddp_write_quietly(int fd, const void *data, size_t bytes);

/* Writes all bytes, in as many calls as it takes; -1 sets errno. */
int ddp_write_all(int fd, const void *data, size_t bytes);

/* Opens /dev/null for closed standard streams: the next file that is opened would get their number,
 * and what is printed. */
void ddp_fill_standard_streams(void);

/* fsync() of a file or directory; file systems that have nothing to sync there count as done. */
int ddp_sync(int fd);

/* "directory/name", freed with free(); NULL (logged) without memory. */
char *ddp_path_in(const char *directory, const char *name);

/* A copy of a path without slashes at its end; the root keeps its slash. NULL: out of memory. */
char *ddp_path_bare(const char *path);

/* Whether a directory has anything of that name. */
bool ddp_path_is_in(const char *directory, const char *name);

/* The directory that a path's last part is in, freed with free(); NULL without memory. */
char *ddp_directory_of(const char *path);

/* mkdir -p, with links followed as by ddp_path_follow(). With `durable` each directory that is made
 * is synced into the one above it.
 * DDP_ERR_IO names the directory that cannot be made. */
enum ddp_status ddp_make_directories(const char *path, bool durable);

#endif

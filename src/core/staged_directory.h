/* SPDX-License-Identifier: MIT
 *
 * A directory of files that belong together: they are first written into a subdirectory, then moved
 * into place, weights after all others, and last the index that names them. The directory itself,
 * its subdirectories and its other files stay as they are, so it may be a mount point, belong to
 * another user or be the working directory.
 *
 * After a kill, the next writer or reader of the directory moves the files into place if all had
 * been written, else removes them. A lock on the directory tells them from those of a running
 * writer. */
#ifndef DDP_CORE_STAGED_DIRECTORY_H
#define DDP_CORE_STAGED_DIRECTORY_H

#include "core/atomic_file.h"

typedef struct ddp_staged_directory ddp_staged_directory;

#define DDP_STAGED_WAIT_MS 30000 /* for another writer, at the end of a training */

/* Opens the directory, makes it if it is missing (its parent must exist), and takes its lock. Links
 * are followed as by ddp_path_follow().
 *   directory [out]  freed with ddp_staged_directory_close()
 *   wait_ms          for another writer
 * DDP_ERR_IO: names the path; also when it is not a directory. */
enum ddp_status ddp_staged_directory_open(ddp_staged_directory **directory, const char *path,
                                          int wait_ms);

/* Completes what a kill has left in a directory that is to be read, if it left anything and the
 * directory is writable. Says so. */
void ddp_staged_directory_recover(const char *path);

/* Opens a directory that was empty or has a file of that name, by which its kind is known: others
 * are not filled up.
 *   refusal  what is wrong with others, after "PATH: " */
enum ddp_status ddp_staged_directory_open_of(ddp_staged_directory **directory, const char *path,
                                             int wait_ms, const char *name, const char *refusal);

/* Opens a file that will be in it, as ddp_atomic_file_open().
 *   path [out]  where it is written, for messages; freed with free(), even after a failure */
enum ddp_status ddp_staged_directory_file(const ddp_staged_directory *directory, const char *name,
                                          ddp_atomic_file **file, char **path);

/* A file with a text. DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_staged_directory_put(const ddp_staged_directory *directory, const char *name,
                                         const char *text);

/* Checks that there is room for a file of this many bytes, or several with that many in all, like
 * ddp_atomic_file_reserve(). */
enum ddp_status ddp_staged_directory_reserve(const ddp_staged_directory *directory,
                                             const char *name, uint64_t bytes, uint64_t largest);

/* Copies a file into it, unless it already is the directory's own file of that name. DDP_ERR_IO,
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_staged_directory_copy(const ddp_staged_directory *directory, const char *from,
                                          const char *name);

/* Moves all files into place.
 *   is_old  files that were there and do not belong to the new ones, which are removed
 * DDP_ERR_IO: what was there is unchanged, or the message says where the new files are. */
enum ddp_status ddp_staged_directory_commit(ddp_staged_directory *directory,
                                            bool (*is_old)(const char *name));

/* Frees the object; without a commit its files are removed, and the directory if it made it. */
void ddp_staged_directory_close(ddp_staged_directory *directory);

#endif

/* SPDX-License-Identifier: MIT
 *
 * A file whose samples are read as they are wanted, by any number of threads. By pread() and not
 * through a mapping: a file that shrinks under a mapping ends the process with SIGBUS, here it is
 * an error; the page cache serves both alike, to all workers of the machine. */
#ifndef DDP_DATA_DATA_FILE_H
#define DDP_DATA_DATA_FILE_H

#include "ddp.h"

struct ddp_data_file {
    char *path;
    int fd;         /* -1: opened again for each read */
    uint64_t bytes; /* when it was opened */
};

/* Opens a regular file.
 *   keep  keep it open: then it may be deleted while it is in use. A process may have only so many
 *         open files, about a thousand.
 * DDP_ERR_IO: names the file; *file is then closed. DDP_ERR_MEMORY. */
enum ddp_status ddp_data_file_open(struct ddp_data_file *file, const char *path, bool keep);
void ddp_data_file_close(struct ddp_data_file *file); /* also a zeroed one */

/* Reads exactly that many bytes. DDP_ERR_IO: cannot be read, or is shorter than it was. */
enum ddp_status ddp_data_file_read(const struct ddp_data_file *file, uint64_t offset, void *to,
                                   size_t bytes);

/* Is there a regular file (directory) of that name? */
bool ddp_data_file_exists(const char *path);
bool ddp_data_directory_exists(const char *path);

/* "directory/name", freed with free(); NULL (logged) without memory. */
char *ddp_data_path(const char *directory, const char *name);

/* File names. */
struct ddp_data_names {
    char **at;
    size_t count;
};

/* The file of that name or, if there is none, the files that match it as a pattern (glob(7)), in
 * the order of their bytes, whatever the locale. A name without a pattern is returned as it is,
 * whether it exists or not.
 *   names [out]  zeroed before; freed with ddp_data_names_free(), also after a failure
 * DDP_ERR_IO: no file matches the pattern. DDP_ERR_MEMORY. */
enum ddp_status ddp_data_names_list(struct ddp_data_names *names, const char *path);
void ddp_data_names_free(struct ddp_data_names *names);

/* Is there a regular file of that name, or any file that matches the pattern? */
bool ddp_data_names_any(const char *path);

#endif

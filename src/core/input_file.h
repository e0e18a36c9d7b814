/* SPDX-License-Identifier: MIT
 *
 * A file whose parts are read on demand, by any number of threads. With pread(), not through a
 * mapping: a file that shrinks under a mapping ends the process with SIGBUS, here it is an error;
 * the page cache serves both alike, for all workers of the machine. */
#ifndef DDP_CORE_INPUT_FILE_H
#define DDP_CORE_INPUT_FILE_H

#include "ddp.h"

struct ddp_input_file {
    char *path;
    int fd;         /* -1: opened again for each read */
    uint64_t bytes; /* when it was opened */
};

/* Opens a regular file.
 *   keep  keep it open: then it may be deleted while it is in use. A process may have only about a
 *         thousand open files.
 * DDP_ERR_IO: names the file; *file is then closed. DDP_ERR_MEMORY. */
enum ddp_status ddp_input_file_open(struct ddp_input_file *file, const char *path, bool keep);
void ddp_input_file_close(struct ddp_input_file *file); /* also a zeroed one */

/* Reads exactly that many bytes. DDP_ERR_IO: cannot be read, or is shorter than it was. */
enum ddp_status ddp_input_file_read(const struct ddp_input_file *file, uint64_t offset, void *to,
                                    size_t bytes);

/* Reads a whole file that is no larger than `most`: the wrong file must not fill the memory.
 *   what  in messages: "not a config.json"
 *   text [out]  of *bytes, freed with free()
 * DDP_ERR_IO, DDP_ERR_FORMAT: it is larger; DDP_ERR_MEMORY. */
enum ddp_status ddp_input_file_read_whole(const char *path, const char *what, size_t most,
                                          char **text, size_t *bytes);

#endif

/* SPDX-License-Identifier: MIT
 *
 * A file that grows by whole records: logs and event files. If a record cannot be written (a full
 * disk), it is dropped, and a message says so once. The program continues, and the file never holds
 * half a record. */
#ifndef DDP_CORE_APPEND_FILE_H
#define DDP_CORE_APPEND_FILE_H

#include "ddp.h"

typedef struct ddp_append_file ddp_append_file;

/* Opens `path` for appending, and creates it if it is missing. With `lines`, an incomplete last
 * line (a program was killed) is ended first. DDP_ERR_IO names the path. */
enum ddp_status ddp_append_file_open(ddp_append_file **file, const char *path, bool lines);

/* Appends one record with one write. A failure is logged once, as a warning. For one process at a
 * time. */
void ddp_append_file_write(ddp_append_file *file, const void *record, size_t bytes);

void ddp_append_file_close(ddp_append_file *file);

#endif

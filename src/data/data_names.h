/* SPDX-License-Identifier: MIT
 *
 * The names of data files: what is there, and patterns. */
#ifndef DDP_DATA_DATA_NAMES_H
#define DDP_DATA_DATA_NAMES_H

#include "ddp.h"

/* Whether a regular file (directory) has that name. */
bool ddp_data_file_exists(const char *path);
bool ddp_data_directory_exists(const char *path);

/* File names. */
struct ddp_data_names {
    char **at;
    size_t count;
};

/* The file of that name or, where there is none, the files that it is a pattern of (glob(7)), in
 * the order of their bytes, whatever the locale. A name without a pattern in it is itself, there or
 * not.
 *   names [out]  zeroed before; freed with ddp_data_names_free(), also after a failure
 * DDP_ERR_IO: no file is of that pattern. DDP_ERR_MEMORY. */
enum ddp_status ddp_data_names_list(struct ddp_data_names *names, const char *path);

/* Adds a copy of a name; moves all of `from`, which is empty then. DDP_ERR_MEMORY. */
enum ddp_status ddp_data_names_add(struct ddp_data_names *names, const char *name);
enum ddp_status ddp_data_names_move(struct ddp_data_names *names, struct ddp_data_names *from);

/* In the order of their bytes; finds one when they are, or -1. */
void ddp_data_names_sort(struct ddp_data_names *names);
int64_t ddp_data_names_find(const struct ddp_data_names *names, const char *name);

void ddp_data_names_free(struct ddp_data_names *names);

/* Whether a regular file has that name, or anything matches that pattern. */
bool ddp_data_names_any(const char *path);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Lines of a stream that contain one of the texts of --duplicate-stdout-filters or
 * --duplicate-stderr-filters go into one more file. Used by the relay's thread alone. */
#ifndef DDP_LAUNCHER_MATCHING_H
#define DDP_LAUNCHER_MATCHING_H

#include <stdbool.h>
#include <stddef.h>

#define MATCHING_LINE_BYTES 65536 /* a longer line is looked at in parts */

struct matching {
    const char *filters; /* "apple,orange"; two commas stand for one in a text; NULL: none */
    int file;            /* shared by all ranks, and not closed here */
    char *line;          /* the part of a line that is there; allocated with the first byte */
    size_t used;
};

/* Takes what a stream has brought, and writes the lines that match, after `prefix`. False: the file
 * cannot be written; errno has the reason. */
bool matching_take(struct matching *matching, const char *prefix, const char *data, size_t bytes);

/* The stream has ended: also its last line, without a newline. Frees the memory. */
bool matching_end(struct matching *matching, const char *prefix);

#endif

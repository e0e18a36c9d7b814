/* SPDX-License-Identifier: MIT
 *
 * What a worker left in TORCHELASTIC_ERROR_FILE, as torch's record decorator does: JSON with a
 * message and the Python stack. It is the worker's, so it may hold anything. */
#ifndef DDP_LAUNCHER_ERROR_FILE_H
#define DDP_LAUNCHER_ERROR_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define ERROR_FILE_BYTES 262144 /* larger files are not read */

struct error_text {
    char message[512]; /* its beginning; "" when there is none */
    char stack[4096];  /* its end, whole lines; "" likewise */
};

/* False when there is no such file, or no message in it. A file that is too large gives a message
 * that says so. */
bool error_file_read(const char *path, struct error_text *text);

#endif

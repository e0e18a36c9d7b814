/* SPDX-License-Identifier: MIT
 *
 * The command line of ddpreport: an option table each for "ddpreport RUN.jsonl ...", "ddpreport
 * export" and "ddpreport compare". */
#ifndef DDP_REPORTER_SETTINGS_H
#define DDP_REPORTER_SETTINGS_H

#include "ddp.h"

#define SETTINGS_WORKERS 16 /* numbers of workers, at most */

enum x_axis { X_STEP, X_TOKENS, X_TIME };

struct settings {
    bool compare, exports, help, version;
    const char *output; /* a file, or NULL */
    bool csv;           /* of an export */
    /* Of runs. */
    bool terminal;
    int x; /* enum x_axis */
    bool log_scale;
    char **files; /* into argv's array, which is sorted anew */
    int file_count;
    /* Of a comparison. */
    int64_t workers[SETTINGS_WORKERS]; /* rising */
    int worker_count;
    int64_t every[SETTINGS_WORKERS]; /* local steps between synchronisations; rising */
    int every_count;
    int64_t steps, repeats;
    char *const *command; /* argv of the trainer, ending in NULL */
    int command_count;
};

/* DDP_ERR_INVALID: logged. */
enum ddp_status settings_read(struct settings *settings, int argc, char **argv);
void settings_help(FILE *out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The command line of ddpreport: an option table each for "ddpreport RUN.jsonl ...", "ddpreport
 * export", "ddpreport compare" and "ddpreport scale". */
#ifndef DDP_REPORTER_SETTINGS_H
#define DDP_REPORTER_SETTINGS_H

#include "ddp.h"

/* Further ways to train, for a comparison that asks for them. */
enum { ALSO_ZERO_0, ALSO_ZERO_2, ALSO_PIPELINE, ALSO_WIRE, WAYS_ALSO };

#define SETTINGS_WORKERS 16 /* numbers of workers, at most */

enum x_axis { X_STEP, X_TOKENS, X_TIME };

struct settings {
    bool compare, exports, scale, help, version;
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
    bool also[WAYS_ALSO];
    int64_t steps, repeats;
    char *const *command; /* argv of the trainer, ending in NULL */
    int command_count;
    /* Of a forecast. */
    int64_t nodes[SETTINGS_WORKERS]; /* rising */
    int node_count;
    int64_t node_workers, stages, sync_every; /* 0: as in the run */
    double rate, latency, memory;             /* Gbit/s, us, GB; 0: not known */
    int gpu;                                  /* of scale_gpus; 0: none */
};

/* Whose memory and speed are known. The first is no GPU. */
extern const char *const scale_gpus[];

/* DDP_ERR_INVALID: logged. */
enum ddp_status settings_read(struct settings *settings, int argc, char **argv);
void settings_help(FILE *out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Where each worker's standard output and error go: to ddprun's own, through the relay, to log
 * files, or nowhere. */
#ifndef DDP_LAUNCHER_OUTPUT_H
#define DDP_LAUNCHER_OUTPUT_H

#include "job/board.h"
#include "launcher/launch_plan.h"
#include "launcher/relay.h"
#include "launcher/spawn.h"

struct output {
    const struct launch_plan *plan;
    const struct ddp_board *board;
    struct relay *relay; /* NULL when nothing is relayed */
    char *directory;     /* the run's log directory, or NULL */
    int matching[2];     /* files of lines that the --duplicate options name, or -1 */
    bool prefixed;       /* several ranks are shown */
    int (*slots)[2];     /* of each rank: standard output and error in the relay, or -1 */
};

/* Decides where output goes, makes the log directory, and starts the relay if it is needed.
 *   directory  of the previous attempt, which is used again; owned from now on */
enum ddp_status output_open(struct output *output, const struct launch_plan *plan,
                            const struct ddp_board *board, char *directory);

/* Starts a worker with its output connected. */
enum ddp_status output_start_worker(struct output *output, const struct spawner *spawner, int rank,
                                    pid_t *pid);

/* The last lines that a rank wrote to standard error; "" when they did not go through ddprun
 * or there were none. *in_sight [out]: they were shown just now, and need not be shown again here.
 */
void output_tail(struct output *output, int rank, char text[RELAY_TAIL + 1], bool *in_sight);

/* The rank's TORCHELASTIC_ERROR_FILE, freed with free(); NULL when it has none. */
char *output_error_file(const struct output *output, int rank);

/* After all workers have ended: detects a full disk, on which a log file may lack the last output,
 * and notes it in the relay, which logs it. */
void output_check_files(const struct output *output);

/* Whether what the rank writes to standard error is shown. */
bool output_shows_errors(const struct output *output, int rank);

/* Whether the standard error of all ranks is shown, and kept nowhere else. Then an error that
 * several ranks find needs to be written by one of them only. */
bool output_only_shows_errors(const struct output *output);

/* Bytes that came through ddprun in this attempt, and whether all that a rank writes does. */
uint64_t output_bytes(const struct output *output);
bool output_passes(const struct output *output, int rank);

/* All workers have failed in the same way: an error need not be shown for each. */
void output_failed_alike(const struct output *output);

/* Asks for the end of the output; the descriptor, if any (-1), becomes readable when all is
 * written. */
int output_end(struct output *output);

/* Hands out the log directory, for the next attempt. */
char *output_take_directory(struct output *output);

/* Frees all. `written`: all output was written; otherwise a reader is stuck, and the process
 * is about to exit. */
void output_close(struct output *output, bool written);

#endif

/* SPDX-License-Identifier: MIT
 *
 * From fork to exec. Errors in the child are reported through a pipe that its exec closes. */
#ifndef DDP_LAUNCHER_SPAWN_H
#define DDP_LAUNCHER_SPAWN_H

#include "ddp.h"
#include "launcher/keeper.h"
#include "launcher/launch_plan.h"

enum spawn_stage {
    SPAWN_PREPARE = 1, /* before exec */
    SPAWN_EXEC = 2,
    SPAWN_BIND = 3, /* it could not be bound to its CPUs, and runs nevertheless */
};

/* What a child writes before it gives up: one write, below PIPE_BUF. */
struct spawn_error {
    int32_t rank;
    int32_t stage;
    int32_t error; /* errno */
};

struct spawner {
    const struct launch_plan *plan;
    const struct keeper *keeper;
    int board_fd;
    int heap_fd;
    int null_fd;     /* standard input of all ranks but 0 */
    int error_write; /* children's end of the pipe */
    int error_read;  /* non-blocking */
};

/* Opens the pipe and /dev/null. */
enum ddp_status spawner_open(struct spawner *spawner, const struct launch_plan *plan,
                             const struct keeper *keeper, int board_fd, int heap_fd);
void spawner_close(struct spawner *spawner);

/* Starts one worker, with all signals blocked by the caller. It leads a process group of its own.
 * `out` and `error` become its standard output and error; -1: it has ddprun's. */
enum ddp_status spawner_start(const struct spawner *spawner, int rank, int out, int error,
                              const char *error_file, pid_t *pid);

/* Takes one message of a child that could not start. */
bool spawner_next_error(const struct spawner *spawner, struct spawn_error *error);

/* The exit code that ddprun documents for such a failure, and a sentence on its cause. */
int spawn_error_exit_code(const struct spawn_error *error);
void spawn_error_text(const struct spawn_error *error, const struct launch_plan *plan, char *text,
                      size_t size);

#endif

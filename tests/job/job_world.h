/* SPDX-License-Identifier: MIT
 *
 * A job as ddprun makes it, and its ranks in processes of their own: for tests of job. */
#ifndef DDP_TESTS_JOB_WORLD_H
#define DDP_TESTS_JOB_WORLD_H

#include "job/board.h"
#include "tests/lib/runner.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ddp_board board;
static int board_fd, heap_fd;

static const char *const variables[] = {
    "RANK",           "WORLD_SIZE",          "LOCAL_RANK",     "DDPRUN_BOARD_FD",
    "DDPRUN_HEAP_FD", "DDPRUN_COPY_FD",      "DDPRUN_BELL_FD", "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",       "SLURM_STEP_NUM_TASKS"};

static inline void clear_environment(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
}

static inline void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* A board for `world` workers, as ddprun makes it. */
static inline void make_board(int world)
{
    clear_environment();
    ck_assert_int_eq(ddp_board_create(&board, &board_fd, (const int[]){0, world}, 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_board_create_heap(&board, &heap_fd), DDP_OK);
    set_number("DDPRUN_BOARD_FD", board_fd);
    set_number("DDPRUN_HEAP_FD", heap_fd);
    set_number("WORLD_SIZE", world);
}

static inline ddp_job *join_job(int rank)
{
    ddp_job *job = NULL;
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    return job;
}

/* Runs body(rank) in `world` processes; their exit codes must be as told. */
static inline void run_world(int world, int (*body)(ddp_job *job, int rank), int expected)
{
    pid_t pids[16];
    make_board(world);
    for (int rank = 0; rank < world; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            ddp_job *job = join_job(rank);
            int code = body(job, rank);
            ddp_job_close(job);
            _exit(code);
        }
    }
    for (int rank = 0; rank < world; rank++) {
        int status;
        ck_assert_int_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == expected, "rank %d: status %x",
                      rank, status);
    }
}

#endif

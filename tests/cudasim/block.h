/* SPDX-License-Identifier: MIT
 *
 * The block that runs: its threads and what they wait for. Shared by the scheduler (block.c) and
 * the barriers (sync.c). */
#ifndef DDP_TESTS_CUDASIM_BLOCK_H
#define DDP_TESTS_CUDASIM_BLOCK_H

#include "tests/cudasim/internal.h"

enum { SIM_RING = 2048 };

enum sim_thread_state {
    SIM_THREAD_NEW,
    SIM_THREAD_RUNS, /* or may run */
    SIM_THREAD_AT_BARRIER,
    SIM_THREAD_AT_WARP,
    SIM_THREAD_EXITED
};

struct sim_thread {
    struct sim_fibre *fibre;
    enum sim_thread_state state;
    const char *file; /* where it waits */
    int line;
    int parameter, width; /* of an operation of the warp */
    unsigned mask;
    uint64_t value;  /* given to it */
    uint64_t result; /* got from it, or from a barrier */
};

/* ThreadSanitizer takes the threads of one block for different ones, so each has its fibre. The
 * words are addresses to acquire and release. All of a stream, lest an order between streams come
 * of them. */
struct sim_threads {
    struct sim_fibre *fibres[SIM_MAX_THREADS];
    uint64_t begin, end;
    uint64_t
        barrier[2]; /* of even and odd rounds: a thread may come to the next before all have left */
    uint64_t warp[SIM_MAX_THREADS / SIM_WARP][2];
};

struct sim_block {
    const struct sim_launch *launch; /* NULL: no kernel runs */
    void *arguments;
    int thread_count, started, live, current;
    struct sim_fibre *fibre; /* that runs */
    struct sim_fibre home;   /* of the launch */
    struct sim_threads *threads;
    unsigned ready_first, ready_count;
    short order[SIM_MAX_THREADS];
    short ready[SIM_RING];
    struct sim_thread thread[SIM_MAX_THREADS];
};

extern struct sim_block sim_block;

/* Leaves the running fibre for the next thread; returns when this fibre is switched to again. */
void sim_go_on(struct sim_fibre *here);
void sim_push_ready(int thread, bool front);

/* sync.c */
void sim_reset_sync(void);          /* a new block begins */
void sim_thread_exited(int thread); /* may release those who wait */
void sim_report_deadlock(void) __attribute__((noreturn));

#endif

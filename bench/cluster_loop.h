/* SPDX-License-Identifier: MIT
 *
 * The measuring loop that cluster_perf.c and cluster_mpi.c share; cluster_gloo.py has the same one.
 * All sides of bench/cluster run at the same time and take turns: each rank waits in the kernel for
 * a line "bytes calls" in its pipe, and rank 0 answers "bytes wrong microseconds..." in another.
 * Includes nothing of libddp: mpicc compiles it too. */
#ifndef DDP_BENCH_CLUSTER_LOOP_H
#define DDP_BENCH_CLUSTER_LOOP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLUSTER_LARGEST ((size_t)64 << 20)

struct cluster_loop {
    int rank, size;
    int (*allreduce)(float *buffer, size_t count);
    int (*barrier)(void);
};

static inline double cluster_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Small whole numbers: every sum is exact in any order. */
static inline float cluster_value(size_t i, int rank)
{
    return (float)((i * 7 + (size_t)rank * 3) % 61);
}

/* The first call warms up, and its result is compared with the exact sum. */
static inline int cluster_first(const struct cluster_loop *loop, float *buffer, size_t count,
                                long *wrong)
{
    for (size_t i = 0; i < count; i++)
        buffer[i] = cluster_value(i, loop->rank);
    if (loop->barrier() != 0 || loop->allreduce(buffer, count) != 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < loop->size; r++)
            sum += cluster_value(i, r);
        *wrong += buffer[i] != sum;
    }
    memset(buffer, 0, count * sizeof *buffer); /* repeated sums neither overflow nor slow down */
    return loop->barrier();
}

/* Calls one after another, each timed: one that lost its core does not spoil the median. */
static inline int cluster_turn(const struct cluster_loop *loop, float *buffer, size_t bytes,
                               int calls, FILE *answer)
{
    long wrong = 0;
    double *us = malloc((size_t)calls * sizeof *us);
    int result = us ? cluster_first(loop, buffer, bytes / 4, &wrong) : 1;
    for (int c = 0; c < calls && result == 0; c++) {
        double start = cluster_now_us();
        result = loop->allreduce(buffer, bytes / 4);
        us[c] = cluster_now_us() - start;
    }
    if (result == 0)
        result = loop->barrier();
    if (result == 0 && loop->rank == 0) {
        fprintf(answer, "%zu %ld", bytes, wrong);
        for (int c = 0; c < calls; c++)
            fprintf(answer, " %.2f", us[c]);
        fputc('\n', answer);
        fflush(answer);
    }
    free(us);
    return result;
}

/* Serves until the pipe is closed. pipes: a path, to which ".RANK" and ".answer" are appended. */
static inline int cluster_serve(const struct cluster_loop *loop, float *buffer, const char *pipes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", pipes, loop->rank);
    FILE *orders = fopen(path, "r");
    snprintf(path, sizeof path, "%s.answer", pipes);
    FILE *answer = loop->rank == 0 ? fopen(path, "w") : NULL;
    size_t bytes;
    int calls, result = orders && (answer || loop->rank != 0) ? 0 : 1;
    while (result == 0 && fscanf(orders, "%zu %d", &bytes, &calls) == 2 && bytes >= 4 &&
           bytes <= CLUSTER_LARGEST)
        result = cluster_turn(loop, buffer, bytes, calls, answer);
    if (orders)
        fclose(orders);
    if (answer)
        fclose(answer);
    return result;
}

#endif

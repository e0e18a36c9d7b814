/* SPDX-License-Identifier: MIT
 *
 * The measuring loop that allreduce_perf.c and allreduce_mpi.c share: the same sizes, repeats, data
 * and checks, so that the two sides are compared fairly. Includes nothing of libddp: mpicc compiles
 * it too. */
#ifndef DDP_BENCH_ALLREDUCE_LOOP_H
#define DDP_BENCH_ALLREDUCE_LOOP_H

#include "bench/median.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOP_SIZES   10
#define LOOP_LARGEST ((size_t)496000000)

enum { LOOP_4B = 0, LOOP_1MIB = 5, LOOP_64MIB = 8, LOOP_496MB = 9 };

static const size_t loop_sizes[LOOP_SIZES] = {4,       64,      512,      4096,     65536,
                                              1 << 20, 4 << 20, 16 << 20, 64 << 20, LOOP_LARGEST};

struct loop {
    int rank, size;
    int (*allreduce)(float *buffer, size_t count);
    int (*barrier)(void);
};

static inline double loop_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Small whole numbers: every sum is exact in any order. */
static inline float loop_value(size_t i, int rank)
{
    return (float)((i * 7 + (size_t)rank * 3) % 61);
}

/* How many calls make a batch of about 20 ms: rank 0 measures, the others hear it through a sum. 0:
 * failed. */
static inline int loop_calls(const struct loop *loop, float *buffer, size_t count)
{
    double start = loop_now_us();
    for (int c = 0; c < 4; c++)
        if (loop->allreduce(buffer, count) != 0)
            return 0;
    double calls = 20e3 / ((loop_now_us() - start) / 4 + 0.01);
    calls = calls > 5000 ? 5000 : calls < 1 ? 1 : calls;
    buffer[0] = loop->rank == 0 ? (float)(int)calls : 0;
    if (loop->allreduce(buffer, 1) != 0)
        return 0;
    int agreed = (int)buffer[0];
    buffer[0] = 0;
    return agreed;
}

/* Measures one size, seven batches of calls, and prints "bytes microseconds wrong" from rank 0. */
static inline int loop_size(const struct loop *loop, float *buffer, size_t bytes, FILE *out)
{
    enum { BATCHES = 7 };
    const size_t count = bytes / 4;
    double us[BATCHES];
    long wrong = 0;
    for (size_t i = 0; i < count; i++)
        buffer[i] = loop_value(i, loop->rank);
    if (loop->allreduce(buffer, count) != 0)
        return 1;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < loop->size; r++)
            sum += loop_value(i, r);
        wrong += memcmp(&sum, &buffer[i], sizeof sum) != 0;
    }
    memset(buffer, 0, bytes); /* repeated sums neither overflow nor slow down */
    const int calls = loop_calls(loop, buffer, count);
    if (calls == 0)
        return 1;
    for (int b = -1; b < BATCHES; b++) { /* the first one warms up */
        if (loop->barrier() != 0)
            return 1;
        double start = loop_now_us();
        for (int c = 0; c < calls; c++)
            if (loop->allreduce(buffer, count) != 0)
                return 1;
        if (b >= 0)
            us[b] = (loop_now_us() - start) / calls;
    }
    if (loop->rank == 0)
        fprintf(stderr, "%zu B: %.2f us\n", bytes, median(us, BATCHES)); /* progress */
    if (loop->rank == 0)
        fprintf(out, "%zu %.4f %ld\n", bytes, median(us, BATCHES), wrong);
    return 0;
}

static inline int loop_all(const struct loop *loop, float *buffer, FILE *out)
{
    int result = 0;
    for (int i = 0; i < LOOP_SIZES && result == 0; i++)
        result = loop_size(loop, buffer, loop_sizes[i], out);
    return result;
}

#endif

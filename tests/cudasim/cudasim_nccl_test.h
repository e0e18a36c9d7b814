/* SPDX-License-Identifier: MIT
 *
 * Ranks of check_cudasim_nccl: processes, each with a simulated GPU of its own, that meet in memory
 * of the test. A rank that finds something wrong says what and where, and exits with 1. */
#ifndef DDP_TESTS_CUDASIM_NCCL_TEST_H
#define DDP_TESTS_CUDASIM_NCCL_TEST_H

#include "tests/lib/runner.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 8

static inline void expect(bool holds, const char *text, int line, const char *file)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not so: %s (last error of NCCL: %s)\n", file, line, text,
            ncclGetLastError(NULL));
    _exit(1);
}

#define EXPECT(condition) expect(condition, #condition, __LINE__, __FILE__)
#define CUDA_OK(call)     EXPECT((call) == cudaSuccess)
#define NCCL_OK(call)     EXPECT((call) == ncclSuccess)

/* What the ranks of a test share. */
struct board {
    _Atomic int ids; /* how many ids are there */
    ncclUniqueId id[4];
    _Atomic int came[16]; /* to the numbered meetings */
    _Atomic int flag;
};

struct rank {
    int rank, size;
    struct board *board;
    ncclComm_t comm;
    cudaStream_t stream;
    void *arg;
};

static inline void nap(long milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void wait_for(_Atomic int *word, int value)
{
    const double end = now() + 20;
    while (atomic_load(word) < value) {
        EXPECT(now() < end);
        nap(1);
    }
}

/* All ranks come to meeting `number`. */
static inline void meet(struct rank *r, int number)
{
    atomic_fetch_add(&r->board->came[number], 1);
    wait_for(&r->board->came[number], r->size);
}

/* The id of communicator `number`, made by rank 0. */
static inline ncclUniqueId id_of(struct rank *r, int number)
{
    if (r->rank == 0) {
        NCCL_OK(ncclGetUniqueId(&r->board->id[number]));
        atomic_store(&r->board->ids, number + 1);
    }
    wait_for(&r->board->ids, number + 1);
    return r->board->id[number];
}

static inline void rank_begin(struct rank *r)
{
    CUDA_OK(cudaSetDevice(r->rank));
    CUDA_OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    NCCL_OK(ncclCommInitRank(&r->comm, r->size, id_of(r, 0), r->rank));
}

static inline void rank_end(struct rank *r)
{
    CUDA_OK(cudaStreamSynchronize(r->stream));
    NCCL_OK(ncclCommDestroy(r->comm));
    CUDA_OK(cudaStreamDestroy(r->stream));
}

/* Runs `body` in a process a rank; those whose bit is in `dead` are expected to die by SIGKILL. */
static inline void run_ranks(int size, void (*body)(struct rank *rank), void *arg, unsigned dead)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[MAX_RANKS];
    ck_assert(board != MAP_FAILED);
    fflush(NULL);
    for (int rank = 0; rank < size; rank++) {
        children[rank] = fork();
        ck_assert_int_ge(children[rank], 0);
        if (children[rank] == 0) {
            struct rank own = {.rank = rank, .size = size, .board = board, .arg = arg};
            body(&own);
            _exit(0);
        }
    }
    int failures = 0;
    for (int rank = 0; rank < size; rank++) {
        int status;
        ck_assert_int_eq(waitpid(children[rank], &status, 0), children[rank]);
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        const bool good = dead >> rank & 1 ? killed : WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!good)
            fprintf(stderr, "rank %d of %d ended with status %#x\n", rank, size, (unsigned)status);
        failures += !good;
    }
    ck_assert_int_eq(failures, 0);
    munmap(board, sizeof *board);
}

/* --- buffers --- */
static inline void *device_new(size_t bytes)
{
    void *memory;
    CUDA_OK(cudaMalloc(&memory, bytes ? bytes : 16));
    return memory;
}

static inline void to_device(void *device, const void *host, size_t bytes, cudaStream_t stream)
{
    CUDA_OK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
}

static inline void to_host(void *host, const void *device, size_t bytes, cudaStream_t stream)
{
    CUDA_OK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
}

/* Floats rank * 100000 + i % 1000 + seed: sums of up to eight are exact. */
static inline float pattern(int rank, size_t i, int seed)
{
    return (float)(rank * 100000 + (int)(i % 1000) + seed);
}

static inline float *pattern_new(struct rank *r, size_t count, int seed)
{
    float *host = malloc((count + 1) * sizeof *host), *device = device_new(count * sizeof *device);
    for (size_t i = 0; i < count; i++)
        host[i] = pattern(r->rank, i, seed);
    to_device(device, host, count * sizeof *host, r->stream);
    free(host);
    return device;
}

static inline float pattern_sum(int size, size_t i, int seed)
{
    float sum = 0;
    for (int rank = 0; rank < size; rank++)
        sum += pattern(rank, i, seed);
    return sum;
}

#endif

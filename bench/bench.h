/* SPDX-License-Identifier: MIT
 *
 * What the programs that measure kernels share. Whatever fails ends the program. */
#ifndef DDP_BENCH_BENCH_H
#define DDP_BENCH_BENCH_H

#include "ddp.h"

/* It has said why. */
void bench_must(enum ddp_status status);

/* Zeroed memory, aligned for vectors; held until bench_release(). */
void *bench_memory(size_t bytes);

/* In [-1/2, 1/2); never so small that products of them underflow. */
float *bench_numbers(int64_t count);

/* Frees all memory but the first `left` pieces, of which bench_pieces() tells the number. */
size_t bench_pieces(void);
void bench_release(size_t left);

/* Processor time of all threads. */
double bench_cpu_seconds(void);

#endif

/* SPDX-License-Identifier: MIT
 *
 * See bench.h. */
#include "config.h"

#include "bench/bench.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *pieces[256]; /* of memory */
static size_t piece_count;

void bench_must(enum ddp_status status)
{
    if (status != DDP_OK)
        exit(EXIT_FAILURE);
}

void *bench_memory(size_t bytes)
{
    bytes = ddp_align_up(bytes + 1, DDP_CACHE_LINE);
    void *memory = aligned_alloc(DDP_CACHE_LINE, bytes);
    if (!memory || piece_count == sizeof pieces / sizeof pieces[0])
        exit(EXIT_FAILURE);
    memset(memory, 0, bytes);
    return pieces[piece_count++] = memory;
}

float *bench_numbers(int64_t count)
{
    float *values = bench_memory((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = ((float)((uint32_t)i * 2654435761u >> 24) - 127.5f) / 256;
    return values;
}

size_t bench_pieces(void)
{
    return piece_count;
}

void bench_release(size_t left)
{
    while (piece_count > left)
        free(pieces[--piece_count]);
}

double bench_cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* SPDX-License-Identifier: MIT
 *
 * Memory of a device, numbers in it, and the time of operations on it; see kernels_perf.h. */
#include "config.h"

#include "bench/bench.h"
#include "bench/kernels_perf.h"
#include "bench/median.h"
#include "core/clock.h"
#include "kernels/bf16.h"

#include <assert.h>

#define ROUNDS 7
#define CHUNK  (1 << 20) /* floats that are drawn */

static struct piece {
    void *memory;
    size_t bytes;
} pieces[32];
static size_t piece_count;

/* From `least` to least + 2: zeros would let a GPU run products faster than any real numbers. */
static const float *draw(float least)
{
    static float chunk[CHUNK];
    uint32_t state = 1;
    for (int i = 0; i < CHUNK; i++) {
        state = state * 1664525u + 1013904223u;
        chunk[i] = (float)(state >> 8) / 8388608.0f + least;
    }
    return chunk;
}

void device_fill(struct device_bench *bench, void *memory, size_t count, float least)
{
    const float *chunk = draw(least);
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t left = count - at < CHUNK ? count - at : CHUNK;
        bench_must(
            ddp_device_copy_in(bench->device, (float *)memory + at, chunk, left * sizeof(float)));
    }
    bench_must(ddp_device_synchronize(bench->device));
}

void device_fill_bf16(struct device_bench *bench, uint16_t *memory, size_t count, float least)
{
    static uint16_t chunk[CHUNK];
    const float *numbers = draw(least);
    for (int i = 0; i < CHUNK; i++)
        chunk[i] = ddp_bf16_of(numbers[i]);
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t left = count - at < CHUNK ? count - at : CHUNK;
        bench_must(ddp_device_copy_in(bench->device, memory + at, chunk, left * sizeof *chunk));
    }
    bench_must(ddp_device_synchronize(bench->device));
}

void *device_memory(struct device_bench *bench, size_t bytes)
{
    struct piece *piece = &pieces[piece_count++];
    assert(piece_count <= sizeof pieces / sizeof pieces[0]);
    bench_must(ddp_device_alloc(bench->device, bytes, &piece->memory));
    piece->bytes = bytes;
    return piece->memory;
}

size_t device_pieces(void)
{
    return piece_count;
}

void device_release(struct device_bench *bench, size_t left)
{
    while (piece_count > left) {
        piece_count--;
        ddp_device_free(bench->device, pieces[piece_count].memory, pieces[piece_count].bytes);
    }
}

/* Seconds of so many calls, one behind the other on the stream. */
static double calls_seconds(struct device_bench *bench, const struct device_row *row, int64_t calls)
{
    const int64_t begin = ddp_clock_ns();
    bench->dtype = row->dtype;
    for (int64_t i = 0; i < calls; i++)
        bench_must(row->run(bench));
    bench_must(ddp_device_synchronize(bench->device));
    return (double)(ddp_clock_ns() - begin) * 1e-9;
}

/* So many calls that the wait at the end does not count. */
static int64_t calls_of_round(struct device_bench *bench, const struct device_row *row)
{
    int64_t calls = 1;
    ddp_device_tune_begin(bench->device, true); /* as before a training */
    calls_seconds(bench, row, 1);
    (void)ddp_device_tune_end(bench->device);
    calls_seconds(bench, row, 1); /* warms up */
    while (calls < 1 << 20 && calls_seconds(bench, row, calls) < bench->round_seconds)
        calls *= 2;
    return calls;
}

void device_measure(struct device_bench *bench, const struct device_row *rows, int count,
                    double *seconds)
{
    double all[1 + DEVICE_ROWS][ROUNDS];
    int64_t calls[1 + DEVICE_ROWS];
    for (int i = 0; i < count; i++)
        calls[i] = calls_of_round(bench, &rows[i]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++)
            all[i][round] = calls_seconds(bench, &rows[i], calls[i]) / (double)calls[i];
    for (int i = 0; i < count; i++)
        seconds[i] = median(all[i], ROUNDS);
}

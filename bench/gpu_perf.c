/* SPDX-License-Identifier: MIT
 *
 * What the kernels of a GPU reach: memory-bound ones beside the speed at which the device copies
 * its own memory, and matrix products. Bytes are those that an operation must read and write at
 * least, once each. One JSON object on stdout; bench/gpu runs it. Runs on the simulated device too,
 * where its figures mean nothing. */
#include "config.h"

#include "bench/gpu_perf.h"
#include "core/clock.h"
#include "core/parse.h"
#include "kernels/bf16.h"
#include "kernels/linear.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 7
#define CHUNK  (1 << 20) /* floats that are drawn */

static void must(enum ddp_status status)
{
    if (status != DDP_OK)
        exit(EXIT_FAILURE); /* it has said why */
}

/* Between -1 and 1: zeros would let a GPU run products faster than any real numbers. */
static void fill(struct gpu_bench *bench, void *memory, size_t count)
{
    static float chunk[CHUNK];
    uint32_t state = 1;
    for (int i = 0; i < CHUNK; i++) {
        state = state * 1664525u + 1013904223u;
        chunk[i] = (float)(state >> 8) / 8388608.0f - 1;
    }
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t left = count - at < CHUNK ? count - at : CHUNK;
        must(ddp_device_copy_in(bench->device, (float *)memory + at, chunk, left * sizeof(float)));
    }
    must(ddp_device_synchronize(bench->device));
}

static void *device_memory(struct gpu_bench *bench, size_t bytes)
{
    void *memory;
    must(ddp_device_alloc(bench->device, bytes, &memory));
    return memory;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of one call. Calls are put on the stream one behind the other, enough of them that
 * the wait at the end does not count. */
static double seconds(struct gpu_bench *bench, gpu_operation *run)
{
    double all[ROUNDS];
    int64_t calls = 1;
    must(run(bench));
    must(ddp_device_synchronize(bench->device));
    for (int round = -1; round < ROUNDS;) {
        const int64_t begin = ddp_clock_ns();
        for (int64_t i = 0; i < calls; i++)
            must(run(bench));
        must(ddp_device_synchronize(bench->device));
        const double took = (double)(ddp_clock_ns() - begin) * 1e-9;
        if (round < 0 && took < bench->seconds && calls < 1 << 20) {
            calls *= 2;
            continue;
        }
        if (round >= 0)
            all[round] = took / (double)calls;
        round++;
    }
    qsort(all, ROUNDS, sizeof *all, compare);
    return all[ROUNDS / 2];
}

static enum ddp_status copy(struct gpu_bench *bench)
{
    return ddp_device_copy(bench->device, bench->memory[1], bench->memory[0],
                           (size_t)bench->count * sizeof(float));
}

static enum ddp_status product(struct gpu_bench *bench)
{
    const struct ddp_linear_forward args = {.rows = bench->product,
                                            .in = bench->product,
                                            .out = bench->product,
                                            .compute = bench->compute,
                                            .dtype = bench->activations,
                                            .x = bench->x,
                                            .weight = bench->weight,
                                            .weight_bf16 = bench->weight_bf16,
                                            .y = bench->y,
                                            .scratch = bench->product_scratch};
    return bench->kernels->linear_forward(&args, bench->stream);
}

static void round_to(const struct gpu_bench *bench, const float *from, void *to, size_t count)
{
    const struct ddp_to_bf16 args = {(int64_t)count, from, to};
    must(bench->kernels->to_bf16(&args, bench->stream));
}

/* FLOP/s of a square product, with operands and result as in training. */
static double product_speed(struct gpu_bench *bench, int64_t size, enum ddp_dtype compute)
{
    const size_t count = (size_t)size * (size_t)size;
    bench->product = size;
    bench->compute = compute;
    bench->activations =
        compute == DDP_BF16 && bench->kernels->bf16_activations ? DDP_BF16 : DDP_F32;
    const size_t scratch =
        ddp_linear_scratch_bytes(size, size, size, compute, bench->activations, true);
    bench->x = device_memory(bench, count * sizeof(float));
    bench->weight = device_memory(bench, count * sizeof(float));
    bench->y = device_memory(bench, count * sizeof(float));
    bench->weight_bf16 = NULL;
    bench->product_scratch = scratch ? device_memory(bench, scratch) : NULL;
    fill(bench, bench->x, count);
    fill(bench, bench->weight, count);
    if (compute == DDP_BF16) {
        bench->weight_bf16 = device_memory(bench, count * sizeof(uint16_t));
        round_to(bench, bench->weight, bench->weight_bf16, count);
    }
    if (bench->activations == DDP_BF16)
        round_to(bench, bench->weight, bench->x, count);
    const double took = seconds(bench, product);
    ddp_device_free(bench->device, bench->x, count * sizeof(float));
    ddp_device_free(bench->device, bench->weight, count * sizeof(float));
    ddp_device_free(bench->device, bench->y, count * sizeof(float));
    ddp_device_free(bench->device, bench->weight_bf16, count * sizeof(uint16_t));
    ddp_device_free(bench->device, bench->product_scratch, scratch);
    return 2.0 * (double)size * (double)size * (double)size / took;
}

static void measure(struct gpu_bench *bench, int64_t product_size)
{
    const double bytes = (double)bench->count * sizeof(float);
    const double copied = 2 * bytes / seconds(bench, copy);
    printf(
        "{\"device\": \"%s\", \"array_bytes\": %.0f, \"copy_bytes_per_s\": %.4g,\n \"kernels\": [",
        ddp_device_describe(bench->device), bytes, copied);
    for (int i = 0; i < gpu_rows_count; i++) {
        const struct gpu_row *row = &gpu_rows[i];
        const double took = seconds(bench, row->run);
        const double speed = row->bytes * (double)bench->count / took;
        printf("%s\n  {\"name\": \"%s\", \"seconds\": %.4g, \"bytes_per_s\": %.4g, "
               "\"share_of_copy\": %.3f}",
               i ? "," : "", row->name, took, speed, speed / copied);
        fflush(stdout);
    }
    printf("],\n \"products\": [");
    for (int i = 0; i < 4; i++) {
        const int64_t size = product_size << i / 2;
        const enum ddp_dtype compute = i % 2 ? DDP_F32 : DDP_BF16;
        printf("%s\n  {\"size\": %" PRId64 ", \"compute\": \"%s\", \"flop_per_s\": %.4g}",
               i ? "," : "", size, i % 2 ? "fp32" : "bf16", product_speed(bench, size, compute));
        fflush(stdout);
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    struct gpu_bench bench = {.seconds = 0.03};
    int64_t megabytes = 256, product_size = 8192, index = 0;
    for (int i = 1; i < argc; i += 2) {
        int64_t *const to = strcmp(argv[i], "--mebibytes") == 0 ? &megabytes
                            : strcmp(argv[i], "--product") == 0 ? &product_size
                            : strcmp(argv[i], "--device") == 0  ? &index
                                                                : NULL;
        if (!to || i + 1 == argc || !ddp_parse_int64(argv[i + 1], 0, 1 << 20, to)) {
            fprintf(stderr, "usage: gpu_perf [--mebibytes N] [--product N] [--device N]\n");
            return 2;
        }
    }
    bench.count = (megabytes << 20) / (int64_t)sizeof(float);
    must(ddp_device_open(&bench.device, "cuda", (int)index, 1));
    bench.kernels = ddp_device_kernels(bench.device);
    bench.stream = ddp_device_stream(bench.device);
    if (megabytes < 16)
        bench.seconds = 0; /* to see that it works */
    const size_t bytes = (size_t)bench.count * sizeof(float);
    for (int i = 0; i < GPU_ARRAYS; i++) {
        bench.memory[i] = device_memory(&bench, bytes);
        fill(&bench, bench.memory[i], (size_t)bench.count);
    }
    gpu_rows_open(&bench, device_memory);
    measure(&bench, product_size);
    gpu_rows_close(&bench);
    for (int i = 0; i < GPU_ARRAYS; i++)
        ddp_device_free(bench.device, bench.memory[i], bytes);
    ddp_device_close(bench.device);
    return 0;
}

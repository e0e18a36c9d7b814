/* SPDX-License-Identifier: MIT
 *
 * The rows of gpu_perf: operations on arrays of one size in the memory of a device. */
#ifndef DDP_BENCH_GPU_PERF_H
#define DDP_BENCH_GPU_PERF_H

#include "device/device.h"

#define GPU_ARRAYS 5

struct gpu_bench {
    ddp_device *device;
    const struct ddp_kernels *kernels;
    void *stream;
    double seconds;            /* of a round of calls, at least */
    int64_t count;             /* floats of each array */
    float *memory[GPU_ARRAYS]; /* numbers between -1 and 1 */
    /* What rows need besides. */
    int32_t *tokens, *labels;
    float *statistics, *channels;
    double *sums;
    uint8_t *chosen;
    void *scratch;
    size_t scratch_bytes;
    /* Of products. */
    int64_t product;
    enum ddp_dtype compute, activations;
    void *x, *y; /* of activations */
    float *weight;
    uint16_t *weight_bf16;
    void *product_scratch;
};

typedef enum ddp_status gpu_operation(struct gpu_bench *bench);

struct gpu_row {
    const char *name;
    double bytes; /* for each float of an array, read and written */
    gpu_operation *run;
};

extern const struct gpu_row gpu_rows[];
extern const int gpu_rows_count;

void gpu_rows_open(struct gpu_bench *bench,
                   void *(*device_memory)(struct gpu_bench *bench, size_t bytes));
void gpu_rows_close(struct gpu_bench *bench);

#endif

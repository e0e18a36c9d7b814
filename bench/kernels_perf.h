/* SPDX-License-Identifier: MIT
 *
 * The operations that kernels_perf measures, on arrays of one size in the memory of a device. */
#ifndef DDP_BENCH_KERNELS_PERF_H
#define DDP_BENCH_KERNELS_PERF_H

#include "device/device.h"

#define BENCH_ARRAYS  5
#define BENCH_SQUARES 3 /* of them, the second moments: only the optimizer writes them */

struct device_bench {
    ddp_device *device;
    const struct ddp_kernels *kernels;
    void *stream;
    int64_t count;               /* floats of each array */
    float *memory[BENCH_ARRAYS]; /* numbers from -1 to 1; BENCH_SQUARES from 0 to 2 */
    /* What some operations need besides. */
    int32_t *tokens, *labels;
    float *statistics, *channels, *positions;
    double *sums;
    uint8_t *chosen;
    void *scratch;
    /* Of products. */
    int64_t product;
    enum ddp_dtype compute, activations;
    void *x, *y; /* of activations */
    float *weight;
    uint16_t *weight_bf16;
    void *product_scratch;
};

typedef enum ddp_status device_operation(struct device_bench *bench);

struct device_row {
    const char *name;
    double bytes; /* for each float of an array, read and written */
    device_operation *run;
};

#define DEVICE_ROWS 23
extern const struct device_row device_rows[DEVICE_ROWS];

/* Device memory, freed at the end. */
void *device_memory(struct device_bench *bench, size_t bytes);

/* Gets what the operations need besides the arrays. */
void device_rows_open(struct device_bench *bench);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The operations that kernels_perf measures: memory-bound ones on arrays of one size in the memory
 * of a device (operations.c), and the layers of models that compute (layers.c). */
#ifndef DDP_BENCH_KERNELS_PERF_H
#define DDP_BENCH_KERNELS_PERF_H

#include "device/device.h"

#define BENCH_ARRAYS  5
#define BENCH_SQUARES 3 /* of them, the second moments: only the optimizer writes them */
#define BENCH_HALVES  4

struct device_bench {
    ddp_device *device;
    const struct ddp_kernels *kernels;
    void *stream;
    double round_seconds;           /* of calls that are timed together, at least */
    int64_t count;                  /* floats of each array */
    float *memory[BENCH_ARRAYS];    /* numbers from -1 to 1; BENCH_SQUARES from 0 to 2 */
    uint16_t *halves[BENCH_HALVES]; /* bf16, where the device has operations on it: from -1 to 1,
                                       the last from -2 to 0 */
    enum ddp_dtype dtype;           /* of the row that runs */
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
    const struct device_layer *layer;
};

typedef enum ddp_status device_operation(struct device_bench *bench);

struct device_row {
    const char *name;
    double bytes; /* for each number of an array, read and written */
    device_operation *run;
    enum ddp_dtype dtype; /* of activations; bf16 ones stand last */
};

#define DEVICE_ROWS 32 /* at most */
extern const struct device_row device_rows[];
int device_row_count(const struct device_bench *bench);

/* Device memory, freed by device_release(), which leaves the first `left` pieces. */
void *device_memory(struct device_bench *bench, size_t bytes);
size_t device_pieces(void);
void device_release(struct device_bench *bench, size_t left);

/* `count` numbers from `least` to least + 2. */
void device_fill(struct device_bench *bench, void *memory, size_t count, float least);

/* `count` numbers of bf16 from `least` to least + 2. */
void device_fill_bf16(struct device_bench *bench, uint16_t *memory, size_t count, float least);

/* Median seconds of one call of each row. */
void device_measure(struct device_bench *bench, const struct device_row *rows, int count,
                    double *seconds);

/* Gets what the operations need besides the arrays. */
void device_rows_open(struct device_bench *bench);

/* What layers have: GPT-2's tokens, and images. */
struct device_sizes {
    int64_t batch, length, images;
    bool tiny; /* few channels too */
};

/* Measures the products of GPT-2's layers, its attention or ResNet-18's convolutions, in bf16, and
 * prints a JSON object for each, commas between them.
 *   kind  "products", "attention" or "convolution" */
void device_layers_print(struct device_bench *bench, const struct device_sizes *sizes,
                         const char *kind, bool *first);

#endif

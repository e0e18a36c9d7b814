/* SPDX-License-Identifier: MIT
 *
 * What the tests of CUDA devices share: a device, memory on it, an operation. */
#ifndef DDP_TESTS_CUDA_DEVICE_TEST_H
#define DDP_TESTS_CUDA_DEVICE_TEST_H

#include "kernels/add.h"
#include "tests/cuda/cuda_test.h"

#define N 1000 /* elements of an operation */

static inline ddp_device *open_device(int index)
{
    ddp_device *device;
    ck_assert_int_eq(ddp_device_open(&device, "cuda", index, 1), DDP_OK);
    return device;
}

static inline void *allocate(ddp_device *device, size_t bytes)
{
    void *memory;
    ck_assert_int_eq(ddp_device_alloc(device, bytes, &memory), DDP_OK);
    return memory;
}

/* y = a + b, or y += a + b, on the device. */
static inline enum ddp_status add(ddp_device *device, const float *a, const float *b, float *y,
                                  bool accumulate)
{
    const struct ddp_add args = {
        .count = N, .dtype = DDP_F32, .a = a, .b = b, .y = y, .accumulate = accumulate};
    return ddp_device_kernels(device)->add(&args, ddp_device_stream(device));
}

static inline void fill(float *host, float value)
{
    for (int i = 0; i < N; i++)
        host[i] = value;
}

#endif

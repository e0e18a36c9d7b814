/* SPDX-License-Identifier: MIT
 *
 * An array twice, for tests of CUDA operations: of the host, for the reference, and of the device.
 * `shift` elements behind an address that is aligned to 256 bytes. */
#ifndef DDP_TESTS_CUDA_PAIR_H
#define DDP_TESTS_CUDA_PAIR_H

#include "tests/cuda_kernels_test.h"

struct pair {
    float *host, *device;
    int64_t count;
    size_t shift;
};

/* The same random numbers on both sides. */
static inline struct pair pair_of(int64_t count, size_t shift)
{
    float *host = array_of(count);
    return (struct pair){host, cuda_floats(host, count, shift), count, shift};
}

/* For results: random numbers of the host, NaN on the device; the same on both with `same`. */
static inline struct pair pair_out(int64_t count, size_t shift, bool same)
{
    if (same)
        return pair_of(count, shift);
    float *host = array_of(count);
    return (struct pair){host, cuda_memory((size_t)count * sizeof *host, shift * sizeof *host),
                         count, shift};
}

/* The device's becomes the host's again. */
static inline void pair_send(const struct pair *pair)
{
    cuda_put(pair->device, pair->host, (size_t)pair->count * sizeof *pair->host);
}

static inline void pair_near(const char *what, const struct pair *pair, double tolerance)
{
    cuda_expect_near(what, pair->device, pair->host, pair->count, tolerance, tolerance);
}

static inline void pair_free(struct pair *pair)
{
    array_free(pair->host, pair->count);
}

/* The bits that are on the device now, to be compared after a second run. */
static inline float *pair_fetch(const struct pair *pair)
{
    float *values = array_of(pair->count);
    cuda_get(values, pair->device, (size_t)pair->count * sizeof *values);
    return values;
}

static inline void pair_same(const char *what, const struct pair *pair, float *before)
{
    cuda_expect_bits(what, pair->device, before, pair->count);
    array_free(before, pair->count);
}

/* 64-byte aligned memory that holds nothing; NULL for 0 bytes. */
static inline void *scratch_of(size_t bytes)
{
    return bytes > 0 ? cuda_memory(bytes, 0) : NULL;
}

#endif

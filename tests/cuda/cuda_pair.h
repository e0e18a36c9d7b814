/* SPDX-License-Identifier: MIT
 *
 * An array twice, for tests of CUDA operations: floats of the host, for the reference, and float32
 * or bf16 of the device; `shift` elements behind an address that is aligned to 256 bytes. The
 * host's numbers are ones that the device's type has, where the device is given them. */
#ifndef DDP_TESTS_CUDA_PAIR_H
#define DDP_TESTS_CUDA_PAIR_H

#include "tests/cuda/cuda_kernels_test.h"
#include "tests/cuda/cuda_test.h"

struct pair {
    float *host;
    void *device;
    int64_t count;
    size_t shift;
    enum ddp_dtype dtype; /* on the device */
};

/* The same random numbers on both sides. */
static inline struct pair pair_of_type(enum ddp_dtype dtype, int64_t count, size_t shift)
{
    float *host = array_of(count);
    return (struct pair){host, cuda_numbers(dtype, host, count, shift), count, shift, dtype};
}

/* For results: random numbers of the host, NaN on the device; the same on both with `same`. */
static inline struct pair pair_out_type(enum ddp_dtype dtype, int64_t count, size_t shift,
                                        bool same)
{
    if (same)
        return pair_of_type(dtype, count, shift);
    const size_t size = ddp_dtype_bytes(dtype);
    return (struct pair){array_of(count), cuda_memory((size_t)count * size, shift * size), count,
                         shift, dtype};
}

static inline struct pair pair_of(int64_t count, size_t shift)
{
    return pair_of_type(DDP_F32, count, shift);
}

static inline struct pair pair_out(int64_t count, size_t shift, bool same)
{
    return pair_out_type(DDP_F32, count, shift, same);
}

/* The device's becomes the host's again, which is rounded to the device's type. */
static inline void pair_send(const struct pair *pair)
{
    cuda_put_numbers(pair->dtype, pair->device, pair->host, pair->count);
}

/* bf16 may be off by its rounding too. */
static inline void pair_near(const char *what, const struct pair *pair, double tolerance)
{
    cuda_expect_near_type(what, pair->dtype, pair->device, pair->host, pair->count, tolerance,
                          pair->dtype == DDP_BF16 ? tolerance + 0x1p-8 : tolerance);
}

/* What is allowed besides where a bias, or what was there, was added: some of cublasLt's
 * algorithms round the product to bf16 before they add to it, and the sum again (seen on an H100,
 * of cublasLt alone). */
static inline double rounded_twice(const struct pair *sum, bool added)
{
    return cuda_test_simulated() || !added || sum->dtype != DDP_BF16
               ? 0
               : 0x1p-8 * largest_size(sum->host, sum->count);
}

/* The device's numbers are the host's, rounded. */
static inline void pair_equal(const char *what, const struct pair *pair)
{
    cuda_expect_bits_type(what, pair->dtype, pair->device, pair->host, pair->count);
}

static inline void pair_free(struct pair *pair)
{
    array_free(pair->host, pair->count);
}

/* The numbers that are on the device now, to be compared after a second run. */
static inline float *pair_fetch(const struct pair *pair)
{
    return cuda_fetch(pair->dtype, pair->device, pair->count);
}

static inline void pair_same(const char *what, const struct pair *pair, float *before)
{
    cuda_expect_bits_type(what, pair->dtype, pair->device, before, pair->count);
    free(before);
}

/* Tries a quarter of the 32 ways for each shape, in which any two of the five bits take all values.
 * Four successive shapes try all ways. */
static inline bool pair_is_tried(size_t shape, int way)
{
    const unsigned w = (unsigned)way, s = (unsigned)shape;
    return ((w >> 3 ^ w >> 1 ^ w ^ s) & 1) == 0 && ((w >> 4 ^ w >> 2 ^ w ^ s >> 1) & 1) == 0;
}

/* 64-byte aligned memory that holds nothing; NULL for 0 bytes. */
static inline void *scratch_of(size_t bytes)
{
    return bytes > 0 ? cuda_memory(bytes, 0) : NULL;
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * What the tests of the CUDA operations share: each operation is compared with the CPU's on copies
 * of the same arrays, on the simulated device or a real one (cuda_test.h). A file of tests adds its
 * cases in a function of its own, called by test_suite() in check_cuda_kernels.c. */
#ifndef DDP_TESTS_CUDA_KERNELS_TEST_H
#define DDP_TESTS_CUDA_KERNELS_TEST_H

#include "device/device.h"
#include "kernels/kernels.h"
#include "tests/kernels/kernels_test.h"

/* Of the running test: device 0, its table and its stream. */
extern ddp_device *cuda;
extern const struct ddp_kernels *on_cuda;
extern void *cuda_stream;

/* A case whose tests have the device open, with our own kernels alone. */
TCase *cuda_case(Suite *suite, const char *name);
/* For others: opens it, with cuDNN if that is there, and closes it. */
void cuda_open_cudnn(void);
void cuda_close(void);

/* Memory on the device, until the test ends; then what lies before and behind it must be as it was.
 * It starts `shift` bytes behind an address that is aligned to 256; 0xff fills it, which is NaN. */
void *cuda_memory(size_t bytes, size_t shift);
/* Likewise, with a copy of `bytes` of the host. NULL: NULL. */
void *cuda_copy(const void *host, size_t bytes, size_t shift);
/* Copies back; what was on the stream is done then. */
void cuda_get(void *host, const void *device, size_t bytes);
/* Fills host memory again. */
void cuda_put(void *device, const void *host, size_t bytes);

/* Arrays of float32 or bf16 on the device are arrays of float on the host. To the device: host[] is
 * rounded to what the device gets. */
void *cuda_numbers(enum ddp_dtype dtype, float *host, int64_t count, size_t shift);
void cuda_put_numbers(enum ddp_dtype dtype, void *device, float *host, int64_t count);
/* Back, in memory to be freed. */
float *cuda_fetch(enum ddp_dtype dtype, const void *device, int64_t count);

static inline float *cuda_floats(const float *host, int64_t count, size_t shift)
{
    return cuda_copy(host, (size_t)count * sizeof *host, shift * sizeof *host);
}

/* The device does not have the bits of expected[], rounded to its type: fails with the first such
 * element. */
void cuda_expect_bits_type(const char *what, enum ddp_dtype dtype, const void *device,
                           const float *expected, int64_t count);
/* |device - expected| <= absolute + relative * |expected|; NaN only where it is expected. */
void cuda_expect_near_type(const char *what, enum ddp_dtype dtype, const void *device,
                           const float *expected, int64_t count, double absolute, double relative);

static inline void cuda_expect_bits(const char *what, const float *device, const float *expected,
                                    int64_t count)
{
    cuda_expect_bits_type(what, DDP_F32, device, expected, count);
}

static inline void cuda_expect_near(const char *what, const float *device, const float *expected,
                                    int64_t count, double absolute, double relative)
{
    cuda_expect_near_type(what, DDP_F32, device, expected, count, absolute, relative);
}

/* Sizes around everything that work is cut by. */
#define CUDA_SIZES 22
extern const int64_t cuda_sizes[CUDA_SIZES];

/* The files of tests. */
void cuda_element_cases(Suite *suite);
void cuda_optimizer_cases(Suite *suite);
void cuda_row_cases(Suite *suite);
void cuda_entropy_cases(Suite *suite);
void cuda_preference_cases(Suite *suite);
void cuda_layer_cases(Suite *suite);
void cuda_attention_cases(Suite *suite);
void cuda_image_cases(Suite *suite);
void cuda_cudnn_cases(Suite *suite);

#endif

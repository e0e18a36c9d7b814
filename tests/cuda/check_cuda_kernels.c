/* SPDX-License-Identifier: MIT
 *
 * The CUDA operations against the CPU's: the device, its memory and the comparisons; the tests are
 * in cuda_*.c. */
#include "config.h"

#include "kernels/bf16.h"
#include "tests/cuda/cuda_kernels_test.h"
#include "tests/cuda/cuda_test.h"

#define GUARD_BYTES 256
#define FILLING     0xff

ddp_device *cuda;
const struct ddp_kernels *on_cuda;
void *cuda_stream;

const int64_t cuda_sizes[CUDA_SIZES] = {0,    1,    2,    3,    4,    5,    7,   8,
                                        31,   32,   33,   127,  255,  256,  257, 1000,
                                        1023, 1024, 1025, 4097, 8192, 33333};

static struct memory {
    struct memory *next;
    unsigned char *all; /* guard, shift, bytes, guard */
    size_t bytes, shift;
} * memories;

static size_t whole(const struct memory *memory)
{
    return memory->bytes + memory->shift + (size_t)2 * GUARD_BYTES;
}

void cuda_open_cudnn(void)
{
    ck_assert_int_eq(ddp_device_open(&cuda, "cuda", 0, 1), DDP_OK);
    on_cuda = ddp_device_kernels(cuda);
    cuda_stream = ddp_device_stream(cuda);
}

static void cuda_open(void)
{
    setenv("DDP_CUDNN", "0", 1);
    cuda_open_cudnn();
}

static void expect_filling(const unsigned char *bytes, size_t count, const struct memory *memory,
                           const char *where)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != FILLING)
            ck_abort_msg("written %s %zu bytes of the device", where, memory->bytes);
}

static void memory_free(struct memory *memory)
{
    unsigned char *host = malloc(whole(memory));
    ck_assert_ptr_nonnull(host);
    cuda_get(host, memory->all, whole(memory));
    const size_t before = GUARD_BYTES + memory->shift;
    expect_filling(host, before, memory, "before");
    expect_filling(host + before + memory->bytes, GUARD_BYTES, memory, "behind");
    ddp_device_free(cuda, memory->all, whole(memory));
    free(host);
    free(memory);
}

void cuda_close(void)
{
    while (memories) {
        struct memory *memory = memories;
        memories = memory->next;
        memory_free(memory);
    }
    ddp_device_close(cuda);
}

TCase *cuda_case(Suite *suite, const char *name)
{
    TCase *tc = test_case(suite, name, 120);
    tcase_add_checked_fixture(tc, cuda_open, cuda_close);
    return tc;
}

void *cuda_memory(size_t bytes, size_t shift)
{
    struct memory *memory = calloc(1, sizeof *memory);
    ck_assert_ptr_nonnull(memory);
    memory->bytes = bytes;
    memory->shift = shift;
    void *all = NULL, *filling = malloc(whole(memory));
    ck_assert_ptr_nonnull(filling);
    ck_assert_int_eq(ddp_device_alloc(cuda, whole(memory), &all), DDP_OK);
    memset(filling, FILLING, whole(memory));
    cuda_put(all, filling, whole(memory));
    free(filling);
    memory->all = all;
    memory->next = memories;
    memories = memory;
    return memory->all + GUARD_BYTES + shift;
}

void *cuda_copy(const void *host, size_t bytes, size_t shift)
{
    if (!host)
        return NULL;
    void *memory = cuda_memory(bytes, shift);
    cuda_put(memory, host, bytes);
    return memory;
}

void cuda_get(void *host, const void *device, size_t bytes)
{
    if (bytes > 0)
        ck_assert_int_eq(ddp_device_copy_out(cuda, host, device, bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_OK);
}

void cuda_put(void *device, const void *host, size_t bytes)
{
    if (bytes > 0)
        ck_assert_int_eq(ddp_device_copy_in(cuda, device, host, bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_OK);
}

static float rounded(enum ddp_dtype dtype, float value)
{
    return dtype == DDP_BF16 ? ddp_bf16_to_f32(ddp_bf16_of(value)) : value;
}

void cuda_put_numbers(enum ddp_dtype dtype, void *device, float *host, int64_t count)
{
    if (dtype == DDP_F32) {
        cuda_put(device, host, (size_t)count * sizeof *host);
        return;
    }
    uint16_t *values = malloc((size_t)(count + 1) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = ddp_bf16_of(host[i]);
        host[i] = rounded(dtype, host[i]);
    }
    cuda_put(device, values, (size_t)count * sizeof *values);
    free(values);
}

void *cuda_numbers(enum ddp_dtype dtype, float *host, int64_t count, size_t shift)
{
    const size_t size = ddp_dtype_bytes(dtype);
    void *device = cuda_memory((size_t)count * size, shift * size);
    cuda_put_numbers(dtype, device, host, count);
    return device;
}

float *cuda_fetch(enum ddp_dtype dtype, const void *device, int64_t count)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    uint16_t *stored = malloc((size_t)(count + 1) * sizeof *stored);
    ck_assert(values && stored);
    if (dtype == DDP_F32)
        cuda_get(values, device, (size_t)count * sizeof *values);
    else
        cuda_get(stored, device, (size_t)count * sizeof *stored);
    for (int64_t i = 0; i < count && dtype == DDP_BF16; i++)
        values[i] = ddp_bf16_to_f32(stored[i]);
    free(stored);
    return values;
}

void cuda_expect_bits_type(const char *what, enum ddp_dtype dtype, const void *device,
                           const float *expected, int64_t count)
{
    float *values = cuda_fetch(dtype, device, count);
    for (int64_t i = 0; i < count; i++) {
        const float wanted = rounded(dtype, expected[i]);
        const bool any_nan = dtype == DDP_BF16 && isnan(wanted) && isnan(values[i]);
        if (!any_nan && !same_bits(&values[i], &wanted, 1)) /* an assertion is a system call */
            ck_abort_msg("%s: element %lld of %lld is %.9g on the device, not %.9g", what,
                         (long long)i, (long long)count, (double)values[i], (double)wanted);
    }
    free(values);
}

void cuda_expect_near_type(const char *what, enum ddp_dtype dtype, const void *device,
                           const float *expected, int64_t count, double absolute, double relative)
{
    float *values = cuda_fetch(dtype, device, count);
    for (int64_t i = 0; i < count; i++) {
        const double got = (double)values[i], wanted = (double)expected[i];
        const bool near = isnan(wanted) ? isnan(got)
                                        : got == wanted || fabs(got - wanted) <=
                                                               absolute + relative * fabs(wanted);
        if (!near)
            ck_abort_msg("%s: element %lld of %lld is %.9g on the device, not %.9g", what,
                         (long long)i, (long long)count, got, wanted);
    }
    free(values);
}

Suite *test_suite(void)
{
    cuda_test_begin();
    Suite *suite = suite_create("cuda_kernels");
    cuda_element_cases(suite);
    cuda_optimizer_cases(suite);
    cuda_row_cases(suite);
    cuda_entropy_cases(suite);
    cuda_preference_cases(suite);
    cuda_layer_cases(suite);
    cuda_attention_cases(suite);
    cuda_image_cases(suite);
    cuda_cudnn_cases(suite);
    return suite;
}

/* SPDX-License-Identifier: MIT
 *
 * Which of cublasLt's algorithms a product takes on a CUDA device, and what happens when it refuses
 * them: a linear layer of small whole numbers, whose products are exact in any order. */
#include "config.h"

#include "core/crc32c.h"
#include "kernels/linear.h"
#include "tests/cuda/cuda_test.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, IN = 48, OUT = 56 };

struct layer {
    float x[ROWS * IN], weight[OUT * IN], bias[OUT], dy[ROWS * OUT];        /* given */
    float y[ROWS * OUT], dx[ROWS * IN], dweight[OUT * IN], exact[OUT * IN]; /* results */
};

static float *upload(ddp_device *device, const float *host, size_t count)
{
    void *memory;
    ck_assert_int_eq(ddp_device_alloc(device, count * sizeof *host, &memory), DDP_OK);
    if (host)
        ck_assert_int_eq(ddp_device_copy_in(device, memory, host, count * sizeof *host), DDP_OK);
    return memory;
}

static void download(ddp_device *device, float *host, float *memory, size_t count)
{
    ck_assert_int_eq(ddp_device_copy_out(device, host, memory, count * sizeof *host), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    ddp_device_free(device, memory, count * sizeof *host);
}

static void fill(float *array, int count, int seed, float unit)
{
    for (int i = 0; i < count; i++)
        array[i] = (float)((i * 7 + i / 5 * 3 + seed) % 5 - 2) * unit;
}

/* Forward and backward on the device.
 *   unit  of the numbers: with 1 the results are exact */
static void compute(struct layer *l, ddp_device *device, enum ddp_dtype compute, float unit)
{
    const struct ddp_kernels *kernels = ddp_device_kernels(device);
    fill(l->x, ROWS * IN, 1, unit);
    fill(l->weight, OUT * IN, 2, unit);
    fill(l->bias, OUT, 3, unit);
    fill(l->dy, ROWS * OUT, 4, unit);
    float *x = upload(device, l->x, ROWS * IN), *weight = upload(device, l->weight, OUT * IN);
    float *bias = upload(device, l->bias, OUT), *dy = upload(device, l->dy, ROWS * OUT);
    float *y = upload(device, NULL, ROWS * OUT), *dx = upload(device, NULL, ROWS * IN);
    float *dweight = upload(device, NULL, OUT * IN);
    const size_t scratch_bytes =
        ddp_linear_scratch_bytes(ROWS, IN, OUT, compute, DDP_F32, false) + sizeof(float);
    float *room = upload(device, NULL, scratch_bytes / sizeof(float));
    const struct ddp_linear_forward forward = {
        .rows = ROWS,
        .in = IN,
        .out = OUT,
        .compute = compute,
        .x = x,
        .weight = weight,
        .bias = bias,
        .y = y,
        .scratch = room,
    };
    const struct ddp_linear_backward backward = {
        .rows = ROWS,
        .in = IN,
        .out = OUT,
        .compute = compute,
        .x = x,
        .weight = weight,
        .dy = dy,
        .dx = dx,
        .dweight = dweight,
        .scratch = room,
    };
    ck_assert_int_eq(kernels->linear_forward(&forward, ddp_device_stream(device)), DDP_OK);
    ck_assert_int_eq(kernels->linear_backward(&backward, ddp_device_stream(device)), DDP_OK);
    download(device, l->y, y, ROWS * OUT);
    download(device, l->dx, dx, ROWS * IN);
    download(device, l->dweight, dweight, OUT * IN);
    download(device, l->x, x, ROWS * IN);
    download(device, l->weight, weight, OUT * IN);
    download(device, l->bias, bias, OUT);
    download(device, l->dy, dy, ROWS * OUT);
    ddp_device_free(device, room, scratch_bytes / sizeof(float) * sizeof(float));
}

static void expect(const char *what, const float *got, const float *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(got[i] == expected[i], "%s: element %zu is %g, expected %g", what, i,
                      (double)got[i], (double)expected[i]);
}

static void expect_exact(struct layer *l)
{
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            l->exact[r * OUT + o] = l->bias[o];
            for (int i = 0; i < IN; i++)
                l->exact[r * OUT + o] += l->x[r * IN + i] * l->weight[o * IN + i];
        }
    expect("y", l->y, l->exact, (size_t)ROWS * OUT);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < IN; i++) {
            l->exact[r * IN + i] = 0;
            for (int o = 0; o < OUT; o++)
                l->exact[r * IN + i] += l->dy[r * OUT + o] * l->weight[o * IN + i];
        }
    expect("dx", l->dx, l->exact, (size_t)ROWS * IN);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            l->exact[o * IN + i] = 0;
            for (int r = 0; r < ROWS; r++)
                l->exact[o * IN + i] += l->dy[r * OUT + o] * l->x[r * IN + i];
        }
    expect("dweight", l->dweight, l->exact, (size_t)OUT * IN);
}

static ddp_device *open_device(void)
{
    ddp_device *device;
    ck_assert_int_eq(ddp_device_open(&device, "cuda", 0, 1), DDP_OK);
    return device;
}

static int occurrences(const char *text, const char *words)
{
    int count = 0;
    for (; (text = strstr(text, words)) != NULL; text++)
        count++;
    return count;
}

static const enum ddp_dtype types[] = {DDP_F32, DDP_BF16};

/* Operands that span more elements than the library may count are cut; the limit is lowered, and
 * the simulated library insists on it. */
START_TEST(test_cut)
{
    static const char *const limits[] = {"100000", "2000", "700", "57"};
    static struct layer l;
    ddp_device *device = open_device();
    setenv("DDP_CUDASIM_SPAN", limits[_i / 2], 1);
    capture_start();
    compute(&l, device, types[_i % 2], 1);
    ddp_device_close(device);
    const char *said = capture_stop();
    expect_exact(&l);
    /* the transposed weight of forward cannot be cut */
    ck_assert_int_eq(occurrences(said, "too large for cublasLt"), _i / 2 > 0);
}
END_TEST

/* Refused algorithms give way to the next, in order; when none is left, to the plain kernel, which
 * is said once for a shape. */
START_TEST(test_refused)
{
    static const char *const refused[] = {"0", "1", "3", "4"};
    static struct layer l;
    char words[64];
    setenv("DDP_CUDASIM_ALGORITHMS", "4", 1);
    setenv("DDP_CUDASIM_REFUSE", refused[_i], 1);
    setenv("DDP_LOG", "debug", 1);
    ddp_device *device = open_device();
    capture_start();
    compute(&l, device, DDP_F32, 1);
    expect_exact(&l);
    compute(&l, device, DDP_F32, 1);
    expect_exact(&l);
    ddp_device_close(device);
    const char *said = capture_stop();
    const int number = atoi(refused[_i]);
    ck_assert_int_eq(occurrences(said, "is refused: cuBLAS status 15"), 3 * number);
    ck_assert_int_eq(occurrences(said, "warning: "), number == 4 ? 3 : 0);
    ck_assert_int_eq(occurrences(said, "computed by a plain kernel"), number == 4 ? 3 : 0);
    snprintf(words, sizeof words, "algorithm %d of 4, the first", number + 1);
    ck_assert_int_eq(occurrences(said, words), number == 4 ? 0 : 3);
    ck_assert_int_eq(occurrences(said, "product 40 x 56 x 48, B transposed, float32 to float32, "
                                       "bias: algorithm"),
                     number == 4 ? 4 : number + 1);
}
END_TEST

/* An error after an algorithm has once worked is one, whatever its number. */
START_TEST(test_late_error)
{
    static struct layer l;
    setenv("DDP_CUDASIM_ALGORITHMS", "4", 1);
    setenv("DDP_CUDASIM_FAIL", "cublasLtMatmul:4,cublasLtMatmul:8:14", 1); /* 3: the self-test's */
    ddp_device *device = open_device();
    compute(&l, device, DDP_F32, 1);
    expect_exact(&l);
    float *x = upload(device, l.x, ROWS * IN), *weight = upload(device, l.weight, OUT * IN);
    float *bias = upload(device, l.bias, OUT), *y = upload(device, NULL, ROWS * OUT);
    const struct ddp_linear_forward again = {
        .rows = ROWS, .in = IN, .out = OUT, .x = x, .weight = weight, .bias = bias, .y = y};
    capture_start();
    ck_assert_int_eq(ddp_device_kernels(device)->linear_forward(&again, ddp_device_stream(device)),
                     DDP_ERR_SYSTEM);
    one_message(capture_stop(), "cublasLtMatmul failed: ", "cuBLAS status 14");
    download(device, l.x, x, ROWS * IN);
    download(device, l.weight, weight, OUT * IN);
    download(device, l.bias, bias, OUT);
    download(device, l.y, y, ROWS * OUT);
    ddp_device_close(device);
}
END_TEST

/* A text of choices in which each product has the algorithm of the next. */
static void exchange_algorithms(char *text)
{
    char first[129] = "", *last = NULL;
    for (char *at = text; (at = strstr(at, "algorithm=")) != NULL; at = last) {
        if (last)
            memcpy(last, at + 10, 128);
        else
            memcpy(first, at + 10, 128);
        last = at + 10;
    }
    ck_assert_ptr_nonnull(last);
    memcpy(last, first, 128);
    for (char *line = text, *at; (at = strstr(line, " crc32c=")) != NULL; line = at + 17) {
        char sum[9];
        snprintf(sum, sizeof sum, "%08x", (unsigned)ddp_crc32c(line, (size_t)(at - line)));
        memcpy(at + 8, sum, 8);
    }
}

/* Choices that were made on one device hold on another; those that are none of their products are
 * not taken, whatever their checksum says. */
START_TEST(test_choices)
{
    static struct layer l, tuned, untuned;
    size_t damaged = 0;
    char *text;
    setenv("DDP_CUDASIM_ALGORITHMS", "4", 1);
    setenv("DDP_CUDASIM_FAST", "3", 1);
    ddp_device *device = open_device(), *other = open_device();
    compute(&untuned, device, DDP_F32, 0.1F);
    ck_assert_ptr_nonnull(strstr(ddp_device_choices_name(device), "products-Simulated-GPU-0-sm"));
    ddp_device_tune_begin(device, false);
    compute(&l, device, DDP_F32, 0.1F);
    ck_assert_int_eq(ddp_device_tune_end(device), 3);
    ddp_device_tune_begin(device, true);
    compute(&l, device, DDP_F32, 0.1F);
    ck_assert_int_eq(ddp_device_tune_end(device), 3);
    ddp_device_tune_begin(device, false);
    compute(&l, device, DDP_F32, 0.1F);
    ck_assert_int_eq(ddp_device_tune_end(device), 0);
    ck_assert_int_eq(ddp_device_choices_export(device, &text), DDP_OK);
    compute(&tuned, device, DDP_F32, 0.1F);
    ck_assert_int_ne(memcmp(tuned.y, untuned.y, sizeof tuned.y), 0);

    ck_assert_int_eq(ddp_device_choices_import(other, text, false, &damaged), DDP_OK);
    ck_assert_int_eq((int)damaged, 0);
    compute(&l, other, DDP_F32, 0.1F);
    ck_assert_mem_eq(l.y, tuned.y, sizeof l.y);
    ck_assert_mem_eq(l.dx, tuned.dx, sizeof l.dx);
    ck_assert_mem_eq(l.dweight, tuned.dweight, sizeof l.dweight);

    exchange_algorithms(text);
    ck_assert_int_eq(ddp_device_choices_import(other, text, true, &damaged), DDP_OK);
    ck_assert_int_eq((int)damaged, 0);
    compute(&l, other, DDP_F32, 0.1F);
    ck_assert_mem_eq(l.y, untuned.y, sizeof l.y);
    text[3]++;
    ck_assert_int_eq(ddp_device_choices_import(other, text, true, &damaged), DDP_OK);
    ck_assert_int_eq((int)damaged, 1);
    free(text);
    ddp_device_close(other);
    ddp_device_close(device);
}
END_TEST

/* A device that multiplies wrongly is not opened, unless it is to use plain kernels alone. */
START_TEST(test_self_test)
{
    static const struct {
        const char *wrong, *path, *advice;
    } cases[] = {
        {"float32", "by cublasLt in float32", "DDP_CUDA_PLAIN=1"},
        {"bf16", "by cublasLt in bf16", "DDP_CUDA_PLAIN=1"},
        {"mma", "by the tensor-core kernels", "NVCC_GENCODE"},
    };
    ddp_device *device;
    setenv("DDP_CUDASIM_WRONG", cases[_i].wrong, 1);
    capture_start();
    ck_assert_int_eq(ddp_device_open(&device, "cuda", 0, 1), DDP_ERR_SYSTEM);
    const char *said = capture_stop(), *warning = strstr(said, "warning: attention leaves ");
    if (warning) /* code for a GPU older than this one */
        said = strchr(warning, '\n') + 1;
    one_message(said, "GPU 0, of compute capability 9.0, multiplies wrongly ", cases[_i].path);
    ck_assert_ptr_nonnull(strstr(said, cases[_i].advice));
    setenv("DDP_CUDA_PLAIN", "1", 1);
    device = open_device();
    ddp_device_close(device);
}
END_TEST

/* With plain kernels, and when it is switched off, nothing is chosen. */
START_TEST(test_off)
{
    setenv(_i ? "DDP_CUDA_PLAIN" : "DDP_CUDA_TUNE", _i ? "1" : "0", 1);
    setenv("DDP_CUDASIM_ALGORITHMS", "4", 1);
    static struct layer l;
    ddp_device *device = open_device();
    ck_assert_ptr_null(ddp_device_choices_name(device));
    ddp_device_tune_begin(device, true);
    compute(&l, device, DDP_F32, 1);
    expect_exact(&l);
    ck_assert_int_eq(ddp_device_tune_end(device), 0);
    ddp_device_close(device);
}
END_TEST

Suite *test_suite(void)
{
    cuda_test_begin();
    if (!cuda_test_simulated()) {
        fputs("skipped: a GPU's library refuses nothing when told to\n", stderr);
        exit(TEST_SKIP);
    }
    Suite *suite = suite_create("cuda products");
    TCase *tc = test_case(suite, "cuda products", 120);
    if (!cuda_test_interpreted()) /* the limit of what nvcc compiled cannot be lowered */
        tcase_add_loop_test(tc, test_cut, 0, 8);
    tcase_add_loop_test(tc, test_refused, 0, 4);
    tcase_add_test(tc, test_late_error);
    tcase_add_test(tc, test_choices);
    tcase_add_loop_test(tc, test_off, 0, 2);
    tcase_add_loop_test(tc, test_self_test, 0, 3);
    return suite;
}

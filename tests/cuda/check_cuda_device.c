/* SPDX-License-Identifier: MIT
 *
 * device/cuda: copies, input slots, waiting, recording, several devices and threads, the trace.
 * Streams of the simulation do nothing until somebody waits, so that a missing order shows. */
#include "config.h"

#include "core/bf16.h"
#include "core/memory.h"
#include "kernels/embedding.h"
#include "kernels/softmax_cross_entropy.h"
#include "mode/frozen.h"
#include "tests/cuda/cuda_device_test.h"
#include "tests/lib/scratch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define MIB ((size_t)1 << 20)

static void expect_all(ddp_device *device, const float *memory, float value)
{
    float host[N];
    memset(host, 0xff, sizeof host);
    ck_assert_int_eq(ddp_device_copy_out(device, host, memory, sizeof host), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(host[i], value);
}

/* Who waits for a GPU naps for as long as it says. */
START_TEST(test_naps)
{
    ddp_device *device = open_device(0);
#ifdef PR_GET_TIMERSLACK
    ck_assert_int_le(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1000);
#endif
    ddp_device_close(device);
}
END_TEST

/* --- copies --- */

static const size_t sizes[] = {0,       1,           4097,         2 * MIB - 1,
                               2 * MIB, 2 * MIB + 1, 10 * MIB + 3, 16 * MIB};

static void pattern(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 7);
}

/* From ordinary memory, which may be written again at once, and from page-locked memory, which may
 * after copied(). */
START_TEST(test_copies)
{
    ddp_device *device = open_device(0);
    const size_t bytes = sizes[_i];
    unsigned char *expected = malloc(bytes + 1), *host = malloc(bytes + 1);
    void *locked, *memory = allocate(device, bytes);
    ck_assert_int_eq(ddp_device_host_alloc(device, bytes, &locked), DDP_OK);
    for (int i = 0; i < 4; i++) {
        pattern(expected, bytes, (unsigned)i);
        void *from = i & 1 ? locked : host, *to = i & 2 ? locked : host;
        memcpy(from, expected, bytes);
        ck_assert_int_eq(ddp_device_copy_in(device, memory, from, bytes), DDP_OK);
        if (i & 1)
            ck_assert_int_eq(ddp_device_copied(device), DDP_OK);
        memset(from, 0xee, bytes);
        memset(to, 0xdd, bytes);
        ck_assert_int_eq(ddp_device_copy_out(device, to, memory, bytes), DDP_OK);
        ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
        ck_assert(memcmp(to, expected, bytes) == 0);
    }
    ddp_device_host_free(device, locked, bytes);
    ddp_device_free(device, memory, bytes);
    ddp_device_close(device);
    free(expected);
    free(host);
}
END_TEST

/* Memory begins as zeros; many small copies out before one wait; an out between ins. */
START_TEST(test_order)
{
    ddp_device *device = open_device(0);
    float *x = allocate(device, N * sizeof *x), *y = allocate(device, N * sizeof *y);
    float host[N], seen[20] = {0};
    expect_all(device, x, 0);
    for (int i = 0; i < 20; i++) {
        fill(host, (float)i);
        ck_assert_int_eq(ddp_device_copy_in(device, x, host, sizeof host), DDP_OK);
        ck_assert_int_eq(add(device, x, NULL, y, true), DDP_OK);
        ck_assert_int_eq(ddp_device_copy_out(device, &seen[i], y + i, sizeof(float)), DDP_OK);
    }
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    for (int i = 0; i < 20; i++)
        ck_assert_float_eq(seen[i], (float)(i * (i + 1) / 2));
    ddp_device_free(device, x, N * sizeof *x);
    ddp_device_free(device, y, N * sizeof *y);
    ddp_device_close(device);
}
END_TEST

/* Inputs filled while others are read: neither too early, nor after the host has changed them. */
START_TEST(test_slots)
{
    ddp_device *device = open_device(0);
    const size_t bytes = N * sizeof(float);
    float *x[2] = {allocate(device, bytes), allocate(device, bytes)}, *y = allocate(device, bytes);
    float ordinary[N], *host = ordinary;
    void *locked;
    ck_assert_int_eq(ddp_device_host_alloc(device, bytes, &locked), DDP_OK);
    if (_i)
        host = locked;
    for (int i = 1; i <= 20; i++) {
        const int slot = i & 1;
        fill(host, (float)i);
        ck_assert_int_eq(ddp_device_fill(device, slot, x[slot], host, bytes), DDP_OK);
        ck_assert_int_eq(ddp_device_arrive(device, slot), DDP_OK);
        ck_assert_int_eq(add(device, x[slot], NULL, y, true), DDP_OK);
        ck_assert_int_eq(ddp_device_leave(device, slot), DDP_OK);
        ck_assert_int_eq(ddp_device_copied(device), DDP_OK);
    }
    expect_all(device, y, 210);
    ddp_device_host_free(device, locked, bytes);
    for (int i = 0; i < 2; i++)
        ddp_device_free(device, x[i], bytes);
    ddp_device_free(device, y, bytes);
    ddp_device_close(device);
}
END_TEST

/* An operation waits for its input even where the host does not. */
START_TEST(test_arrival)
{
    ddp_device *device = open_device(0);
    const size_t bytes = N * sizeof(float);
    float *y = allocate(device, bytes), *x[2] = {allocate(device, bytes), allocate(device, bytes)};
    void *locked;
    ck_assert_int_eq(ddp_device_host_alloc(device, 2 * bytes, &locked), DDP_OK);
    for (int slot = 0; slot < 2; slot++) {
        float *host = (float *)locked + slot * N;
        fill(host, (float)(slot + 1));
        ck_assert_int_eq(ddp_device_fill(device, slot, x[slot], host, bytes), DDP_OK);
        ck_assert_int_eq(ddp_device_arrive(device, slot), DDP_OK);
        ck_assert_int_eq(add(device, x[slot], NULL, y, true), DDP_OK);
        ck_assert_int_eq(ddp_device_leave(device, slot), DDP_OK);
    }
    expect_all(device, y, 3);
    ck_assert_int_eq(ddp_device_copied(device), DDP_OK);
    ddp_device_host_free(device, locked, 2 * bytes);
    for (int slot = 0; slot < 2; slot++)
        ddp_device_free(device, x[slot], bytes);
    ddp_device_free(device, y, bytes);
    ddp_device_close(device);
}
END_TEST

/* --- recording --- */

START_TEST(test_recording)
{
    ddp_device *device = open_device(0);
    const size_t bytes = N * sizeof(float);
    float *x = allocate(device, bytes), *y = allocate(device, bytes), host[N];
    void *work = NULL, *refused = device;
    fill(host, 1);
    ck_assert_int_eq(ddp_device_copy_in(device, x, host, bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_record_begin(device), DDP_OK);
    ck_assert_int_eq(add(device, x, NULL, y, true), DDP_OK);
    ck_assert_int_eq(add(device, y, NULL, y, true), DDP_OK);
    ck_assert_int_eq(ddp_device_record_end(device, &work), DDP_OK);
    ck_assert_ptr_nonnull(work);
    expect_all(device, y, 0); /* recorded, not run */
    ck_assert_int_eq(ddp_device_replay(device, work), DDP_OK);
    ck_assert_int_eq(ddp_device_replay(device, work), DDP_OK);
    expect_all(device, y, 6); /* (0 + 1) * 2 = 2, (2 + 1) * 2 = 6 */
    fill(host, 4);
    ck_assert_int_eq(ddp_device_copy_in(device, x, host, bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_replay(device, work), DDP_OK);
    expect_all(device, y, 20);
    ddp_device_recording_free(device, work);
    /* What the host takes part in cannot be recorded: nothing is, and nobody complains. */
    capture_start();
    ck_assert_int_eq(ddp_device_record_begin(device), DDP_OK);
    ck_assert_int_eq(ddp_device_record_begin(device), DDP_ERR_UNSUPPORTED);
    ck_assert_int_eq(ddp_device_copy_in(device, x, host, bytes), DDP_ERR_UNSUPPORTED);
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_ERR_UNSUPPORTED);
    ck_assert_int_eq(ddp_device_record_end(device, &refused), DDP_OK);
    ck_assert_str_eq(capture_stop(), "");
    ck_assert_ptr_null(refused);
    expect_all(device, y, 20);
    ddp_device_free(device, x, bytes);
    ddp_device_free(device, y, bytes);
    ddp_device_close(device);
}
END_TEST

START_TEST(test_no_recording)
{
    setenv(_i ? "DDP_CUDA_SYNC" : "DDP_CUDA_GRAPHS", _i ? "1" : "0", 1);
    ddp_device *device = open_device(0);
    ck_assert_int_eq(ddp_device_record_begin(device), DDP_ERR_UNSUPPORTED);
    ddp_device_close(device);
}
END_TEST

/* --- several devices, several threads --- */

static bool has_two(void)
{
    struct ddp_device_kind kind;
    return ddp_device_find(&kind, "cuda") == DDP_OK && kind.count >= 2;
}

/* One after the other, without the host waiting in between. */
START_TEST(test_two_devices)
{
    if (!has_two())
        return;
    ddp_device *first = open_device(0), *second = open_device(_i);
    const size_t bytes = N * sizeof(float);
    float *x = allocate(first, bytes), *y = allocate(second, bytes), host[N];
    fill(host, 3);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(ddp_device_copy_in(first, x, host, bytes), DDP_OK);
        ck_assert_int_eq(add(first, x, x, x, false), DDP_OK);
        ck_assert_int_eq(ddp_device_wait(second, first), DDP_OK);
        ck_assert_int_eq(ddp_device_copy(second, y, x, bytes), DDP_OK);
        ck_assert_int_eq(ddp_device_wait(first, second), DDP_OK);
    }
    expect_all(second, y, 6);
    ddp_device_free(first, x, bytes);
    ddp_device_free(second, y, bytes);
    ck_assert_ptr_nonnull(strstr(ddp_device_describe(first), "GiB"));
    ddp_device_close(first);
    ddp_device_close(second);
}
END_TEST

static void *work_alone(void *arg)
{
    ddp_device *device = open_device(*(int *)arg % (has_two() ? 2 : 1));
    const size_t bytes = N * sizeof(float);
    float *x = allocate(device, bytes), *y = allocate(device, bytes), host[N];
    void *work = NULL;
    ck_assert_int_eq(ddp_device_record_begin(device), DDP_OK);
    ck_assert_int_eq(add(device, x, NULL, y, true), DDP_OK);
    ck_assert_int_eq(ddp_device_record_end(device, &work), DDP_OK);
    for (int i = 0; i < 20; i++) {
        fill(host, (float)i);
        ck_assert_int_eq(ddp_device_copy_in(device, x, host, bytes), DDP_OK);
        ck_assert_int_eq(ddp_device_replay(device, work), DDP_OK);
        if (i % 4 == 0)
            ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    }
    expect_all(device, y, 190);
    ddp_device_recording_free(device, work);
    ddp_device_free(device, x, bytes);
    ddp_device_free(device, y, bytes);
    ddp_device_close(device);
    return NULL;
}

/* Threads with a device each, two of them the same GPU; then one device used by another thread. */
START_TEST(test_threads)
{
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work_alone, &numbers[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

static void *use_elsewhere(void *arg)
{
    void **args = arg;
    ck_assert_int_eq(add(args[0], args[1], args[1], args[1], false), DDP_OK);
    expect_all(args[0], args[1], 4);
    return NULL;
}

START_TEST(test_other_thread)
{
    ddp_device *device = open_device(has_two() ? 1 : 0), *other = open_device(0);
    float *x = allocate(device, N * sizeof *x), host[N];
    void *args[] = {device, x};
    pthread_t thread;
    fill(host, 2);
    ck_assert_int_eq(ddp_device_copy_in(device, x, host, sizeof host), DDP_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, use_elsewhere, args), 0);
    pthread_join(thread, NULL);
    ddp_device_free(device, x, N * sizeof *x);
    ddp_device_close(other);
    ddp_device_close(device);
}
END_TEST

/* --- bad data --- */

START_TEST(test_bad_token)
{
    ddp_device *device = open_device(0);
    const int32_t tokens[6] = {0, 1, 2, 0, 7, 1};
    void *t = allocate(device, sizeof tokens), *memory = allocate(device, 4096);
    const struct ddp_embedding_forward args = {.batch = 2,
                                               .length = 3,
                                               .features = 4,
                                               .vocabulary = 5,
                                               .tokens = t,
                                               .wte = memory,
                                               .y = (float *)memory + 64};
    ck_assert_int_eq(ddp_device_copy_in(device, t, tokens, sizeof tokens), DDP_OK);
    ck_assert_int_eq(
        ddp_device_kernels(device)->embedding_forward(&args, ddp_device_stream(device)), DDP_OK);
    capture_start();
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_ERR_INVALID);
    one_message(capture_stop(), "embedding: token 7 in row 1, place 1, but the vocabulary has 5",
                "");
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK); /* told once */
    ddp_device_free(device, t, sizeof tokens);
    ddp_device_free(device, memory, 4096);
    ddp_device_close(device);
}
END_TEST

START_TEST(test_bad_label)
{
    ddp_device *device = open_device(0);
    const int32_t labels[3] = {0, 3, 1};
    void *l = allocate(device, sizeof labels), *memory = allocate(device, 4096);
    const struct ddp_softmax_cross_entropy args = {.rows = 3,
                                                   .classes = 3,
                                                   .logits = memory,
                                                   .labels = l,
                                                   .loss = (float *)memory + 64,
                                                   .dlogits = memory};
    ck_assert_int_eq(ddp_device_copy_in(device, l, labels, sizeof labels), DDP_OK);
    ck_assert_int_eq(
        ddp_device_kernels(device)->softmax_cross_entropy(&args, ddp_device_stream(device)),
        DDP_OK);
    capture_start();
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_ERR_INVALID);
    one_message(capture_stop(), "softmax cross-entropy: label 3 in row 1, but there are 3 classes",
                "");
    ddp_device_free(device, l, sizeof labels);
    ddp_device_free(device, memory, 4096);
    ddp_device_close(device);
}
END_TEST

/* --- the trace --- */

START_TEST(test_trace)
{
    scratch_make();
    const char *path = scratch_path("trace");
    ddp_device *device = open_device(0);
    float *x = allocate(device, N * sizeof *x);
    ck_assert_int_eq(ddp_trace_open(path, 0, true), DDP_OK);
    ddp_trace_set_recording(true);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) {
            const int64_t begin = ddp_trace_begin();
            ddp_device_span_begin(device, begin);
            ck_assert_int_eq(add(device, x, x, x, false), DDP_OK);
            ddp_device_span_end(device, begin, "doubling", "output", "x");
        }
        ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    }
    ddp_trace_close(true);
    size_t bytes;
    char text[20000] = "";
    const char *content = scratch_read("trace", &bytes);
    ck_assert_uint_lt(bytes, sizeof text);
    memcpy(text, content, bytes);
    ck_assert_ptr_nonnull(strstr(text, "\"GPU 0 compute\""));
    int spans = 0;
    for (const char *at = text; (at = strstr(at, "\"doubling\"")) != NULL; at++)
        spans++;
    ck_assert_int_eq(spans, 12);
    ck_assert_ptr_null(strstr(text, "\"dur\":-"));
    ddp_device_free(device, x, N * sizeof *x);
    ddp_device_close(device);
    scratch_remove();
}
END_TEST

/* Frozen parameters and their copies of bf16; one of them is more than travels at once. */
START_TEST(test_frozen)
{
    enum { IN = 1100, OUT = 1000 };
    static float values[OUT * IN];
    static uint16_t rounded[OUT * IN];
    const struct ddp_init zeros = {.kind = DDP_INIT_ZEROS};
    ddp_device *device = open_device(0);
    struct ddp_frozen_host host;
    struct ddp_frozen frozen;
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){1, IN});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){1});
    ddp_graph_begin_frozen(graph, DDP_F32);
    ddp_tensor *weight = ddp_graph_parameter(graph, "w", 2, (int64_t[]){OUT, IN}, zeros);
    ddp_graph_end_frozen(graph);
    x = ddp_graph_linear(graph, x, weight, NULL, DDP_ACTIVATION_NONE);
    x = ddp_graph_linear_layer(graph, "fc", x, 3, true, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels)),
                     DDP_OK);
    ck_assert_int_eq(ddp_frozen_host_alloc(&host, graph, NULL, false, DDP_BF16), DDP_OK);
    for (int i = 0; i < OUT * IN; i++)
        ((float *)host.values)[i] = (float)i / 7;
    ck_assert_int_eq(ddp_frozen_host_complete(&host, graph, 1), DDP_OK);
    ck_assert_int_eq(ddp_frozen_open(&frozen, device, &host, graph, NULL, DDP_BF16), DDP_OK);
    ck_assert_int_eq(ddp_device_copy_out(device, values, frozen.values[0], sizeof values), DDP_OK);
    ck_assert_int_eq(ddp_device_copy_out(device, rounded, frozen.rounded[0], sizeof rounded),
                     DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    ck_assert_mem_eq(values, host.values, sizeof values);
    for (int i = 0; i < OUT * IN; i++)
        if (rounded[i] != ddp_bf16_of(values[i]))
            ck_abort_msg("%d is %x", i, rounded[i]);
    ddp_frozen_close(&frozen);
    ddp_frozen_host_free(&host);
    ddp_graph_destroy(graph);
    ddp_device_close(device);
}
END_TEST

START_TEST(test_no_such_device)
{
    ddp_device *device;
    capture_start();
    ck_assert_int_eq(ddp_device_open(&device, "cuda", 99, 1), DDP_ERR_UNSUPPORTED);
    one_message(capture_stop(), "there is no device 99", "");
}
END_TEST

Suite *test_suite(void)
{
    cuda_test_begin();
    Suite *suite = suite_create("cuda device");
    TCase *tc = test_case(suite, "cuda device", 120);
    tcase_add_loop_test(tc, test_copies, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(tc, test_naps);
    tcase_add_test(tc, test_order);
    tcase_add_loop_test(tc, test_slots, 0, 2);
    tcase_add_test(tc, test_arrival);
    tcase_add_test(tc, test_recording);
    tcase_add_loop_test(tc, test_no_recording, 0, 2);
    tcase_add_loop_test(tc, test_two_devices, 0, 2);
    tcase_add_test(tc, test_threads);
    tcase_add_test(tc, test_other_thread);
    tcase_add_test(tc, test_bad_token);
    tcase_add_test(tc, test_bad_label);
    tcase_add_test(tc, test_trace);
    tcase_add_test(tc, test_frozen);
    tcase_add_test(tc, test_no_such_device);
    return suite;
}

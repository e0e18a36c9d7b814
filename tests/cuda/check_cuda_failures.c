/* SPDX-License-Identifier: MIT
 *
 * device/cuda when something goes wrong, which the simulated CUDA does when told to: no device, no
 * memory, errors of the GPU, a wait that does not end, and each call that fails: one line each, and
 * nothing left behind. */
#include "config.h"

#include "tests/cuda/cuda_device_test.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>
#include <string.h>

/* Opening fails, in one line. */
static void expect_no_device(const char *words)
{
    ddp_device *device;
    capture_start();
    ck_assert_int_eq(ddp_device_open(&device, "cuda", 0, 1), DDP_ERR_UNSUPPORTED);
    one_message(capture_stop(), "--device cuda: ", words);
}

START_TEST(test_no_device)
{
    static const struct {
        const char *variable, *value, *words;
    } cases[] = {
        {"DDP_CUDASIM_DEVICES", "0", "no GPU"},
        {"CUDA_VISIBLE_DEVICES", "", "CUDA_VISIBLE_DEVICES=''"},
        {"DDP_CUDASIM_FAIL", "cudaGetDeviceCount:1:100", "no GPU"},
        {"DDP_CUDASIM_FAIL", "cudaGetDeviceCount:1:35", "too old: it supports CUDA up to 13.0"},
        {"DDP_CUDASIM_FAIL", "cudaGetDeviceCount:1:35,cudaDriverGetVersion:1", "no NVIDIA driver"},
        {"DDP_CUDASIM_FAIL", "cudaGetDeviceCount:1:999", "does not work"},
    };
    setenv(cases[_i].variable, cases[_i].value, 1);
    expect_no_device(cases[_i].words);
}
END_TEST

START_TEST(test_out_of_memory)
{
    setenv("DDP_CUDASIM_MEMORY", "104857600", 1); /* 100 MiB */
    ddp_device *device = open_device(0);
    void *memory = NULL;
    capture_start();
    ck_assert_int_eq(ddp_device_alloc(device, 1288490189, &memory), DDP_ERR_MEMORY);
    one_message(capture_stop(),
                "--device cuda: out of memory on GPU 0: 1.2 GiB needed, 0.1 GiB free",
                "a smaller --batch-size or more --acc-steps");
    memory = allocate(device, 1000); /* what fits can still be allocated */
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    ddp_device_free(device, memory, 1000);
    ddp_device_close(device);
}
END_TEST

/* An error that shows while the host waits, and one under DDP_CUDA_SYNC. */
START_TEST(test_words)
{
    static const struct {
        const char *fail, *sync, *words, *more;
    } cases[] = {
        {"cudaEventQuery:1:214", NULL, "GPU 0: ", "its memory is damaged"},
        {"cudaEventQuery:1:999", NULL, "GPU 0: ", "may be lost"},
        {"cudaEventQuery:1:700", NULL, "waiting for the GPU: ", "DDP_CUDA_SYNC=1"},
        {"cudaEventQuery:1:719", NULL, "waiting for the GPU: ", "DDP_CUDA_SYNC=1"},
        {"cudaStreamSynchronize:2:700", "1", "add: GPU 0: ", "error in the program"},
        {"cudaStreamSynchronize:2:719", "1", "add: GPU 0: ", "error in the program"},
    };
    setenv("DDP_CUDASIM_FAIL", cases[_i].fail, 1);
    if (cases[_i].sync)
        setenv("DDP_CUDA_SYNC", cases[_i].sync, 1);
    ddp_device *device = open_device(0);
    float *x = allocate(device, N * sizeof *x);
    capture_start();
    enum ddp_status status = add(device, x, x, x, false);
    if (status == DDP_OK)
        status = ddp_device_synchronize(device);
    ck_assert_int_eq(status, DDP_ERR_SYSTEM);
    one_message(capture_stop(), cases[_i].words, cases[_i].more);
    ddp_device_free(device, x, N * sizeof *x);
    ddp_device_close(device);
}
END_TEST

static enum ddp_status give_up(void *arg)
{
    int *calls = arg;
    return ++*calls == 3 ? DDP_ERR_ABORTED : DDP_OK;
}

/* What never ends is left when the poll says so; nothing is written to the host any more. */
START_TEST(test_poll)
{
    char fail[16 * 32] = "";
    for (int i = 1; i <= 9; i++)
        snprintf(fail + strlen(fail), sizeof fail - strlen(fail), "%scudaEventQuery:%d:600",
                 i > 1 ? "," : "", i);
    setenv("DDP_CUDASIM_FAIL", fail, 1);
    ddp_device *device = open_device(0);
    float *x = allocate(device, N * sizeof *x), host = 7;
    int calls = 0;
    ddp_device_set_poll(device, give_up, &calls);
    ck_assert_int_eq(ddp_device_copy_out(device, &host, x, sizeof host), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_ERR_ABORTED);
    ck_assert_int_eq(calls, 3);
    ddp_device_set_poll(device, NULL, NULL);
    ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    ck_assert_float_eq(host, 7);
    ddp_device_free(device, x, N * sizeof *x);
    ddp_device_close(device);
}
END_TEST

/* Everything that a device does, once or twice; ends at the first failure. */
static enum ddp_status everything(ddp_device *device, ddp_device *other, void *memory[3],
                                  float *result)
{
    const size_t bytes = N * sizeof(float);
    float host[N], *locked = memory[2], *x = memory[0], *y = memory[1];
    void *work = NULL;
    fill(host, 1);
    fill(locked, 2);
    enum ddp_status status = ddp_device_copy_in(device, x, host, bytes);
    if (status == DDP_OK)
        status = ddp_device_fill(device, 0, y, locked, bytes);
    if (status == DDP_OK)
        status = ddp_device_arrive(device, 0);
    if (status == DDP_OK && ddp_device_record_begin(device) == DDP_OK) {
        status = add(device, x, NULL, y, true);
        enum ddp_status end = ddp_device_record_end(device, &work);
        status = status == DDP_OK ? end : status;
    }
    if (status == DDP_OK)
        status = work ? ddp_device_replay(device, work) : add(device, x, NULL, y, true);
    if (status == DDP_OK)
        status = ddp_device_leave(device, 0);
    if (status == DDP_OK)
        status = ddp_device_copied(device);
    if (status == DDP_OK)
        status = ddp_device_copy_in(device, x, locked, bytes);
    if (status == DDP_OK)
        status = ddp_device_fill(device, 1, x, host, bytes);
    if (status == DDP_OK)
        status = ddp_device_arrive(device, 1);
    if (status == DDP_OK)
        status = ddp_device_wait(other, device);
    if (status == DDP_OK)
        status = ddp_device_wait(device, other);
    if (status == DDP_OK)
        status = ddp_device_copy(device, x, y, bytes);
    if (status == DDP_OK)
        status = ddp_device_copy_out(device, result, x, sizeof *result);
    if (status == DDP_OK)
        status = ddp_device_copy_out(device, locked, x, bytes);
    if (status == DDP_OK)
        status = ddp_device_synchronize(device);
    ddp_device_recording_free(device, work);
    return status;
}

static enum ddp_status from_beginning_to_end(float *result)
{
    const size_t bytes = N * sizeof(float);
    ddp_device *devices[2] = {NULL, NULL};
    void *memory[3] = {NULL, NULL, NULL};
    enum ddp_status status = ddp_device_open(&devices[0], "cuda", 0, 1);
    if (status == DDP_OK)
        status = ddp_device_open(&devices[1], "cuda", 1, 1);
    for (int i = 0; status == DDP_OK && i < 2; i++)
        status = ddp_device_alloc(devices[0], bytes, &memory[i]);
    if (status == DDP_OK)
        status = ddp_device_host_alloc(devices[0], bytes, &memory[2]);
    if (status == DDP_OK)
        status = everything(devices[0], devices[1], memory, result);
    if (devices[0]) {
        ddp_device_host_free(devices[0], memory[2], bytes);
        ddp_device_free(devices[0], memory[1], bytes);
        ddp_device_free(devices[0], memory[0], bytes);
    }
    ddp_device_close(devices[1]);
    ddp_device_close(devices[0]);
    return status;
}

/* Where the program is built to look for memory that nobody holds any more. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* In a process of its own, call `number` of a function fails. An error is one line; what is
 * not an error leaves the right result, and at most a warning.
 *   returns whether there are as many calls */
static bool fail_call(const char *function, int number)
{
    char fail[80], count_file[] = "/tmp/ddp-cuda-XXXXXX";
    snprintf(fail, sizeof fail, "%s:%d", function, number);
    int counter = mkstemp(count_file);
    ck_assert_int_ge(counter, 0);
    unlink(count_file);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        float result = 0;
        setenv("DDP_CUDASIM_FAIL", fail, 1);
        dup2(counter, STDERR_FILENO);
        enum ddp_status status = from_beginning_to_end(&result);
        if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
            _exit(3);
        _exit(status != DDP_OK ? 1 : result == 3 ? 0 : 2);
    }
    int status = -1;
    char text[2000] = "";
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_ge(pread(counter, text, sizeof text - 1, 0), 0);
    close(counter);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) < 2, "%s: ended with %d: %s", fail,
                  status, text);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    if (WEXITSTATUS(status) == 1)
        ck_assert_msg(lines == 1 && strstr(text, "error: "), "%s: not one error: %s", fail, text);
    else
        ck_assert_msg(lines == 0 || (lines == 1 && strstr(text, "warning: ")),
                      "%s: no error, but: %s", fail, text);
    return WEXITSTATUS(status) == 1 || lines == 1;
}

static const char *const functions[] = {
    "cudaGetDeviceCount",       "cudaSetDevice",
    "cudaGetDeviceProperties",  "cudaStreamCreateWithFlags",
    "cudaEventCreateWithFlags", "cudaHostAlloc",
    "cudaHostGetDevicePointer", "cudaMalloc",
    "cublasLtCreate",           "cudaMemsetAsync",
    "cudaMemcpyAsync",          "cudaEventRecord",
    "cudaEventQuery",           "cudaStreamWaitEvent",
    "cudaStreamBeginCapture",   "cudaStreamEndCapture",
    "cudaGraphInstantiate",     "cudaGraphLaunch",
    "cudaDeviceCanAccessPeer",  "cudaDeviceEnablePeerAccess",
    "cudaStreamSynchronize",
};

START_TEST(test_failures)
{
    for (int number = 1, quiet = 0; quiet < 5; number++)
        quiet = fail_call(functions[_i], number) ? 0 : quiet + 1;
}
END_TEST

/* The calls that must make an error are really called: the test above is not empty. */
START_TEST(test_failures_show)
{
    static const char *const sure[] = {"cudaGetDeviceProperties",  "cudaStreamCreateWithFlags",
                                       "cudaEventCreateWithFlags", "cudaMalloc",
                                       "cudaMemcpyAsync",          "cudaEventRecord",
                                       "cudaEventQuery",           "cudaStreamWaitEvent",
                                       "cudaGraphLaunch",          "cudaHostAlloc"};
    for (size_t i = 0; i < sizeof sure / sizeof *sure; i++)
        ck_assert_msg(fail_call(sure[i], 1), "%s", sure[i]);
}
END_TEST

Suite *test_suite(void)
{
    cuda_test_begin();
    if (!cuda_test_simulated()) {
        fputs("skipped: a GPU does not fail when told to\n", stderr);
        exit(TEST_SKIP);
    }
    Suite *suite = suite_create("cuda failures");
    TCase *tc = test_case(suite, "cuda failures", 120);
    tcase_add_loop_test(tc, test_no_device, 0, 6);
    tcase_add_test(tc, test_out_of_memory);
    tcase_add_loop_test(tc, test_words, 0, 6);
    tcase_add_test(tc, test_poll);
    tcase_add_loop_test(tc, test_failures, 0, sizeof functions / sizeof *functions);
    tcase_add_test(tc, test_failures_show);
    return suite;
}

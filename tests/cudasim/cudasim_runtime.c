/* SPDX-License-Identifier: MIT
 *
 * The simulated runtime behaves as CUDA's: errors, the order of streams, events, captures, limits,
 * and the faults that a test asks for. Each test is a process of its own and sets what the
 * simulation reads from the environment. */
#include "config.h"

#include "tests/cudasim/cudasim_test.h"

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Some tests look at what streams have not done yet, which ThreadSanitizer rightly calls a race. */
#ifdef CUDASIM_THREAD
#define LOOK_EARLY false
#else
#define LOOK_EARLY true
#endif

enum { COUNT = 1000 };

#define ck_cuda(call) ck_assert_int_eq(call, cudaSuccess)

static void setting(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    ck_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    ck_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static void *device(void)
{
    void *memory;
    ck_cuda(cudaMalloc(&memory, COUNT));
    return memory;
}

static unsigned char *pinned(void)
{
    void *memory;
    ck_cuda(cudaHostAlloc(&memory, COUNT, cudaHostAllocMapped));
    return memory;
}

START_TEST(devices)
{
    struct cudaDeviceProp properties;
    int count, value;
    setting("DDP_CUDASIM_DEVICES", "3");
    ck_cuda(cudaGetDeviceCount(&count));
    ck_assert_int_eq(count, 3);
    ck_cuda(cudaSetDevice(2));
    ck_assert_int_eq(cudaSetDevice(3), cudaErrorInvalidDevice);
    ck_cuda(cudaGetDevice(&value));
    ck_assert_int_eq(value, 2);
    ck_cuda(cudaGetDeviceProperties(&properties, 2));
    ck_assert_str_eq(properties.name, "Simulated GPU 2");
    ck_cuda(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    ck_assert_int_eq(value, properties.major);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
}
END_TEST

/* The names that the driver takes, and the first that means nothing ends the list. */
START_TEST(visible_devices)
{
    struct cudaDeviceProp properties;
    int count;
    setting("DDP_CUDASIM_DEVICES", "4");
    setting("CUDA_VISIBLE_DEVICES", "3,GPU-63756461-7369-6d00-0000-000000000001,9,0");
    ck_cuda(cudaGetDeviceCount(&count));
    ck_assert_int_eq(count, 2);
    ck_cuda(cudaGetDeviceProperties(&properties, 0));
    ck_assert_str_eq(properties.name, "Simulated GPU 3");
    ck_cuda(cudaGetDeviceProperties(&properties, 1));
    ck_assert_str_eq(properties.name, "Simulated GPU 1");
}
END_TEST

START_TEST(no_devices)
{
    void *memory;
    int count = 7;
    setting("CUDA_VISIBLE_DEVICES", "");
    ck_assert_int_eq(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    ck_assert_int_eq(count, 0);
    ck_assert_int_eq(cudaMalloc(&memory, 1), cudaErrorNoDevice);
    ck_cuda(cudaDriverGetVersion(&count));
}
END_TEST

START_TEST(after_fork)
{
    int status;
    ck_cuda(cudaFree(device()));
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        void *memory;
        _exit(cudaMalloc(&memory, 1) == cudaErrorInitializationError ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(memory_limit)
{
    size_t available, total;
    void *first, *second;
    setting("DDP_CUDASIM_MEMORY", "100000");
    ck_cuda(cudaMalloc(&first, 60000));
    ck_assert_int_eq(cudaMalloc(&second, 60000), cudaErrorMemoryAllocation);
    ck_cuda(cudaMemGetInfo(&available, &total));
    ck_assert_uint_eq(available, 40000);
    ck_assert_uint_eq(total, 100000);
    ck_cuda(cudaFree(first));
    ck_cuda(cudaMalloc(&second, 100000));
    ck_assert_uint_eq((uintptr_t)second % 32, 0);
    ck_cuda(cudaFree(second));
}
END_TEST

START_TEST(pointers)
{
    struct cudaPointerAttributes attributes;
    static char host[64];
    void *mapped, *memory = device();
    unsigned char *page_locked = pinned();
    ck_cuda(cudaPointerGetAttributes(&attributes, memory));
    ck_assert_int_eq(attributes.type, cudaMemoryTypeDevice);
    ck_cuda(cudaPointerGetAttributes(&attributes, page_locked + 3));
    ck_assert_int_eq(attributes.type, cudaMemoryTypeHost);
    ck_cuda(cudaPointerGetAttributes(&attributes, host));
    ck_assert_int_eq(attributes.type, cudaMemoryTypeUnregistered);
    ck_assert_int_eq(cudaHostGetDevicePointer(&mapped, host, 0), cudaErrorInvalidValue);
    ck_cuda(cudaHostRegister(host, sizeof host, cudaHostRegisterDefault));
    ck_assert_int_eq(cudaHostRegister(host, sizeof host, 0), cudaErrorHostMemoryAlreadyRegistered);
    ck_cuda(cudaHostGetDevicePointer(&mapped, host, 0));
    ck_cuda(cudaHostUnregister(host));
    ck_assert_int_eq(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
    ck_assert_int_eq(cudaFree(page_locked), cudaErrorInvalidValue);
    ck_cuda(cudaFreeHost(page_locked));
    ck_cuda(cudaFree(memory));
    ck_cuda(cudaFree(NULL));
}
END_TEST

/* Nothing has happened before something waits; after that, all has. */
START_TEST(lazy_streams)
{
    setting("DDP_CUDASIM_STREAMS", "lazy");
    unsigned char *host = pinned();
    void *memory = device();
    cudaStream_t stream = new_stream();
    memset(host, 1, COUNT);
    ck_cuda(cudaMemsetAsync(memory, 7, COUNT, stream));
    ck_cuda(cudaMemcpyAsync(host, memory, COUNT, cudaMemcpyDeviceToHost, stream));
    ck_assert_uint_eq(host[COUNT - 1], 1);
    ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorNotReady);
    ck_cuda(cudaStreamQuery(stream));
    ck_assert_uint_eq(host[COUNT - 1], 7);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorNotReady);
    ck_cuda(cudaStreamDestroy(stream));
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
}
END_TEST

START_TEST(eager_streams)
{
    setting("DDP_CUDASIM_STREAMS", "eager");
    unsigned char *host = pinned();
    void *memory = device();
    cudaStream_t stream = new_stream();
    ck_cuda(cudaMemsetAsync(memory, 7, COUNT, stream));
    ck_cuda(cudaMemcpyAsync(host, memory, COUNT, cudaMemcpyDeviceToHost, stream));
    ck_assert_uint_eq(host[COUNT - 1], 7);
    ck_cuda(cudaStreamQuery(stream));
}
END_TEST

/* A wait is for the record before it, whatever is recorded later; an event that was never recorded
 * is nothing to wait for. */
START_TEST(events)
{
    unsigned char *host = pinned();
    void *memory = device();
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t event = new_event(), timed[2];
    float milliseconds = -1;
    ck_cuda(cudaEventQuery(event));
    ck_cuda(cudaStreamWaitEvent(second, event, 0));
    ck_cuda(cudaMemsetAsync(memory, 1, COUNT, first));
    ck_cuda(cudaEventRecord(event, first));
    ck_cuda(cudaStreamWaitEvent(second, event, 0));
    ck_cuda(cudaMemsetAsync(memory, 2, COUNT, first));
    ck_cuda(cudaEventRecord(event, first));
    ck_cuda(cudaMemcpyAsync(host, memory, COUNT, cudaMemcpyDeviceToHost, second));
    ck_cuda(cudaStreamSynchronize(second));
    ck_assert_uint_eq(host[0], 1);
    ck_assert_int_eq(cudaEventQuery(event), cudaErrorNotReady);
    ck_cuda(cudaEventSynchronize(event));
    ck_cuda(cudaEventQuery(event));
    for (int i = 0; i < 2; i++) {
        ck_cuda(cudaEventCreate(&timed[i]));
        ck_cuda(cudaEventRecord(timed[i], first));
    }
    ck_assert_int_eq(cudaEventElapsedTime(&milliseconds, timed[0], timed[1]), cudaErrorNotReady);
    ck_cuda(cudaEventSynchronize(timed[1]));
    ck_cuda(cudaEventElapsedTime(&milliseconds, timed[0], timed[1]));
    ck_assert(milliseconds >= 0 && milliseconds < 10000);
    ck_assert_int_eq(cudaEventElapsedTime(&milliseconds, event, timed[1]),
                     cudaErrorInvalidResourceHandle);
    ck_cuda(cudaEventDestroy(timed[0]));
    ck_cuda(cudaEventDestroy(timed[1]));
    ck_cuda(cudaEventDestroy(event));
}
END_TEST

static void note(void *argument)
{
    ++*(int *)argument;
}

START_TEST(host_functions)
{
    cudaStream_t stream = new_stream();
    int calls = 0;
    ck_cuda(cudaLaunchHostFunc(stream, note, &calls));
    ck_cuda(cudaLaunchHostFunc(stream, note, &calls));
    ck_assert_int_eq(calls, 0);
    ck_cuda(cudaDeviceSynchronize());
    ck_assert_int_eq(calls, 2);
    ck_cuda(cudaLaunchHostFunc(stream, note, &calls));
    ck_cuda(cudaStreamDestroy(stream));
    ck_assert_int_eq(calls, 3);
}
END_TEST

/* The default stream and blocking streams wait for each other, a non-blocking one for neither. */
START_TEST(default_stream)
{
    unsigned char *host = pinned();
    void *memory = device();
    cudaStream_t blocking;
    ck_cuda(cudaStreamCreate(&blocking));
    ck_cuda(cudaMemsetAsync(memory, 1, COUNT, blocking));
    ck_cuda(cudaMemset(memory, 2, COUNT));
    ck_cuda(cudaMemcpyAsync(host, memory, COUNT, cudaMemcpyDeviceToHost, blocking));
    ck_cuda(cudaStreamSynchronize(blocking));
    ck_assert_uint_eq(host[0], 2);
    ck_cuda(cudaMemset(memory, 3, COUNT));
    cudaStream_t free_stream = new_stream();
    ck_cuda(cudaMemcpyAsync(host, memory, COUNT, cudaMemcpyDeviceToHost, free_stream));
    ck_cuda(cudaStreamSynchronize(free_stream));
    ck_assert_uint_eq(host[0], 2);
    ck_cuda(cudaMemcpy(host, memory, COUNT, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host[0], 3);
}
END_TEST

START_TEST(captures)
{
    enum cudaStreamCaptureStatus status;
    unsigned char *host = pinned();
    void *memory = device(), *more;
    cudaStream_t stream = new_stream(), other = new_stream();
    cudaEvent_t event = new_event();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ck_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ck_cuda(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
    ck_cuda(cudaMemsetAsync(memory, 5, COUNT, stream));
    ck_cuda(cudaMemcpyAsync(host, memory, COUNT, cudaMemcpyDeviceToHost, stream));
    ck_cuda(cudaStreamEndCapture(stream, &graph));
    ck_cuda(cudaGraphInstantiate(&exec, graph, 0));
    ck_cuda(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[0], 0xff);
    for (int i = 0; i < 2; i++) {
        memset(host, 0, COUNT);
        ck_cuda(cudaGraphLaunch(exec, stream));
        ck_cuda(cudaStreamSynchronize(stream));
        ck_assert_uint_eq(host[COUNT - 1], 5);
    }
    ck_cuda(cudaGraphExecDestroy(exec));
    ck_cuda(cudaGraphDestroy(graph));
    /* What waits or allocates spoils a capture. */
    ck_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ck_assert_int_eq(cudaMalloc(&more, 1), cudaErrorStreamCaptureUnsupported);
    ck_assert_int_eq(cudaMemsetAsync(memory, 5, COUNT, stream), cudaErrorStreamCaptureInvalidated);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    ck_assert_ptr_null(graph);
    /* A branch must come back. */
    ck_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    ck_cuda(cudaEventRecord(event, stream));
    ck_cuda(cudaStreamWaitEvent(other, event, 0));
    ck_cuda(cudaMemsetAsync(memory, 5, COUNT, other));
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    ck_assert_int_eq(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    /* What is not captured cannot be waited for inside. */
    ck_cuda(cudaEventRecord(event, other));
    ck_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    ck_assert_int_eq(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    ck_cuda(cudaEventDestroy(event));
}
END_TEST

START_TEST(injected_faults)
{
    void *memory;
    setting("DDP_CUDASIM_FAIL", "cudaMalloc:2,cudaMemsetAsync:1:700,cudaStreamSynchronize:2");
    cudaStream_t stream = new_stream();
    ck_cuda(cudaMalloc(&memory, COUNT));
    ck_assert_int_eq(cudaMalloc(&memory, COUNT), cudaErrorMemoryAllocation);
    ck_cuda(cudaMalloc(&memory, COUNT));
    ck_assert_int_eq(cudaMemsetAsync(memory, 0, COUNT, stream), cudaErrorIllegalAddress);
    ck_cuda(cudaMemsetAsync(memory, 0, COUNT, stream));
    ck_cuda(cudaStreamSynchronize(stream));
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorUnknown);
    ck_cuda(cudaStreamSynchronize(stream));
}
END_TEST

START_TEST(peers)
{
    void *here = device(), *there;
    int can;
    ck_cuda(cudaMemset(here, 9, COUNT));
    ck_cuda(cudaDeviceSynchronize());
    ck_cuda(cudaDeviceCanAccessPeer(&can, 0, 1));
    ck_assert_int_eq(can, 1);
    ck_cuda(cudaDeviceEnablePeerAccess(1, 0));
    ck_assert_int_eq(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    ck_cuda(cudaSetDevice(1));
    there = device();
    cudaStream_t stream = new_stream();
    unsigned char *host = pinned();
    ck_cuda(cudaMemcpyPeerAsync(there, 1, here, 0, COUNT, stream));
    ck_cuda(cudaMemcpyAsync(host, there, COUNT, cudaMemcpyDeviceToHost, stream));
    ck_cuda(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[COUNT - 1], 9);
}
END_TEST

void cudasim_runtime_tests(Suite *suite)
{
    TCase *tc = test_case(suite, "runtime", 60);
    tcase_add_test(tc, devices);
    tcase_add_test(tc, visible_devices);
    tcase_add_test(tc, no_devices);
    tcase_add_test(tc, after_fork);
    tcase_add_test(tc, memory_limit);
    tcase_add_test(tc, pointers);
    tcase_add_test(tc, captures);
    tcase_add_test(tc, injected_faults);
    tcase_add_test(tc, peers);
    if (LOOK_EARLY) {
        tcase_add_test(tc, lazy_streams);
        tcase_add_test(tc, eager_streams);
        tcase_add_test(tc, events);
        tcase_add_test(tc, host_functions);
        tcase_add_test(tc, default_stream);
    }
}

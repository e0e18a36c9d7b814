/* SPDX-License-Identifier: MIT
 *
 * NVIDIA GPUs: finding and opening them, waiting for them, the table of device.h. */
#include "config.h"

#include "cuda/state.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/self_test.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/kernels_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define MAX_GPUS 64

/* --- which GPUs there are --- */

static char no_device[256]; /* why count() was 0 last */
static bool faulty;         /* ... which is not that there is none */

static void explain_old_driver(void)
{
    int driver = 0, needed = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    (void)cudaRuntimeGetVersion(&needed);
    faulty = driver != 0;
    if (driver == 0)
        snprintf(no_device, sizeof no_device,
                 "there is no NVIDIA driver: install it (nvidia-smi then lists the GPUs)");
    else
        snprintf(no_device, sizeof no_device,
                 "the NVIDIA driver is too old: it supports CUDA up to %d.%d, and this build needs "
                 "%d.%d: update the driver",
                 driver / 1000, driver % 1000 / 10, needed / 1000, needed % 1000 / 10);
}

static void explain(cudaError_t error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    faulty = error != cudaSuccess && error != cudaErrorNoDevice;
    if (error == cudaErrorInsufficientDriver)
        explain_old_driver();
    else if ((error == cudaSuccess || error == cudaErrorNoDevice) && visible)
        snprintf(no_device, sizeof no_device,
                 "no GPU is visible with CUDA_VISIBLE_DEVICES='%.100s'", visible);
    else if (error == cudaSuccess || error == cudaErrorNoDevice)
        snprintf(no_device, sizeof no_device, "the NVIDIA driver finds no GPU");
    else
        snprintf(no_device, sizeof no_device,
                 "the NVIDIA driver does not work: %s (try nvidia-smi)", cudaGetErrorString(error));
}

static int cuda_count(void)
{
    int found = 0;
    cudaError_t error = cudaGetDeviceCount(&found);
    if (error == cudaSuccess && found > 0)
        return found;
    (void)cudaGetLastError();
    explain(error);
    return 0;
}

static const char *cuda_reason(void)
{
    return *no_device ? no_device : NULL;
}

static bool cuda_faulty(void)
{
    return faulty;
}

/* --- opening --- */

/* GPUs of this process read each other's memory where the machine can; copies go through the host
 * where not. Only those that are open: asking for it makes a context on both. */
static void use_peer(int index, int peer)
{
    int possible = 0;
    if (cudaDeviceCanAccessPeer(&possible, index, peer) == cudaSuccess && possible &&
        cudaSetDevice(index) == cudaSuccess)
        (void)cudaDeviceEnablePeerAccess(peer, 0);
    (void)cudaGetLastError();
}

static void use_peers(const struct ddp_cuda_device *gpu)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool opened[MAX_GPUS];
    const int own = gpu->cuda.index;
    pthread_mutex_lock(&mutex);
    for (int peer = 0; peer < MAX_GPUS && own < MAX_GPUS && !opened[own]; peer++)
        if (opened[peer]) {
            use_peer(own, peer);
            use_peer(peer, own);
        }
    if (own < MAX_GPUS)
        opened[own] = true;
    pthread_mutex_unlock(&mutex);
    ddp_cuda_use(gpu);
}

static cudaError_t describe_gpu(struct ddp_cuda_device *gpu)
{
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu->cuda.index);
    if (error != cudaSuccess)
        return error;
    gpu->cuda.capability = properties.major * 10 + properties.minor;
    snprintf(gpu->description, sizeof gpu->description, "%.255s, %.1f GiB", properties.name,
             (double)properties.totalGlobalMem / 0x1p30);
    ddp_cuda_name_choices(gpu, properties.name);
    return cudaSuccess;
}

static cudaError_t create_events(struct ddp_cuda_device *gpu)
{
    cudaEvent_t *const events[] = {&gpu->done,
                                   &gpu->marked,
                                   &gpu->handed,
                                   &gpu->read,
                                   &gpu->slots[0].filled,
                                   &gpu->slots[0].left,
                                   &gpu->slots[1].filled,
                                   &gpu->slots[1].left,
                                   &gpu->ahead,
                                   &gpu->joined};
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; error == cudaSuccess && i < sizeof events / sizeof *events; i++)
        error = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    return error;
}

static cudaError_t create_fault(struct ddp_cuda_device *gpu)
{
    cudaError_t error = cudaHostAlloc((void **)&gpu->fault, sizeof *gpu->fault,
                                      cudaHostAllocMapped | cudaHostAllocPortable);
    if (error != cudaSuccess)
        return error;
    memset(gpu->fault, 0, sizeof *gpu->fault);
    return cudaHostGetDevicePointer((void **)&gpu->cuda.fault, gpu->fault, 0);
}

static enum ddp_status create(struct ddp_cuda_device *gpu)
{
    cudaError_t error = cudaSetDevice(gpu->cuda.index);
    if (error == cudaSuccess)
        error = describe_gpu(gpu);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&gpu->cuda.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&gpu->filling, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&gpu->aside.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = create_events(gpu);
    if (error == cudaSuccess)
        error = create_fault(gpu);
    if (error == cudaSuccess)
        error = cudaMalloc(&gpu->cuda.workspace, DDP_CUDA_WORKSPACE_BYTES);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "--device cuda");
    cublasStatus_t blas = cublasLtCreate(&gpu->cuda.blas);
    if (blas != CUBLAS_STATUS_SUCCESS)
        return ddp_fail(DDP_ERR_SYSTEM, "--device cuda: GPU %d: cuBLAS cannot be used: %s",
                        gpu->cuda.index, cublasLtGetStatusString(blas));
    const cudaStream_t beside = gpu->aside.stream;
    gpu->aside = gpu->cuda;
    gpu->aside.stream = beside;
    use_peers(gpu);
    return ddp_cuda_self_test(&gpu->cuda, gpu->fault);
}

/* The thread that opens a GPU waits for it by naps of microseconds (wait.c, nccl_wait.c), which the
 * kernel otherwise makes 50 us longer. It also starts the threads that use the GPU of a replica,
 * which inherit it. */
static void nap_exactly(void)
{
#ifdef PR_SET_TIMERSLACK
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* else waits are a little longer */
#endif
}

static void cuda_close(void *state);

static enum ddp_status cuda_open(void **state, int index, int threads)
{
    (void)threads;
    struct ddp_cuda_device *gpu = ddp_array_alloc(1, sizeof *gpu);
    if (!gpu)
        return DDP_ERR_MEMORY;
    gpu->cuda.index = index;
    gpu->cuda.synchronous = ddp_cuda_is_set("DDP_CUDA_SYNC", "1");
    gpu->graphs = !gpu->cuda.synchronous && !ddp_cuda_is_set("DDP_CUDA_GRAPHS", "0");
    ddp_cuda_tracks_open(gpu);
    nap_exactly();
    enum ddp_status status = create(gpu);
    if (status != DDP_OK) {
        cuda_close(gpu);
        return status;
    }
    *state = gpu;
    return DDP_OK;
}

static void destroy_event(cudaEvent_t event)
{
    if (event)
        (void)cudaEventDestroy(event);
}

static void cuda_close(void *state)
{
    struct ddp_cuda_device *gpu = state;
    ddp_cuda_use(gpu);
    ddp_cuda_tracks_close(gpu);
    if (!ddp_cuda_quiesce(gpu)) /* else most of these calls wait for ever */
        return;
    ddp_cuda_spans_free(gpu);
    ddp_cuda_staging_free(gpu);
    ddp_cuda_gemm_forget(&gpu->cuda);
    ddp_cudnn_forget(&gpu->cuda);
    if (gpu->cuda.blas)
        (void)cublasLtDestroy(gpu->cuda.blas);
    if (gpu->cuda.workspace)
        (void)cudaFree(gpu->cuda.workspace);
    for (int i = 0; i < DDP_DEVICE_SLOTS; i++) {
        destroy_event(gpu->slots[i].filled);
        destroy_event(gpu->slots[i].left);
    }
    destroy_event(gpu->joined);
    destroy_event(gpu->ahead);
    destroy_event(gpu->read);
    destroy_event(gpu->handed);
    destroy_event(gpu->marked);
    destroy_event(gpu->done);
    if (gpu->filling)
        (void)cudaStreamDestroy(gpu->filling);
    if (gpu->aside.stream)
        (void)cudaStreamDestroy(gpu->aside.stream);
    if (gpu->cuda.stream)
        (void)cudaStreamDestroy(gpu->cuda.stream);
    if (gpu->fault)
        (void)cudaFreeHost(gpu->fault);
    (void)cudaGetLastError();
    free(gpu);
}

static void *cuda_stream(void *state)
{
    struct ddp_cuda_device *gpu = state;
    ddp_cuda_use(gpu); /* an operation follows */
    return &gpu->cuda;
}

static const char *cuda_describe(void *state)
{
    return ((const struct ddp_cuda_device *)state)->description;
}

static enum ddp_status cuda_memory(void *state, size_t *total, size_t *unused)
{
    struct ddp_cuda_device *gpu = state;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaMemGetInfo(unused, total);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "asking for free memory");
}

/* --- waiting --- */

static void cuda_set_poll(void *state, enum ddp_status (*poll)(void *arg), void *arg)
{
    struct ddp_cuda_device *gpu = state;
    gpu->poll = poll;
    gpu->poll_arg = arg;
}

/* What a kernel has found wrong with the data; the words are those of the CPU's operations. */
static enum ddp_status take_fault(struct ddp_cuda_device *gpu)
{
    const struct ddp_cuda_fault fault = *gpu->fault;
    if (fault.code == DDP_CUDA_FAULT_NONE)
        return DDP_OK;
    memset(gpu->fault, 0, sizeof *gpu->fault);
    if (fault.code == DDP_CUDA_FAULT_TOKEN)
        return ddp_fail(DDP_ERR_INVALID,
                        "embedding: token %d in row %lld, place %lld, but the vocabulary has %d",
                        (int)fault.value, (long long)fault.row, (long long)fault.column,
                        (int)fault.limit);
    if (fault.code == DDP_CUDA_FAULT_PAIRS)
        return ddp_fail(DDP_ERR_INVALID, "preference: sample %lld is no row of pairs of answers",
                        (long long)fault.row);
    return ddp_fail(DDP_ERR_INVALID,
                    "softmax cross-entropy: label %d in row %lld, but there are %d classes",
                    (int)fault.value, (long long)fault.row, (int)fault.limit);
}

static enum ddp_status record(struct ddp_cuda_device *gpu, cudaEvent_t event)
{
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaEventRecord(event, gpu->cuda.stream);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "waiting for the GPU");
}

/* Waits for the event, and looks at what else may have gone wrong by then. */
static enum ddp_status wait_for(struct ddp_cuda_device *gpu, cudaEvent_t event)
{
    enum ddp_status status = ddp_cuda_wait_event(gpu, event);
    if (status == DDP_OK && gpu->poll) /* also to learn that nothing is waited for any more */
        status = gpu->poll(gpu->poll_arg);
    if (status == DDP_OK)
        status = take_fault(gpu);
    if (status == DDP_OK)
        ddp_cuda_spans_collect(gpu);
    else
        ddp_cuda_forget(gpu);
    return status;
}

static enum ddp_status cuda_synchronize(void *state)
{
    struct ddp_cuda_device *gpu = state;
    enum ddp_status status = record(gpu, gpu->done);
    if (status == DDP_OK)
        status = wait_for(gpu, gpu->done);
    if (status == DDP_OK)
        ddp_cuda_deliver(gpu);
    return status;
}

static enum ddp_status cuda_mark(void *state)
{
    struct ddp_cuda_device *gpu = state;
    return record(gpu, gpu->marked);
}

static enum ddp_status cuda_wait_mark(void *state)
{
    struct ddp_cuda_device *gpu = state;
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    return wait_for(gpu, gpu->marked);
}

static enum ddp_status cuda_wait(void *state, void *other)
{
    struct ddp_cuda_device *gpu = state, *first = other;
    if (ddp_cuda_refuse(gpu) || ddp_cuda_refuse(first))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(first);
    cudaError_t error = cudaEventRecord(first->handed, first->cuda.stream);
    ddp_cuda_use(gpu);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(gpu->cuda.stream, first->handed, 0);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "waiting for another GPU");
}

/* The stream `later` waits for what is on `first`. */
static enum ddp_status follow(struct ddp_cuda_device *gpu, cudaStream_t later, cudaStream_t first,
                              cudaEvent_t event)
{
    if (ddp_cuda_refuse(gpu))
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaEventRecord(event, first);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(later, event, 0);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "waiting for another stream");
}

static enum ddp_status cuda_aside(void *state, void **stream)
{
    struct ddp_cuda_device *gpu = state;
    *stream = &gpu->aside;
    return follow(gpu, gpu->aside.stream, gpu->cuda.stream, gpu->ahead);
}

static enum ddp_status cuda_aside_join(void *state)
{
    struct ddp_cuda_device *gpu = state;
    return follow(gpu, gpu->cuda.stream, gpu->aside.stream, gpu->joined);
}

const struct ddp_device_ops ddp_device_cuda = {
    .name = "cuda",
    .host_memory = false,
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = ddp_cuda_alloc,
    .free = ddp_cuda_free,
    .copy_in = ddp_cuda_copy_in,
    .copy_out = ddp_cuda_copy_out,
    .copy = ddp_cuda_copy,
    .synchronize = cuda_synchronize,
    .mark = cuda_mark,
    .wait_mark = cuda_wait_mark,
    .stream = cuda_stream,
    .kernels = &ddp_kernels_cuda,
    .describe = cuda_describe,
    .memory = cuda_memory,
    .wait = cuda_wait,
    .set_poll = cuda_set_poll,
    .host_alloc = ddp_cuda_host_alloc,
    .host_free = ddp_cuda_host_free,
    .copied = ddp_cuda_copied,
    .aside_alloc = ddp_cuda_aside_alloc,
    .aside_free = ddp_cuda_aside_free,
    .aside = cuda_aside,
    .aside_join = cuda_aside_join,
    .fill = ddp_cuda_fill,
    .arrive = ddp_cuda_arrive,
    .leave = ddp_cuda_leave,
    .record_begin = ddp_cuda_record_begin,
    .record_end = ddp_cuda_record_end,
    .replay = ddp_cuda_replay,
    .recording_free = ddp_cuda_recording_free,
    .span_begin = ddp_cuda_trace_begin,
    .span_end = ddp_cuda_trace_end,
    .choices_name = ddp_cuda_choices_name,
    .tune_begin = ddp_cuda_tune_begin,
    .tune_end = ddp_cuda_tune_end,
    .choices_export = ddp_cuda_choices_export,
    .choices_import = ddp_cuda_choices_import,
    .reason = cuda_reason,
    .faulty = cuda_faulty,
};

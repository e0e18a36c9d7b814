/* SPDX-License-Identifier: MIT
 *
 * Bugs of host code: pointers that a device cannot use, and streams that do not wait. */
#include "config.h"

#include <cuda_runtime.h>

#include <cudasim.h>

#include "tests/cudasim/bugs.h"

#include <string.h>

enum { THREADS = 64, ALL = BUG_RESULTS };

static __global__ void add_one(float *out, const float *in)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    out[at] = in[at] + 1;
}

static __global__ void accumulate(float *sum, const float *in)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    sum[at] = 3 * sum[at] + in[at];
}

/* Has shared memory, as kernels on two streams may both have. */
static __global__ void turn(float *out, const float *in)
{
    __shared__ float tile[THREADS];
    tile[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}

static void add(float *out, const float *in, cudaStream_t stream)
{
    cudasim_launch(add_one, ALL / THREADS, THREADS, 0, stream, out, in);
    MUST(cudaGetLastError());
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

/* Two streams; `waits`: the second waits for the first, as it should. */
static void two_streams(float *results, bool waits, bool late)
{
    cudaStream_t first = bug_stream(), second = bug_stream();
    float *a = bug_device(ALL), *b = bug_device(ALL), *c = bug_device(ALL);
    cudaEvent_t event = new_event();
    bug_fill(a, ALL, first);
    MUST(cudaMemsetAsync(b, 0, ALL * sizeof(float), first));
    MUST(cudaStreamSynchronize(first));
    cudasim_launch(turn, ALL / THREADS, THREADS, 0, first, b, (const float *)a);
    if (late)
        MUST(cudaStreamWaitEvent(second, event, 0));
    MUST(cudaEventRecord(event, first));
    if (waits)
        MUST(cudaStreamWaitEvent(second, event, 0));
    cudasim_launch(turn, ALL / THREADS, THREADS, 0, second, c, (const float *)b);
    MUST(cudaGetLastError());
    bug_fetch(results, c, ALL, second);
    MUST(cudaStreamSynchronize(first));
}

/* Nothing is wrong: the same kernel on streams that have nothing to do with each other. */
static void independent(float *results)
{
    cudaStream_t streams[2] = {bug_stream(), bug_stream()};
    float *a = bug_device(ALL), *host = bug_pinned(ALL);
    bug_fill(a, ALL, streams[0]);
    for (int i = 0; i < 2; i++) {
        float *b = bug_device(ALL);
        cudasim_launch(turn, ALL / THREADS, THREADS, 0, streams[i], b, (const float *)a);
        MUST(cudaGetLastError());
        MUST(cudaMemcpyAsync(host + i * ALL / 2, b, ALL / 2 * sizeof(float), cudaMemcpyDeviceToHost,
                             streams[i]));
    }
    MUST(cudaDeviceSynchronize());
    memcpy(results, host, ALL * sizeof(float));
}

static void event_waits(float *results)
{
    two_streams(results, true, false);
}

static void no_event_wait(float *results)
{
    two_streams(results, false, false);
}

static void wait_before_record(float *results)
{
    two_streams(results, false, true);
}

/* Nothing is wrong: copies from pinned memory overlap with kernels, each buffer used again only
 * after its event; and the whole again as a graph. */
static void pinned_copies(float *results, bool waits)
{
    cudaStream_t copies = bug_stream(), compute = bug_stream();
    cudaEvent_t copied = new_event(), used = new_event();
    float *host = bug_pinned(ALL), *device = bug_device(ALL), *sum = bug_device(ALL);
    MUST(cudaMemsetAsync(sum, 0, ALL * sizeof(float), compute));
    for (int step = 0; step < 4; step++) {
        if (waits)
            MUST(cudaEventSynchronize(copied));
        for (int i = 0; i < ALL; i++)
            host[i] = (float)(step * ALL + i);
        MUST(cudaStreamWaitEvent(copies, used, 0));
        MUST(cudaMemcpyAsync(device, host, ALL * sizeof(float), cudaMemcpyHostToDevice, copies));
        MUST(cudaEventRecord(copied, copies));
        MUST(cudaStreamWaitEvent(compute, copied, 0));
        cudasim_launch(accumulate, ALL / THREADS, THREADS, 0, compute, sum, (const float *)device);
        MUST(cudaEventRecord(used, compute));
    }
    bug_fetch(results, sum, ALL, compute);
}

static void buffers_wait(float *results)
{
    pinned_copies(results, true);
}

static void buffer_reused(float *results)
{
    pinned_copies(results, false);
}

static void read_before_sync(float *results)
{
    cudaStream_t stream = bug_stream();
    float *host = bug_pinned(ALL), *device = bug_device(ALL);
    bug_fill(device, ALL, stream);
    MUST(cudaMemcpyAsync(host, device, ALL * sizeof(float), cudaMemcpyDeviceToHost, stream));
    memcpy(results, host, ALL * sizeof(float));
    MUST(cudaStreamSynchronize(stream));
}

/* Nothing is wrong: a graph with a branch, launched twice. */
static void graph(float *results)
{
    cudaStream_t stream = bug_stream(), branch = bug_stream();
    cudaEvent_t fork = new_event(), join = new_event();
    float *a = bug_device(ALL), *b = bug_device(ALL), *c = bug_device(ALL), *d = bug_device(ALL);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    bug_fill(a, ALL, stream);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add(b, a, stream);
    MUST(cudaEventRecord(fork, stream));
    MUST(cudaStreamWaitEvent(branch, fork, 0));
    add(c, b, branch);
    MUST(cudaEventRecord(join, branch));
    add(d, b, stream);
    MUST(cudaStreamWaitEvent(stream, join, 0));
    add(a, c, stream);
    add(a, a, stream);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaGraphLaunch(exec, stream));
    bug_fetch(results, a, ALL, stream);
    MUST(cudaGraphExecDestroy(exec));
}

static void uninitialised_device(float *results)
{
    cudaStream_t stream = bug_stream();
    float *in = bug_device(ALL), *out = bug_device(ALL);
    add(out, in, stream);
    bug_fetch(results, out, ALL, stream);
}

static void host_pointer(float *results)
{
    add(results, results, bug_stream());
}

static void freed(float *)
{
    float *a = bug_device(ALL), *b = bug_device(ALL);
    MUST(cudaFree(a));
    add(b, a, bug_stream());
}

/* Freed after the launch and before the kernel has run; a pinned buffer, as cudaFree() waits. */
static void freed_early(float *)
{
    cudaStream_t stream = bug_stream();
    float *host = bug_pinned(ALL), *device = bug_device(ALL);
    memset(host, 0, ALL * sizeof(float));
    add(device, host, stream);
    MUST(cudaFreeHost(host));
    MUST(cudaStreamSynchronize(stream));
}

static void freed_twice(float *)
{
    float *a = bug_device(ALL);
    MUST(cudaFree(a));
    MUST(cudaFree(a));
}

static void other_device(float *)
{
    float *a = bug_device(ALL);
    MUST(cudaSetDevice(1));
    add(a, a, bug_stream());
}

static void copy_too_long(float *results)
{
    float *a = bug_device(ALL - 1);
    MUST(cudaMemcpy(a, results, ALL * sizeof(float), cudaMemcpyHostToDevice));
}

static void wrong_direction(float *results)
{
    float *a = bug_device(ALL);
    MUST(cudaMemcpy(results, a, ALL * sizeof(float), cudaMemcpyHostToHost));
}

/* Found with DDP_CUDASIM_PROTECT=1. */
static void host_reads_device(float *results)
{
    cudaStream_t stream = bug_stream();
    float *a = bug_device(ALL);
    bug_fill(a, ALL, stream);
    results[0] = a[0];
}

/* Found with DDP_CUDASIM_LEAKS=1. */
static void leak(float *)
{
    MUST(cudaFree(bug_device(ALL)));
    MUST(cudaFreeHost(bug_pinned(ALL)));
    bug_device(ALL);
}

static void no_leak(float *)
{
    MUST(cudaFree(bug_device(ALL)));
    MUST(cudaFreeHost(bug_pinned(ALL)));
}

/* Launches that CUDA refuses. */
static void launch(dim3 grid, dim3 block, size_t shared_bytes)
{
    float *a = bug_device(ALL);
    cudasim_launch(add_one, grid, block, shared_bytes, bug_stream(), a, (const float *)a);
    MUST(cudaGetLastError());
}

static void too_many_threads(float *)
{
    launch(1, dim3(64, 17), 0);
}

static void no_blocks(float *)
{
    launch(0, THREADS, 0);
}

static void grid_too_high(float *)
{
    launch(dim3(1, 65536), THREADS, 0);
}

static void too_much_shared(float *)
{
    launch(1, THREADS, (48 << 10) + 4);
}

/* Two tensors in one allocation: what runs past the first is not seen. */
static void arena(float *results)
{
    cudaStream_t stream = bug_stream();
    float *both = bug_device(2 * ALL);
    MUST(cudaMemsetAsync(both, 0, 2 * ALL * sizeof(float), stream));
    cudasim_launch(add_one, ALL / THREADS + 1, THREADS, 0, stream, both, (const float *)both);
    bug_fetch(results, both, ALL, stream);
}

const struct bug bug_streams[] = {
    {"control-events", event_waits},
    {"control-independent", independent},
    {"control-pinned", buffers_wait},
    {"control-graph", graph},
    {"no-event-wait", no_event_wait},
    {"wait-before-record", wait_before_record},
    {"buffer-reused", buffer_reused},
    {"read-before-sync", read_before_sync},
    {"uninitialised-device", uninitialised_device},
    {"host-pointer", host_pointer},
    {"freed", freed},
    {"freed-early", freed_early},
    {"freed-twice", freed_twice},
    {"other-device", other_device},
    {"copy-too-long", copy_too_long},
    {"wrong-direction", wrong_direction},
    {"host-reads-device", host_reads_device},
    {"control-no-leak", no_leak},
    {"leak", leak},
    {"too-many-threads", too_many_threads},
    {"no-blocks", no_blocks},
    {"grid-too-high", grid_too_high},
    {"too-much-shared", too_much_shared},
    {"arena", arena},
    {},
};

/* SPDX-License-Identifier: MIT
 *
 * When a GPU did what, for the trace: events around operations, whose times are known once they
 * are done. One moment that is known on both clocks, that of the GPU and that of the host, puts
 * them where they belong. */
#include "config.h"

#include "cuda/state.h"

#include "core/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Names of tracks, which the trace keeps beyond the device. */
#define TRACKS       64
#define MAX_GPUS     64
#define MAX_REPLICAS 32

static pthread_mutex_t tracks_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned open_replicas[MAX_GPUS]; /* a bit each */

void ddp_cuda_tracks_open(struct ddp_cuda_device *gpu)
{
    unsigned *open = &open_replicas[gpu->cuda.index % MAX_GPUS];
    pthread_mutex_lock(&tracks_mutex);
    while (gpu->replica < MAX_REPLICAS - 1 && *open >> gpu->replica & 1)
        gpu->replica++;
    *open |= 1u << gpu->replica;
    pthread_mutex_unlock(&tracks_mutex);
}

void ddp_cuda_tracks_close(const struct ddp_cuda_device *gpu)
{
    pthread_mutex_lock(&tracks_mutex);
    open_replicas[gpu->cuda.index % MAX_GPUS] &= ~(1u << gpu->replica);
    pthread_mutex_unlock(&tracks_mutex);
}

static const char *track_name(const struct ddp_cuda_device *gpu, const char *what)
{
    static char names[TRACKS][40];
    char name[40];
    int i = 0;
    if (gpu->replica == 0)
        snprintf(name, sizeof name, "GPU %d %s", gpu->cuda.index, what);
    else
        snprintf(name, sizeof name, "GPU %d (%d) %s", gpu->cuda.index, gpu->replica + 1, what);
    pthread_mutex_lock(&tracks_mutex);
    while (i < TRACKS - 1 && *names[i] && strcmp(names[i], name) != 0)
        i++;
    if (!*names[i])
        memcpy(names[i], name, sizeof name);
    pthread_mutex_unlock(&tracks_mutex);
    return names[i];
}

/* Finds a moment of both clocks, on a stream with nothing on it but what is waited for. */
static bool set_base(struct ddp_cuda_device *gpu)
{
    if (!gpu->base && cudaEventCreate(&gpu->base) != cudaSuccess)
        return false;
    if (cudaEventRecord(gpu->base, gpu->cuda.stream) != cudaSuccess ||
        ddp_cuda_wait_event(gpu, gpu->base) != DDP_OK)
        return false;
    gpu->base_ns = ddp_clock_ns();
    return true;
}

/* All that a trace needs; false: there will be no spans, which is not an error. */
static bool ready(struct ddp_cuda_device *gpu)
{
    if (!gpu->spans)
        gpu->spans = ddp_array_alloc(DDP_CUDA_SPANS, sizeof *gpu->spans);
    return gpu->spans && gpu->span_count < DDP_CUDA_SPANS && (gpu->base_ns || set_base(gpu));
}

struct ddp_cuda_span *ddp_cuda_span_begin(struct ddp_cuda *cuda, cudaStream_t stream,
                                          const char *track)
{
    struct ddp_cuda_device *gpu = (struct ddp_cuda_device *)cuda;
    if (!ddp_trace_begin() || gpu->recording || gpu->lost)
        return NULL;
    ddp_cuda_use(gpu);
    if (!ready(gpu))
        return NULL;
    struct ddp_cuda_span *span = &gpu->spans[(gpu->span_first + gpu->span_count) % DDP_CUDA_SPANS];
    if ((!span->begin && cudaEventCreate(&span->begin) != cudaSuccess) ||
        (!span->end && cudaEventCreate(&span->end) != cudaSuccess) ||
        cudaEventRecord(span->begin, stream) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    span->event.track = track_name(gpu, track);
    span->stream = stream;
    span->complete = span->told = false;
    gpu->span_count++;
    return span;
}

void ddp_cuda_span_end(struct ddp_cuda_span *span, const struct ddp_trace_event *event)
{
    if (!span)
        return;
    const char *track = span->event.track;
    span->event = *event;
    span->event.track = track;
    span->complete = cudaEventRecord(span->end, span->stream) == cudaSuccess;
    span->told = !span->complete; /* it never will be */
}

void ddp_cuda_trace_begin(void *state)
{
    struct ddp_cuda_device *gpu = state;
    gpu->open_span = ddp_cuda_span_begin(&gpu->cuda, gpu->cuda.stream, "compute");
}

void ddp_cuda_trace_end(void *state, const struct ddp_trace_event *event)
{
    struct ddp_cuda_device *gpu = state;
    ddp_cuda_use(gpu);
    ddp_cuda_span_end(gpu->open_span, event);
    gpu->open_span = NULL;
}

/* Until when the stream's spans are in the trace. */
static int64_t *told_until(struct ddp_cuda_device *gpu, cudaStream_t stream)
{
    int i = 0;
    while (i < DDP_CUDA_TRACED - 1 && gpu->told[i].stream && gpu->told[i].stream != stream)
        i++;
    gpu->told[i].stream = stream;
    return &gpu->told[i].end_ns;
}

/* Spans of a stream follow one another; times in milliseconds, as floats, may say otherwise. */
static void record(struct ddp_cuda_device *gpu, const struct ddp_cuda_span *span)
{
    int64_t *until = told_until(gpu, span->stream);
    struct ddp_trace_event event = span->event;
    float begin_ms, end_ms;
    if (cudaEventElapsedTime(&begin_ms, gpu->base, span->begin) != cudaSuccess ||
        cudaEventElapsedTime(&end_ms, gpu->base, span->end) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    event.begin_ns = gpu->base_ns + (int64_t)((double)begin_ms * 1e6);
    event.end_ns = gpu->base_ns + (int64_t)((double)end_ms * 1e6);
    event.begin_ns = event.begin_ns < *until ? *until : event.begin_ns;
    event.end_ns = event.end_ns < event.begin_ns ? event.begin_ns : event.end_ns;
    *until = event.end_ns;
    ddp_trace_record(&event);
}

/* What is still going on, on another stream, stays for the next time. */
void ddp_cuda_spans_collect(struct ddp_cuda_device *gpu)
{
    if (gpu->span_count == 0)
        return;
    for (size_t i = 0; i < gpu->span_count; i++) {
        struct ddp_cuda_span *span = &gpu->spans[(gpu->span_first + i) % DDP_CUDA_SPANS];
        if (!span->complete || cudaEventQuery(span->end) == cudaErrorNotReady)
            continue;
        if (ddp_trace_begin())
            record(gpu, span);
        span->complete = false;
        span->told = true;
    }
    (void)cudaGetLastError();
    while (gpu->span_count > 0 && gpu->spans[gpu->span_first].told) {
        gpu->span_first = (gpu->span_first + 1) % DDP_CUDA_SPANS;
        gpu->span_count--;
    }
    if (gpu->span_count == 0 && ddp_trace_begin())
        (void)set_base(gpu); /* anew, so that the clocks do not drift apart; nothing runs now */
}

void ddp_cuda_spans_free(struct ddp_cuda_device *gpu)
{
    for (size_t i = 0; gpu->spans && i < DDP_CUDA_SPANS; i++) {
        if (gpu->spans[i].begin)
            (void)cudaEventDestroy(gpu->spans[i].begin);
        if (gpu->spans[i].end)
            (void)cudaEventDestroy(gpu->spans[i].end);
    }
    free(gpu->spans);
    if (gpu->base)
        (void)cudaEventDestroy(gpu->base);
}

/* SPDX-License-Identifier: MIT
 *
 * The runtime's functions about streams and events. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <stdlib.h>

struct CUevent_st {
    int device;
    unsigned flags;
    bool asked;            /* cudaEventQuery() has said once that it is not done */
    struct sim_mark *mark; /* of its last record; NULL before the first */
};

static cudaError_t enter_stream(const char *name, cudaStream_t handle, struct CUstream_st **stream)
{
    cudaError_t error = sim_enter(name);
    *stream = error == cudaSuccess ? sim_stream(handle) : NULL;
    return error == cudaSuccess && !*stream ? cudaErrorInvalidResourceHandle : error;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t error = sim_enter("cudaStreamCreateWithPriority");
    if (error == cudaSuccess && (!stream || flags & ~(unsigned)cudaStreamNonBlocking))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess &&
        !(*stream = sim_stream_create(sim_host_thread.device, flags, priority)))
        error = cudaErrorMemoryAllocation;
    return sim_leave(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    int code = 0;
    if (sim_fault("cudaStreamCreateWithFlags", &code))
        return code != 0 ? (cudaError_t)code : cudaErrorMemoryAllocation;
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    cudaError_t error = sim_enter("cudaDeviceGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return sim_leave(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    cudaError_t error = sim_enter("cudaStreamDestroy");
    struct CUstream_st *stream = handle ? sim_stream(handle) : NULL;
    if (stream)
        sim_stream_close(stream);
    else if (error == cudaSuccess)
        error = cudaErrorInvalidResourceHandle;
    return sim_leave(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    struct CUstream_st *stream;
    cudaError_t error = enter_stream("cudaStreamSynchronize", handle, &stream);
    if (error == cudaSuccess)
        error = sim_capture_forbids();
    if (error == cudaSuccess)
        error = sim_wait(stream, stream->submitted);
    return sim_leave(error);
}

/* Whether a query may say that all is done. A lazy stream is never done at the first question, so
 * that what asks only once does not go on by chance. */
static cudaError_t answer(struct CUstream_st *stream, uint64_t number, bool *asked)
{
    bool done = sim_advance(stream, number), first = !*asked;
    *asked = true;
    if (!done)
        sim_advance_polled();
    return done && (!first || sim_settings.eager) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    struct CUstream_st *stream;
    cudaError_t error = enter_stream("cudaStreamQuery", handle, &stream);
    if (error == cudaSuccess)
        error = sim_capture_forbids();
    if (error == cudaSuccess && stream->completed < stream->submitted)
        error = answer(stream, stream->submitted, &stream->asked);
    if (error == cudaSuccess) {
        sim_acquire(&stream->completed);
        error = sim_device_error(stream->device);
    }
    return sim_leave(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument)
{
    struct CUstream_st *stream;
    cudaError_t error = enter_stream("cudaLaunchHostFunc", handle, &stream);
    if (error == cudaSuccess && !function)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        struct sim_entry *entry = sim_entry_create("host function", SIM_STEP_HOST, 0);
        entry->host = function;
        entry->host_argument = argument;
        sim_submit(stream, entry);
    }
    return sim_leave(error);
}

/* --- events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t error = sim_enter("cudaEventCreateWithFlags");
    if (error == cudaSuccess && !event)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        struct CUevent_st *made = calloc(1, sizeof *made);
        if (!made)
            return sim_leave(cudaErrorMemoryAllocation);
        made->device = sim_host_thread.device;
        made->flags = flags;
        *event = made;
    }
    return sim_leave(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = sim_enter("cudaEventDestroy");
    if (!event)
        return sim_leave(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
    sim_mark_release(event->mark);
    free(event);
    return sim_leave(error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    struct CUstream_st *stream;
    cudaError_t error = enter_stream("cudaEventRecord", handle, &stream);
    if (error == cudaSuccess && (!event || event->device != stream->device))
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess) {
        sim_mark_release(event->mark);
        event->mark = sim_mark_create();
        event->asked = false;
        sim_submit_record(stream, event->mark);
    }
    return sim_leave(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    struct CUstream_st *stream;
    cudaError_t error = enter_stream("cudaStreamWaitEvent", handle, &stream);
    if (error == cudaSuccess && (!event || flags != 0))
        error = cudaErrorInvalidResourceHandle;
    /* An event that was never recorded is not waited for. */
    if (error == cudaSuccess && event->mark) {
        error = sim_capture_join(stream, event->mark);
        if (error == cudaSuccess)
            sim_submit_wait(stream, event->mark);
    }
    return sim_leave(error);
}

static cudaError_t event_usable(cudaEvent_t event)
{
    if (!event)
        return cudaErrorInvalidResourceHandle;
    return event->mark && event->mark->capture ? cudaErrorCapturedEvent : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = sim_enter("cudaEventQuery");
    if (error == cudaSuccess)
        error = event_usable(event);
    if (error == cudaSuccess)
        error = sim_capture_forbids();
    if (error == cudaSuccess && event->mark) {
        struct sim_mark *mark = event->mark;
        if (!mark->done)
            error = answer(mark->stream, mark->number, &event->asked);
        if (error == cudaSuccess) {
            sim_acquire(mark);
            error = sim_device_error(event->device);
        }
    }
    return sim_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = sim_enter("cudaEventSynchronize");
    if (error == cudaSuccess)
        error = event_usable(event);
    if (error == cudaSuccess)
        error = sim_capture_forbids();
    if (error == cudaSuccess && event->mark) {
        struct sim_mark *mark = event->mark;
        mark->references++;
        for (int rounds = 0; !mark->done && !sim_advance(mark->stream, mark->number); rounds++) {
            sim_advance_polled();
            if (!mark->done)
                sim_pause(rounds < 50 ? 20 : 200);
        }
        sim_acquire(mark);
        sim_mark_release(mark);
        error = sim_device_error(event->device);
    }
    return sim_leave(error);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t error = sim_enter("cudaEventElapsedTime");
    if (error == cudaSuccess && (!start || !end || !start->mark || !end->mark ||
                                 (start->flags | end->flags) & cudaEventDisableTiming))
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && (!start->mark->done || !end->mark->done))
        error = cudaErrorNotReady;
    if (error == cudaSuccess) {
        const struct timespec *a = &start->mark->time, *b = &end->mark->time;
        *milliseconds = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 +
                                (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    }
    return sim_leave(error);
}

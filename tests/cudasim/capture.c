/* SPDX-License-Identifier: MIT
 *
 * Graphs: what streams capture, in the order in which it was enqueued, and launches of it. A stream
 * that waits for an event of a capturing stream takes part in its capture, as a branch of the
 * graph. A launch enqueues a copy of every operation; arguments are those of the capture. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <stdlib.h>
#include <string.h>

struct sim_capture {
    struct sim_capture *next; /* of those under way */
    struct CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    const struct sim_host_thread *thread; /* that began it */
    bool spoiled;
    int branch_count;
    struct CUgraph_st *graph;
};

struct CUgraph_st {
    struct sim_entry *head, **tail;
    int branch_count;
};

struct CUgraphExec_st {
    struct sim_entry *head;
    int branch_count;
    struct CUstream_st **branches; /* of all but the first, which is the launching stream */
};

static struct sim_capture *captures;

cudaError_t sim_capture_forbids(void)
{
    cudaError_t error = cudaSuccess;
    for (struct sim_capture *c = captures; c; c = c->next) {
        if (c->mode == cudaStreamCaptureModeRelaxed ||
            (c->mode == cudaStreamCaptureModeThreadLocal && c->thread != &sim_host_thread))
            continue;
        c->spoiled = true;
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

bool sim_capture_spoiled(const struct CUstream_st *stream)
{
    return stream->capture && stream->capture->spoiled;
}

void sim_capture_add(struct CUstream_st *stream, struct sim_entry *entry)
{
    struct CUgraph_st *graph = stream->capture->graph;
    entry->branch = stream->branch;
    entry->next = NULL;
    *graph->tail = entry;
    graph->tail = &entry->next;
    if (entry->step == SIM_STEP_RECORD)
        entry->mark->capture = stream->capture;
}

cudaError_t sim_capture_join(struct CUstream_st *stream, struct sim_mark *mark)
{
    bool live = false;
    for (struct sim_capture *c = captures; c; c = c->next)
        live = live || c == mark->capture;
    if (mark->capture && !live)
        return cudaErrorCapturedEvent;
    if (stream->capture && stream->capture != mark->capture) {
        stream->capture->spoiled = true;
        return mark->capture ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation;
    }
    if (mark->capture && !stream->capture) {
        stream->capture = mark->capture;
        stream->branch = mark->capture->branch_count++;
    }
    return cudaSuccess;
}

/* Every branch ends in a record that another branch waits for. */
static bool joined(const struct CUgraph_st *graph)
{
    for (int branch = 1; branch < graph->branch_count; branch++) {
        const struct sim_entry *last = NULL;
        bool waited = false;
        for (const struct sim_entry *e = graph->head; e; e = e->next)
            if (e->branch == branch && e->step != SIM_STEP_WAIT)
                last = e;
        if (!last)
            continue;
        for (const struct sim_entry *e = graph->head; e; e = e->next)
            waited = waited || (e->step == SIM_STEP_WAIT && e->branch != branch &&
                                last->step == SIM_STEP_RECORD && e->mark == last->mark);
        if (!waited)
            return false;
    }
    return true;
}

static void free_entries(struct sim_entry *head)
{
    while (head) {
        struct sim_entry *next = head->next;
        sim_entry_free(head);
        head = next;
    }
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = sim_enter("cudaStreamBeginCapture");
    struct CUstream_st *stream = error == cudaSuccess ? sim_stream(handle) : NULL;
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && stream->flags & SIM_STREAM_DEFAULT)
        error = cudaErrorStreamCaptureUnsupported;
    if (error == cudaSuccess && stream->capture)
        error = cudaErrorIllegalState;
    if (error != cudaSuccess)
        return sim_leave(error);
    struct sim_capture *capture = calloc(1, sizeof *capture);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (!capture || !graph)
        sim_report("no memory");
    graph->tail = &graph->head;
    *capture = (struct sim_capture){.next = captures,
                                    .origin = stream,
                                    .mode = mode,
                                    .thread = &sim_host_thread,
                                    .branch_count = 1,
                                    .graph = graph};
    captures = capture;
    stream->capture = capture;
    stream->branch = 0;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *result)
{
    cudaError_t error = sim_enter("cudaStreamEndCapture");
    struct CUstream_st *stream = sim_stream(handle);
    struct sim_capture *capture = stream ? stream->capture : NULL;
    if (result)
        *result = NULL;
    if (!capture)
        return sim_leave(error != cudaSuccess ? error : cudaErrorIllegalState);
    if (capture->origin != stream) {
        capture->spoiled = true;
        return sim_leave(cudaErrorStreamCaptureUnmatched);
    }
    /* Whatever is wrong, the capture is over. */
    for (struct sim_capture **link = &captures; *link; link = &(*link)->next)
        if (*link == capture) {
            *link = capture->next;
            break;
        }
    for (struct CUstream_st *s = sim_streams(); s; s = s->next)
        if (s->capture == capture)
            s->capture = NULL;
    struct CUgraph_st *graph = capture->graph;
    graph->branch_count = capture->branch_count;
    if (error == cudaSuccess && capture->spoiled)
        error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess && !joined(graph))
        error = cudaErrorStreamCaptureUnjoined;
    free(capture);
    if (error == cudaSuccess && result) {
        *result = graph;
    } else {
        free_entries(graph->head);
        free(graph);
    }
    return sim_leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    cudaError_t error = sim_enter("cudaStreamIsCapturing");
    struct CUstream_st *stream = sim_stream(handle);
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess)
        *status = !stream->capture           ? cudaStreamCaptureStatusNone
                  : stream->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                             : cudaStreamCaptureStatusActive;
    return sim_leave(error);
}

static struct sim_entry *copy_entry(const struct sim_entry *entry)
{
    struct sim_entry *copy = sim_entry_create(entry->name, entry->step, entry->bytes);
    memcpy(copy, entry, sizeof *entry + entry->bytes);
    copy->next = NULL;
    if (copy->mark)
        copy->mark->references++;
    return copy;
}

static struct sim_entry *copy_entries(const struct sim_entry *head)
{
    struct sim_entry *first = NULL, **tail = &first;
    for (; head; head = head->next) {
        *tail = copy_entry(head);
        tail = &(*tail)->next;
    }
    return first;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *result, cudaGraph_t graph,
                                 unsigned long long flags)
{
    cudaError_t error = sim_enter("cudaGraphInstantiate");
    if (error == cudaSuccess && (!result || !graph || flags != 0))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return sim_leave(error);
    struct CUgraphExec_st *exec = calloc(1, sizeof *exec);
    if (!exec || !(exec->branches = calloc((size_t)graph->branch_count, sizeof *exec->branches)))
        sim_report("no memory");
    exec->branch_count = graph->branch_count;
    exec->head = copy_entries(graph->head);
    *result = exec;
    return sim_leave(cudaSuccess);
}

static void launch_entry(struct CUgraphExec_st *exec, const struct sim_entry *entry,
                         struct CUstream_st *stream)
{
    if (entry->branch > 0) {
        struct CUstream_st **branch = &exec->branches[entry->branch];
        if (!*branch)
            *branch = sim_stream_create(stream->device, cudaStreamNonBlocking, 0);
        if (!*branch)
            sim_report("no memory");
        stream = *branch;
    }
    struct sim_entry *copy = copy_entry(entry);
    if (copy->mark) {
        struct sim_mark *mark = entry->mark;
        if (entry->step == SIM_STEP_RECORD) {
            sim_mark_release(mark->copy);
            mark->copy = sim_mark_create();
        }
        sim_mark_release(copy->mark);
        copy->mark = mark->copy;
        copy->mark->references++;
    }
    sim_submit(stream, copy);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    cudaError_t error = sim_enter("cudaGraphLaunch");
    struct CUstream_st *stream = error == cudaSuccess ? sim_stream(handle) : NULL;
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && !exec)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && stream->capture)
        sim_report("cudaGraphLaunch: a graph in a graph is not simulated");
    if (error != cudaSuccess)
        return sim_leave(error);
    for (const struct sim_entry *entry = exec->head; entry; entry = entry->next)
        launch_entry(exec, entry, stream);
    for (struct sim_entry *entry = exec->head; entry; entry = entry->next)
        if (entry->mark && entry->mark->copy) {
            sim_mark_release(entry->mark->copy);
            entry->mark->copy = NULL;
        }
    return sim_leave(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    cudaError_t error = sim_enter("cudaGraphExecDestroy");
    if (!exec)
        return sim_leave(error != cudaSuccess ? error : cudaErrorInvalidValue);
    for (int i = 0; i < exec->branch_count; i++)
        if (exec->branches[i])
            sim_stream_close(exec->branches[i]);
    free_entries(exec->head);
    free(exec->branches);
    free(exec);
    return sim_leave(error);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t error = sim_enter("cudaGraphDestroy");
    if (!graph)
        return sim_leave(error != cudaSuccess ? error : cudaErrorInvalidValue);
    free_entries(graph->head);
    free(graph);
    return sim_leave(error);
}

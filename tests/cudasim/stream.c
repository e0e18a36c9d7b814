/* SPDX-License-Identifier: MIT
 *
 * Streams: queues of operations. An operation runs when something waits for it (lazy, so that what
 * forgets to wait meets memory that is not written yet), or at once (eager); a thread of ours keeps
 * those going that wait for other processes, as a device would. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRESS_MICROSECONDS = 2000, PROGRESS_IDLE_ROUNDS = 100 };

static struct CUstream_st *streams;
static struct CUstream_st *default_streams[SIM_MAX_DEVICES];
static bool progress_runs;
static int advancing; /* how many sim_advance() are under way */
static struct CUstream_st *running;

struct CUstream_st *sim_streams(void)
{
    return streams;
}

struct CUstream_st *sim_running_stream(void)
{
    return running;
}

struct sim_mark *sim_mark_create(void)
{
    struct sim_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        sim_report("no memory");
    mark->references = 1;
    return mark;
}

void sim_mark_release(struct sim_mark *mark)
{
    if (mark && --mark->references == 0)
        free(mark);
}

static void stream_body(void *argument);

struct CUstream_st *sim_stream_create(int device, unsigned flags, int priority)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority;
    stream->tail = &stream->head;
    stream->next = streams;
    streams = stream;
    /* With the stream: what comes before the making of a fibre comes before all that it does. */
    if (sim_tsan())
        stream->fibre = sim_fibre_create((size_t)512 << 10, stream_body, stream);
    return stream;
}

struct CUstream_st *sim_stream(cudaStream_t handle)
{
    if (handle && handle != cudaStreamLegacy) {
        for (struct CUstream_st *s = streams; s; s = s->next)
            if (s == handle && !s->closed)
                return s;
        return NULL;
    }
    struct CUstream_st **stream = &default_streams[sim_host_thread.device];
    if (!*stream)
        *stream = sim_stream_create(sim_host_thread.device, SIM_STREAM_DEFAULT, 0);
    if (!*stream)
        sim_report("no memory");
    return *stream;
}

int sim_stream_device(cudaStream_t handle)
{
    sim_lock();
    struct CUstream_st *stream = sim_stream(handle);
    int device = stream ? stream->device : -1;
    sim_unlock();
    return device;
}

/* Frees closed streams that have nothing left to do. */
static void collect(void)
{
    for (struct CUstream_st **link = &streams; *link;) {
        struct CUstream_st *stream = *link;
        if (!stream->closed || stream->running || stream->users > 0 ||
            stream->completed < stream->submitted) {
            link = &stream->next;
            continue;
        }
        *link = stream->next;
        sim_fibre_destroy(stream->fibre);
        sim_threads_free(stream->threads);
        free(stream);
    }
}

void sim_stream_close(struct CUstream_st *stream)
{
    sim_advance(stream, stream->submitted);
    stream->closed = true;
    collect();
}

struct sim_entry *sim_entry_create(const char *name, enum sim_step step, size_t bytes)
{
    struct sim_entry *entry = aligned_alloc(16, (sizeof *entry + bytes + 15) / 16 * 16);
    if (!entry)
        sim_report("no memory");
    memset(entry, 0, sizeof *entry);
    entry->name = name;
    entry->step = step;
    entry->bytes = bytes;
    return entry;
}

void sim_entry_free(struct sim_entry *entry)
{
    sim_mark_release(entry->mark);
    free(entry);
}

/* What an operation does, on its stream's fibre under ThreadSanitizer. */
static void perform(struct CUstream_st *stream)
{
    struct sim_entry *entry = stream->now;
    sim_acquire(entry);
    stream->result = cudaSuccess;
    switch (entry->step) {
    case SIM_STEP_RECORD:
        clock_gettime(CLOCK_MONOTONIC, &entry->mark->time);
        entry->mark->done = true;
        entry->mark->stream = NULL;
        sim_release(entry->mark);
        break;
    case SIM_STEP_WAIT:
        sim_acquire(entry->mark);
        break;
    case SIM_STEP_HOST:
        entry->host(entry->host_argument);
        break;
    default:
        running = stream;
        if (sim_device_error(stream->device) == cudaSuccess)
            stream->result = entry->operation(entry->arguments);
    }
    if (stream->result != cudaErrorNotReady)
        sim_entry_free(entry);
    sim_release(&stream->completed);
}

static struct sim_fibre *performing; /* the fibre to go back to */

static void stream_body(void *argument)
{
    struct CUstream_st *stream = argument;
    for (;;) {
        struct sim_fibre *back = performing;
        perform(stream);
        sim_fibre_switch(stream->fibre, back);
    }
}

static void take_head(struct CUstream_st *stream)
{
    stream->head = stream->head->next;
    if (!stream->head)
        stream->tail = &stream->head;
}

static void put_back(struct CUstream_st *stream, struct sim_entry *entry)
{
    entry->next = stream->head;
    stream->head = entry;
    if (!entry->next)
        stream->tail = &entry->next;
}

/* Runs the head of a stream; false: it is not done. */
static bool run_head(struct CUstream_st *stream)
{
    struct sim_entry *entry = stream->head;
    bool host = entry->step == SIM_STEP_HOST;
    stream->now = entry;
    take_head(stream);
    if (host)
        sim_unlock();
    if (sim_tsan()) {
        struct sim_fibre here;
        sim_fibre_adopt(&here);
        performing = &here;
        sim_fibre_switch(&here, stream->fibre);
    } else {
        perform(stream);
    }
    if (host)
        sim_lock();
    if (stream->result == cudaErrorNotReady) {
        put_back(stream, entry);
        return false;
    }
    if (stream->result != cudaSuccess)
        sim_fail_device(stream->device, stream->result);
    stream->completed++;
    return true;
}

bool sim_advance(struct CUstream_st *stream, uint64_t number)
{
    if (stream->running || stream->completed >= number)
        return stream->completed >= number;
    if (advancing++ == 0)
        sim_protect(false);
    stream->running = true;
    while (stream->completed < number) {
        struct sim_mark *mark = stream->head->mark;
        if (stream->head->step == SIM_STEP_WAIT && !mark->done &&
            !(mark->stream && sim_advance(mark->stream, mark->number)))
            break;
        if (!run_head(stream))
            break;
    }
    stream->running = false;
    if (--advancing == 0)
        sim_protect(true);
    return stream->completed >= number;
}

void sim_advance_polled(void)
{
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        sim_advance(stream, stream->last_poll);
    collect();
}

static void *progress(void *unused)
{
    uint64_t seen = 0;
    int idle = 0;
    (void)unused;
    sim_lock();
    while (idle < PROGRESS_IDLE_ROUNDS) {
        bool waiting = false;
        for (struct CUstream_st *s = streams; s; s = s->next)
            waiting = waiting || s->completed < s->last_poll;
        idle = waiting ? 0 : idle + 1;
        /* A host that still enqueues is ahead of its device. */
        if (waiting && (sim_settings.eager || seen == sim_calls()))
            sim_advance_polled();
        seen = sim_calls();
        sim_pause(PROGRESS_MICROSECONDS);
    }
    progress_runs = false;
    sim_unlock();
    return NULL;
}

static void start_progress(void)
{
    pthread_t thread;
    sigset_t all, before;
    if (progress_runs)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, progress, NULL) != 0)
        sim_report("no thread");
    pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    progress_runs = true;
}

static void append(struct CUstream_st *stream, struct sim_entry *entry)
{
    if (entry->step == SIM_STEP_RECORD) {
        entry->mark->stream = stream;
        entry->mark->number = stream->submitted + 1;
    }
    sim_release(entry);
    entry->next = NULL;
    *stream->tail = entry;
    stream->tail = &entry->next;
    stream->submitted++;
    stream->asked = false;
    if (entry->step == SIM_STEP_OPERATION && entry->kind == SIM_POLL) {
        stream->last_poll = stream->submitted;
        start_progress();
    }
}

static void append_marked(struct CUstream_st *stream, enum sim_step step, struct sim_mark *mark)
{
    struct sim_entry *entry = sim_entry_create("event", step, 0);
    entry->mark = mark;
    mark->references++;
    append(stream, entry);
}

/* The default stream and the blocking streams of a device wait for each other. */
static void join_default(struct CUstream_st *stream)
{
    if (stream->flags & cudaStreamNonBlocking)
        return;
    for (struct CUstream_st *other = streams; other; other = other->next) {
        if (other == stream || other->device != stream->device ||
            other->flags & cudaStreamNonBlocking || other->completed == other->submitted ||
            !((other->flags | stream->flags) & SIM_STREAM_DEFAULT))
            continue;
        struct sim_mark *mark = sim_mark_create();
        append_marked(other, SIM_STEP_RECORD, mark);
        append_marked(stream, SIM_STEP_WAIT, mark);
        sim_mark_release(mark);
    }
}

void sim_submit(struct CUstream_st *stream, struct sim_entry *entry)
{
    if (stream->capture) {
        sim_capture_add(stream, entry);
        return;
    }
    join_default(stream);
    append(stream, entry);
    if (sim_settings.eager)
        sim_advance(stream, stream->submitted);
}

static void submit_marked(struct CUstream_st *stream, enum sim_step step, struct sim_mark *mark)
{
    struct sim_entry *entry = sim_entry_create("event", step, 0);
    entry->mark = mark;
    mark->references++;
    sim_submit(stream, entry);
}

void sim_submit_record(struct CUstream_st *stream, struct sim_mark *mark)
{
    submit_marked(stream, SIM_STEP_RECORD, mark);
}

void sim_submit_wait(struct CUstream_st *stream, struct sim_mark *mark)
{
    submit_marked(stream, SIM_STEP_WAIT, mark);
}

cudaError_t sim_enqueue(cudaStream_t handle, const char *name, enum sim_kind kind,
                        sim_operation *operation, const void *args, size_t bytes)
{
    sim_lock();
    struct CUstream_st *stream = sim_stream(handle);
    cudaError_t error = cudaErrorInvalidResourceHandle;
    if (stream)
        error = sim_capture_spoiled(stream) ? cudaErrorStreamCaptureInvalidated
                                            : sim_device_error(stream->device);
    if (error == cudaSuccess) {
        struct sim_entry *entry = sim_entry_create(name, SIM_STEP_OPERATION, bytes);
        entry->kind = kind;
        entry->operation = operation;
        if (bytes > 0)
            memcpy(entry->arguments, args, bytes);
        sim_submit(stream, entry);
    }
    sim_unlock();
    return error;
}

cudaError_t sim_wait(struct CUstream_st *stream, uint64_t number)
{
    stream->users++;
    for (int rounds = 0; !sim_advance(stream, number); rounds++) {
        sim_advance_polled();
        if (stream->completed >= number)
            break;
        sim_pause(rounds < 50 ? 20 : 200);
    }
    stream->users--;
    sim_acquire(&stream->completed);
    return sim_device_error(stream->device);
}

cudaError_t sim_wait_device(int device)
{
    for (struct CUstream_st *stream = streams; stream;) {
        if (stream->device == device && stream->completed < stream->submitted) {
            sim_wait(stream, stream->submitted);
            stream = streams; /* others may have come and gone meanwhile */
        } else {
            if (stream->device == device)
                sim_acquire(&stream->completed);
            stream = stream->next;
        }
    }
    return sim_device_error(device);
}

/* SPDX-License-Identifier: MIT
 *
 * See trace.h. A thread's buffer is a ring with one writer, the thread, and one reader, the thread
 * that opened the trace. The file is an array of events, a line each, to which all processes append
 * whole lines under a lock, closing the array each time. A pipe, a device or a file that cannot be
 * locked gets whole lines in single writes, and lacks the closing bracket until the end. */
#include "config.h"

#include "core/trace.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RING_EVENTS 16384 /* a power of two */
#define FLUSH_NS    INT64_C(500000000)
#define CHUNK_BYTES 65536
#define EVENT_BYTES 1024 /* a line at most */
#define NAME_BYTES  96

#define TRACKS 16 /* with names of their own */

#define SEPARATOR ",\n" /* behind each event but the last */
#define ENDING    "\n]\n"
#define LOCK_MS   5000 /* how long another process may take to write */

static int recording;
const int *ddp_trace_recording = &recording;
static void (*sink)(const struct ddp_trace_event *event); /* or NULL: it is recorded here */

struct ring {
    struct ring *next;
    int track;
    const char *thread;
    bool announced;                                    /* the track's name is in the file */
    _Alignas(DDP_CACHE_LINE) _Atomic uint64_t written; /* by the thread */
    _Atomic uint64_t dropped;
    _Alignas(DDP_CACHE_LINE) _Atomic uint64_t read; /* by the reader */
    struct ddp_trace_event events[RING_EVENTS];
};

/* Of the process. */
static struct {
    pthread_mutex_t lock; /* of `rings`, when a thread adds its own */
    struct ring *rings;
    int tracks;
    _Atomic uint32_t generation; /* of the trace; rings of older ones have been freed */
    pthread_t reader;
    int fd;
    int rank;
    bool failed, finished;
    bool closed; /* the array in the file has its end after each write */
    char path[4096];
    int64_t flushed_ns;
    struct {
        const char *name;
        int track;
    } named[TRACKS]; /* tracks of devices; the reader's alone */
    int named_count;
    size_t used;
    char chunk[CHUNK_BYTES];
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static _Thread_local struct ring *own_ring;
static _Thread_local uint32_t own_generation;
static _Thread_local const char *own_name;

void ddp_trace_name_thread(const char *name)
{
    own_name = name;
}

/* This thread's ring of the current trace; NULL: no memory. */
static struct ring *find_ring(void)
{
    const uint32_t generation = atomic_load_explicit(&trace.generation, memory_order_acquire);
    if (own_generation == generation)
        return own_ring;
    own_generation = generation;
    own_ring = ddp_memory_probe(sizeof *own_ring) ? ddp_pages_alloc(sizeof *own_ring) : NULL;
    if (!own_ring) {
        ddp_log(DDP_LOG_WARNING, "%s: out of memory: the spans of one thread are missing",
                trace.path);
        return NULL;
    }
    struct ring *ring = own_ring;
    pthread_mutex_lock(&trace.lock);
    ring->track = trace.tracks++;
    ring->thread = own_name                                      ? own_name
                   : pthread_equal(pthread_self(), trace.reader) ? "main"
                                                                 : "thread";
    ring->next = trace.rings;
    trace.rings = ring;
    pthread_mutex_unlock(&trace.lock);
    return ring;
}

void ddp_trace_set_sink(const int *theirs, void (*record)(const struct ddp_trace_event *event))
{
    ddp_trace_recording = theirs;
    sink = record;
}

void ddp_trace_record(const struct ddp_trace_event *event)
{
    if (sink) {
        sink(event);
        return;
    }
    struct ring *ring = find_ring();
    if (!ring)
        return;
    const uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (at - atomic_load_explicit(&ring->read, memory_order_acquire) == RING_EVENTS) {
        if (!pthread_equal(pthread_self(), trace.reader)) {
            atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
            return;
        }
        ddp_trace_flush(true);
    }
    ring->events[at % RING_EVENTS] = *event;
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
}

void ddp_trace_set_recording(bool on)
{
    __atomic_store_n(&recording, on && trace.fd >= 0 && !trace.failed && !trace.finished,
                     __ATOMIC_RELAXED);
}

/* --- the file --- */

static void give_up(void)
{
    const int error = errno;
    trace.failed = true;
    ddp_trace_set_recording(false);
    ddp_log(DDP_LOG_WARNING, "%s: cannot write to it: %s: the trace ends here", trace.path,
            strerror(error));
}

/* To a pipe or a device, or where files cannot be locked: one write, so that lines of several
 * processes never mix. */
static bool append_chunk(void)
{
    ssize_t n;
    do
        n = ddp_write_quietly(trace.fd, trace.chunk, trace.used);
    while (n < 0 && errno == EINTR);
    if (n >= 0 && n != (ssize_t)trace.used) {
        (void)!ftruncate(trace.fd, lseek(trace.fd, 0, SEEK_CUR) - n);
        errno = ENOSPC;
    }
    return n == (ssize_t)trace.used;
}

static bool lock_file(void)
{
    for (int ms = 0; flock(trace.fd, LOCK_EX | LOCK_NB) < 0; ms++) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ms == LOCK_MS)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

/* Where the last event ends. That is where the array's end stands, unless a process was killed
 * while it wrote: then what it had written of an event is dropped. */
static off_t find_last_event(off_t size)
{
    static char text[CHUNK_BYTES];
    const off_t from = size > CHUNK_BYTES ? size - CHUNK_BYTES : 0;
    const ssize_t ending = sizeof ENDING - 1;
    if (size < ending)
        return size;
    if (pread(trace.fd, text, (size_t)ending, size - ending) != ending ||
        memcmp(text, ENDING, (size_t)ending) == 0)
        return size - ending;
    for (ssize_t at = pread(trace.fd, text, sizeof text, from) - 3; at >= 0; at--)
        if (memcmp(text + at, "},\n", 3) == 0 || memcmp(text + at, "}\n]", 3) == 0 ||
            memcmp(text + at, "},]", 3) == 0)
            return from + at + 1;
    return size;
}

/* To a file: overwrites the array's end and writes it again behind, so that the file is JSON
 * whenever the run ends. If that fails, the file is as before. */
static bool extend_array(void)
{
    if (!lock_file())
        return false;
    const off_t size = lseek(trace.fd, 0, SEEK_END);
    const off_t begin = size > 0 ? find_last_event(size) : 0;
    const size_t skipped = size > 0 ? 0 : sizeof SEPARATOR - 1; /* its place is before the first */
    memcpy(trace.chunk + trace.used - (sizeof SEPARATOR - 1), ENDING, sizeof ENDING - 1);
    trace.used += sizeof ENDING - sizeof SEPARATOR;
    const size_t bytes = trace.used - skipped;
    size_t done = 0;
    for (ssize_t n; done < bytes; done += (size_t)n) {
        n = pwrite(trace.fd, trace.chunk + skipped + done, bytes - done, begin + (off_t)done);
        if (n < 0 && errno == EINTR)
            n = 0;
        if (n < 0)
            break;
    }
    const int error = errno;
    if (done < bytes)
        (void)!pwrite(trace.fd, ENDING, sizeof ENDING - 1, begin);
    const off_t end = begin + (off_t)(done < bytes ? sizeof ENDING - 1 : bytes);
    (void)!ftruncate(trace.fd, size > 0 || done == bytes ? end : 0);
    flock(trace.fd, LOCK_UN);
    errno = error;
    return done == bytes;
}

static void start_chunk(void)
{
    trace.used = trace.closed ? sizeof SEPARATOR - 1 : 0;
    memcpy(trace.chunk, SEPARATOR, sizeof SEPARATOR);
}

static void write_chunk(void)
{
    const size_t empty = trace.closed ? sizeof SEPARATOR - 1 : 0;
    if (trace.used > empty && !trace.failed && !(trace.closed ? extend_array() : append_chunk()))
        give_up();
    start_chunk();
}

/* A text with nothing in it that JSON would escape. */
static const char *clean(const char *text, char *copy)
{
    size_t i = 0;
    for (; text[i] && i < NAME_BYTES - 1; i++) {
        const unsigned char c = (unsigned char)text[i];
        copy[i] = c < 32 || c > 126 || c == '"' || c == '\\' ? '_' : text[i];
    }
    copy[i] = '\0';
    return copy;
}

static void add_line(const char *line)
{
    const size_t bytes = strlen(line);
    if (trace.used + bytes + sizeof ENDING > sizeof trace.chunk)
        write_chunk();
    memcpy(trace.chunk + trace.used, line, bytes);
    trace.used += bytes;
}

static void add_name(const char *what, int track, const char *name)
{
    char line[EVENT_BYTES];
    snprintf(line, sizeof line,
             "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
             what, trace.rank, track, name);
    add_line(line);
}

/* The track of an event: its thread's, or one that is known by name. */
static int track_of(const struct ring *ring, const struct ddp_trace_event *event)
{
    char name[NAME_BYTES];
    if (!event->track)
        return ring->track;
    for (int i = 0; i < trace.named_count; i++)
        if (strcmp(trace.named[i].name, event->track) == 0)
            return trace.named[i].track;
    if (trace.named_count == TRACKS)
        return ring->track;
    pthread_mutex_lock(&trace.lock);
    const int track = trace.tracks++;
    pthread_mutex_unlock(&trace.lock);
    trace.named[trace.named_count].name = event->track;
    trace.named[trace.named_count++].track = track;
    add_name("thread_name", track, clean(event->track, name));
    return track;
}

static void add_event(const struct ring *ring, const struct ddp_trace_event *event)
{
    char line[EVENT_BYTES], arguments[2 * NAME_BYTES + 64] = "", name[NAME_BYTES], key[NAME_BYTES],
                                                       text[NAME_BYTES];
    if (event->key && event->text)
        snprintf(arguments, sizeof arguments, ",\"args\":{\"%s\":\"%s\"}", clean(event->key, key),
                 clean(event->text, text));
    else if (event->key)
        snprintf(arguments, sizeof arguments, ",\"args\":{\"%s\":%" PRId64 "}",
                 clean(event->key, key), event->value);
    clean(event->name, name);
    const int track = track_of(ring, event);
    const double begin = (double)event->begin_ns / 1e3, end = (double)event->end_ns / 1e3;
    if (event->overlaps)
        snprintf(line, sizeof line,
                 "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"b\",\"id2\":{\"local\":\"%" PRIu32
                 "\"},\"ts\":%.3f,\"pid\":%d,\"tid\":%d%s},\n"
                 "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"e\",\"id2\":{\"local\":\"%" PRIu32
                 "\"},\"ts\":%.3f,\"pid\":%d,\"tid\":%d},\n",
                 name, name, event->id, begin, trace.rank, track, arguments, name, name, event->id,
                 end, trace.rank, track);
    else
        snprintf(line, sizeof line,
                 "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d%s},"
                 "\n",
                 name, begin, end - begin, trace.rank, track, arguments);
    add_line(line);
}

/* Processes are shown by rank. */
static void add_sort_index(const char *end)
{
    char line[EVENT_BYTES];
    snprintf(line, sizeof line,
             "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
             "\"args\":{\"sort_index\":%d}}%s",
             trace.rank, trace.rank, end);
    add_line(line);
}

static void flush_ring(struct ring *ring)
{
    const uint64_t end = atomic_load_explicit(&ring->written, memory_order_acquire);
    uint64_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    char name[NAME_BYTES];
    if (at != end && !ring->announced) {
        add_name("thread_name", ring->track, clean(ring->thread, name));
        ring->announced = true;
    }
    for (; at != end; at++)
        add_event(ring, &ring->events[at % RING_EVENTS]);
    atomic_store_explicit(&ring->read, end, memory_order_release);
}

void ddp_trace_flush(bool now)
{
    if (trace.fd < 0 || trace.finished || (!now && ddp_clock_ns() - trace.flushed_ns < FLUSH_NS))
        return;
    const int64_t begin = ddp_trace_begin();
    pthread_mutex_lock(&trace.lock);
    struct ring *rings = trace.rings;
    pthread_mutex_unlock(&trace.lock);
    for (struct ring *ring = rings; ring; ring = ring->next)
        flush_ring(ring);
    write_chunk();
    trace.flushed_ns = ddp_clock_ns();
    ddp_trace_end("write trace", begin, NULL, 0);
}

enum ddp_status ddp_trace_open(const char *path, int rank, bool create)
{
    char name[NAME_BYTES];
    snprintf(trace.path, sizeof trace.path, "%s", path);
    struct stat info;
    enum ddp_status status = ddp_open_for_writing(&trace.fd, path, create ? O_CREAT | O_TRUNC : 0);
    if (status != DDP_OK)
        return status;
    trace.closed = fstat(trace.fd, &info) == 0 && S_ISREG(info.st_mode) &&
                   (flock(trace.fd, LOCK_EX | LOCK_NB) == 0 || errno == EWOULDBLOCK);
    flock(trace.fd, LOCK_UN);
    if (!trace.closed)
        fcntl(trace.fd, F_SETFL, fcntl(trace.fd, F_GETFL) | O_APPEND);
    trace.rank = rank;
    trace.failed = trace.finished = false;
    trace.reader = pthread_self();
    trace.flushed_ns = ddp_clock_ns();
    start_chunk();
    trace.tracks = trace.named_count = 0;
    atomic_fetch_add_explicit(&trace.generation, 1, memory_order_release);
    if (create)
        add_line("[\n");
    snprintf(name, sizeof name, "rank %d", rank);
    add_name("process_name", 0, name);
    add_sort_index(",\n");
    write_chunk();
    return DDP_OK;
}

void ddp_trace_finish(void)
{
    ddp_trace_set_recording(false);
    ddp_trace_flush(true);
    trace.finished = true;
}

void ddp_trace_close(bool complete)
{
    uint64_t dropped = 0;
    if (trace.fd < 0)
        return;
    ddp_trace_finish();
    /* An event without a comma after it, so that the whole is one JSON text. */
    if (complete && !trace.closed) {
        add_sort_index("\n]\n");
        write_chunk();
    }
    if (close(trace.fd) < 0 && !trace.failed)
        give_up();
    trace.fd = -1;
    atomic_fetch_add_explicit(&trace.generation, 1, memory_order_release);
    while (trace.rings) {
        struct ring *ring = trace.rings;
        trace.rings = ring->next;
        dropped += atomic_load(&ring->dropped);
        ddp_pages_free(ring, sizeof *ring);
    }
    if (dropped > 0)
        ddp_log(DDP_LOG_WARNING, "%s: %" PRIu64 " spans came too fast and were dropped", trace.path,
                dropped);
}

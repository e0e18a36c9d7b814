/* SPDX-License-Identifier: MIT
 *
 * See relay.h. One poll() over all pipes. A stream that is in the middle of a line longer than its
 * buffer owns its output until the line ends (or a second passes without a byte); the others wait
 * meanwhile. Output that cannot be written, on a full disk for example, is dropped, and the workers
 * continue: hours of work may depend on it. They only notice when the reader has closed. */
#include "config.h"

#include "launcher/relay.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "launcher/repeats.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES   65536
#define OUT_BYTES      131072
#define OWNER_NS       1000000000 /* how long the others wait for the end of a line */
#define IN_SIGHT_BYTES 800        /* that others have shown since: about ten lines */
#define HOLD_NS        300000000  /* how long an error text is held back after its last line */
#define VERDICT_NS     700000000  /* the same, after the end, where rank 0 has the terminal */
#define DRAIN_NS       500000000  /* at the end: how long to wait for a pipe that is still open */

enum slot_state {
    FREE,
    OPEN,
    ENDED, /* nothing more will come; the tail can be read */
};

struct slot {
    enum slot_state
        state; /* guarded by the relay's mutex; all else belongs to the thread while OPEN */
    struct relay_stream stream;
    char *buffer; /* what is not shown yet */
    size_t used;
    bool in_line;    /* part of the line in the buffer is out already */
    bool held;       /* an error text is held back, to be compared with other ranks' */
    int64_t read_ns; /* when the last bytes came, or the end */
    bool at_end;     /* all is read; the rest of the buffer waits for the output's owner */
    char tail[RELAY_TAIL];
    size_t tail_bytes; /* of all that ever came */
    uint64_t shown_at; /* the relay's shown_bytes when this stream was last shown */
};

struct relay {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a slot ended */
    int done;               /* eventfd: all is written */
    int wake;               /* eventfd: slots were added, or the end is wanted */
    bool finishing;
    /* These are written by the thread alone, and read by relay_tail() too. */
    _Atomic uint64_t read_bytes;
    _Atomic uint64_t shown_bytes; /* on standard output and error together */
    atomic_bool broken[3];        /* standard output (1) or error (2) has no reader any more */
    atomic_bool lacks_rank_0;
    atomic_bool alike;
    struct repeats repeats;
    struct slot *owner[3];
    int64_t owner_since_ns;
    int capacity;
    struct slot *slots;
    struct pollfd *polled;
    int *polled_slot;
    char *out;
};

/* --- writing --------------------------------------------------------------------------------- */

/* What this process cannot write: standard output (1), standard error (2), log files (0). It stays
 * so when another relay follows. */
static atomic_bool lost[3];

bool relay_has_lost(void)
{
    return lost[0] || lost[STDOUT_FILENO] || lost[STDERR_FILENO];
}

void relay_lose_file(const char *path)
{
    if (!atomic_exchange(&lost[0], true))
        ddp_log(DDP_LOG_ERROR,
                "%s: cannot be written: %s; the job continues, its log files are incomplete", path,
                strerror(errno));
}

static void lose_output(int fd)
{
    if (!atomic_exchange(&lost[fd], true))
        ddp_log(DDP_LOG_ERROR, "standard %s cannot be written: %s; the job continues without it",
                fd == STDOUT_FILENO ? "output" : "error", strerror(errno));
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EAGAIN) {
            /* Somebody made the terminal non-blocking. */
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, 1000);
        } else if (n < 0 && errno != EINTR) {
            return false;
        } else if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

static void show(struct relay *relay, int fd, const char *data, size_t bytes)
{
    if (bytes == 0 || relay->broken[fd] || lost[fd])
        return;
    ddp_bar_clear();
    if (write_all(fd, data, bytes))
        relay->shown_bytes += bytes;
    else if (errno == EPIPE)
        relay->broken[fd] = true;
    else
        lose_output(fd);
}

/* Puts the prefix before each line of data[0..bytes) and shows it. */
static void show_lines(struct relay *relay, struct slot *slot, const char *data, size_t bytes)
{
    const char *prefix = slot->stream.prefix;
    size_t prefix_bytes = strlen(prefix), used = 0;
    int fd = slot->stream.shown_on;
    if (prefix_bytes == 0) {
        show(relay, fd, data, bytes);
        return;
    }
    if (slot->stream.bare && atomic_load(slot->stream.bare))
        prefix_bytes = 0;
    while (bytes > 0) {
        const char *newline = memchr(data, '\n', bytes);
        size_t line = newline ? (size_t)(newline - data) + 1 : bytes;
        if (used + prefix_bytes + line > OUT_BYTES) {
            show(relay, fd, relay->out, used);
            used = 0;
        }
        if (!slot->in_line) {
            memcpy(relay->out + used, prefix, prefix_bytes);
            used += prefix_bytes;
        }
        memcpy(relay->out + used, data, line);
        used += line;
        slot->in_line = !newline;
        data += line;
        bytes -= line;
    }
    show(relay, fd, relay->out, used);
}

/* May the text that is held back be shown, or left out? */
static bool is_due(const struct relay *relay, const struct slot *slot, bool at_end)
{
    const int64_t past_ns = ddp_clock_ns() - slot->read_ns;
    if (slot->at_end && relay->lacks_rank_0 && !relay->alike)
        return past_ns > VERDICT_NS;
    return at_end || past_ns > HOLD_NS || slot->used > BUFFER_BYTES / 2;
}

/* Shows `ready` bytes of the buffer, but holds an error text back, and leaves it out where another
 * rank has shown the same. Returns how many bytes are done with. */
static size_t show_compared(struct relay *relay, struct slot *slot, size_t ready, bool at_end)
{
    const int rank = slot->stream.rank;
    const size_t start = slot->in_line ? ready : repeats_find_error(slot->buffer, ready);
    const char *error = slot->buffer + start;
    show_lines(relay, slot, slot->buffer, start);
    slot->held = start < ready && !is_due(relay, slot, at_end);
    if (start == ready || slot->held)
        return start;
    if (slot->at_end && relay->lacks_rank_0 && relay->alike)
        repeats_like_rank_0(&relay->repeats, rank, error, ready - start);
    else if (!repeats_has(&relay->repeats, rank, error, ready - start))
        show_lines(relay, slot, error, ready - start);
    return ready;
}

/* Shows what can be shown of a slot's buffer: all whole lines; all of it at the end, or when it is
 * full. */
static void flush_slot(struct relay *relay, struct slot *slot, bool at_end)
{
    int fd = slot->stream.shown_on;
    if (fd < 0) {
        slot->used = 0;
        return;
    }
    if (relay->owner[fd] && relay->owner[fd] != slot)
        return;
    const char *newline = slot->stream.prefix[0] ? memrchr(slot->buffer, '\n', slot->used) : NULL;
    size_t ready = newline ? (size_t)(newline - slot->buffer) + 1 : 0;
    if (at_end || !slot->stream.prefix[0] || slot->in_line ||
        (ready == 0 && slot->used == BUFFER_BYTES))
        ready = slot->used;
    if (fd == STDERR_FILENO && slot->stream.prefix[0])
        ready = show_compared(relay, slot, ready, at_end);
    else
        show_lines(relay, slot, slot->buffer, ready);
    if (ready > 0)
        slot->shown_at = relay->shown_bytes;
    memmove(slot->buffer, slot->buffer + ready, slot->used - ready);
    slot->used -= ready;
    if (at_end && slot->in_line) {
        show(relay, fd, "\n", 1);
        slot->in_line = false;
    }
    relay->owner[fd] = slot->in_line ? slot : NULL;
    if (slot->in_line)
        relay->owner_since_ns = ddp_clock_ns();
}

/* --- reading --------------------------------------------------------------------------------- */

static void keep_tail(struct slot *slot, const char *data, size_t bytes)
{
    if (bytes > RELAY_TAIL) {
        slot->tail_bytes += bytes - RELAY_TAIL;
        data += bytes - RELAY_TAIL;
        bytes = RELAY_TAIL;
    }
    while (bytes > 0) {
        size_t at = slot->tail_bytes % RELAY_TAIL;
        size_t part = bytes < RELAY_TAIL - at ? bytes : RELAY_TAIL - at;
        memcpy(slot->tail + at, data, part);
        slot->tail_bytes += part;
        data += part;
        bytes -= part;
    }
}

/* Its worker notices: the next write fails, or kills it as a closed pipe does. */
static bool unwanted(const struct relay *relay, const struct slot *slot)
{
    int fd = slot->stream.shown_on;
    return fd >= 0 && relay->broken[fd] && slot->stream.file < 0;
}

/* Shows the rest of a stream that has ended, unless another one owns the output: then later. */
static void finish_slot(struct relay *relay, struct slot *slot)
{
    int fd = slot->stream.shown_on;
    if (fd >= 0 && relay->owner[fd] && relay->owner[fd] != slot)
        return;
    flush_slot(relay, slot, true);
    if (slot->held)
        return;
    pthread_mutex_lock(&relay->mutex);
    slot->state = ENDED;
    pthread_cond_broadcast(&relay->changed);
    pthread_mutex_unlock(&relay->mutex);
}

/* Some file systems say only here that they have no room. */
static void close_file(struct slot *slot)
{
    if (slot->stream.file >= 0 && close(slot->stream.file) < 0 && errno != EINTR)
        relay_lose_file(slot->stream.file_path);
    slot->stream.file = -1;
    free(slot->stream.file_path);
    slot->stream.file_path = NULL;
}

static void lose_matching(struct slot *slot)
{
    relay_lose_file("the file of filtered lines");
    slot->stream.matching.filters = NULL;
}

static void end_slot(struct relay *relay, struct slot *slot)
{
    close(slot->stream.source);
    close_file(slot);
    if (!matching_end(&slot->stream.matching, slot->stream.prefix))
        lose_matching(slot);
    slot->at_end = true;
    slot->read_ns = ddp_clock_ns();
    finish_slot(relay, slot);
}

static void read_slot(struct relay *relay, struct slot *slot)
{
    char *at = slot->buffer + slot->used;
    ssize_t n = read(slot->stream.source, at, BUFFER_BYTES - slot->used);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0) {
        if (slot->stream.file >= 0 && !write_all(slot->stream.file, at, (size_t)n)) {
            relay_lose_file(slot->stream.file_path);
            close_file(slot);
        }
        keep_tail(slot, at, (size_t)n);
        if (!matching_take(&slot->stream.matching, slot->stream.prefix, at, (size_t)n))
            lose_matching(slot);
        slot->read_ns = ddp_clock_ns();
        slot->used += (size_t)n;
        relay->read_bytes += (uint64_t)n;
        flush_slot(relay, slot, false);
    }
    if (n <= 0 || unwanted(relay, slot))
        end_slot(relay, slot);
}

/* Lines that had to wait for an owner. */
static void flush_waiting(struct relay *relay)
{
    int64_t now = ddp_clock_ns();
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct slot *owner = relay->owner[fd];
        if (owner && now - relay->owner_since_ns > OWNER_NS) {
            show(relay, fd, "\n", 1);
            owner->in_line = false;
            relay->owner[fd] = NULL;
        }
    }
    for (int i = 0; i < relay->capacity; i++) {
        struct slot *slot = &relay->slots[i];
        pthread_mutex_lock(&relay->mutex);
        bool open = slot->state == OPEN;
        pthread_mutex_unlock(&relay->mutex);
        if (open && slot->at_end)
            finish_slot(relay, slot);
        else if (open && slot->used > 0)
            flush_slot(relay, slot, false);
    }
}

/* Fills the poll set; returns its size.
 *   waiting [out]  some lines wait: for an owner of the output, or to be compared */
static int gather(struct relay *relay, bool *finishing, bool *waiting)
{
    int n = 0;
    *waiting = false;
    relay->polled[n++] = (struct pollfd){.fd = relay->wake, .events = POLLIN};
    pthread_mutex_lock(&relay->mutex);
    *finishing = relay->finishing;
    for (int i = 0; i < relay->capacity; i++) {
        const struct slot *slot = &relay->slots[i];
        *waiting = *waiting || (slot->state == OPEN && (slot->at_end || slot->held));
        if (slot->state != OPEN || slot->at_end || slot->used == BUFFER_BYTES)
            continue;
        relay->polled_slot[n] = i;
        relay->polled[n++] = (struct pollfd){.fd = slot->stream.source, .events = POLLIN};
    }
    pthread_mutex_unlock(&relay->mutex);
    return n;
}

static void notify(int event_fd)
{
    const uint64_t one = 1;
    while (write(event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void *run(void *arg)
{
    struct relay *relay = arg;
    int64_t last_ns = ddp_clock_ns();
    bool noting = false;
    for (;;) {
        bool finishing, waiting;
        bool owned = relay->owner[STDOUT_FILENO] || relay->owner[STDERR_FILENO];
        uint64_t woken;
        int n = gather(relay, &finishing, &waiting);
        if (finishing && n == 1 && !waiting)
            break;
        int ready =
            poll(relay->polled, (nfds_t)n, owned || finishing || waiting || noting ? 100 : -1);
        if (relay->polled[0].revents & POLLIN && read(relay->wake, &woken, sizeof woken) < 0)
            continue;
        for (int i = 1; i < n && ready > 0; i++)
            if (relay->polled[i].revents)
                read_slot(relay, &relay->slots[relay->polled_slot[i]]);
        if (owned || waiting)
            flush_waiting(relay);
        noting = repeats_note(&relay->repeats, false);
        if (ready > 0)
            last_ns = ddp_clock_ns();
        else if (finishing && ddp_clock_ns() - last_ns > DRAIN_NS)
            for (int i = 1; i < n; i++)
                end_slot(relay, &relay->slots[relay->polled_slot[i]]);
    }
    repeats_note(&relay->repeats, true);
    notify(relay->done);
    return NULL;
}

/* --- the other threads' side ----------------------------------------------------------------- */

static void relay_free(struct relay *relay)
{
    for (int i = 0; relay->slots && i < relay->capacity; i++)
        free(relay->slots[i].buffer);
    if (relay->wake >= 0)
        close(relay->wake);
    if (relay->done >= 0)
        close(relay->done);
    free(relay->slots);
    free(relay->polled);
    free(relay->polled_slot);
    free(relay->out);
    free(relay);
}

enum ddp_status relay_start(struct relay **relay, int capacity)
{
    struct relay *r = ddp_array_alloc(1, sizeof *r);
    if (!r)
        return DDP_ERR_MEMORY;
    pthread_condattr_t monotonic;
    int error;
    r->capacity = capacity;
    r->slots = ddp_array_alloc((size_t)capacity, sizeof *r->slots);
    r->polled = ddp_array_alloc((size_t)capacity + 1, sizeof *r->polled);
    r->polled_slot = ddp_array_alloc((size_t)capacity + 1, sizeof *r->polled_slot);
    r->out = ddp_array_alloc(OUT_BYTES, 1);
    r->wake = eventfd(0, EFD_CLOEXEC);
    r->done = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    enum ddp_status status = DDP_OK;
    if (!r->slots || !r->polled || !r->polled_slot || !r->out)
        status = DDP_ERR_MEMORY;
    else if (r->wake < 0 || r->done < 0)
        status = ddp_fail(DDP_ERR_SYSTEM, "cannot make an eventfd: %s", strerror(errno));
    else if ((error = pthread_create(&r->thread, NULL, run, r)) != 0)
        status = ddp_fail(
            DDP_ERR_SYSTEM, "cannot start the thread that relays output: %s%s", strerror(error),
            error == EAGAIN ? " (the limit of processes, ulimit -u, is reached)" : "");
    if (status != DDP_OK) {
        relay_free(r);
        return status;
    }
    *relay = r;
    return DDP_OK;
}

void relay_lacks_rank_0(struct relay *relay)
{
    atomic_store(&relay->lacks_rank_0, true);
}

void relay_failed_alike(struct relay *relay)
{
    atomic_store(&relay->alike, true);
}

enum ddp_status relay_add(struct relay *relay, const struct relay_stream *stream, int *slot)
{
    char *buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for the output of a worker");
    pthread_mutex_lock(&relay->mutex);
    for (int i = 0; i < relay->capacity; i++) {
        struct slot *s = &relay->slots[i];
        if (s->state != FREE)
            continue;
        *s = (struct slot){.state = OPEN, .stream = *stream, .buffer = buffer};
        *slot = i;
        pthread_mutex_unlock(&relay->mutex);
        notify(relay->wake);
        return DDP_OK;
    }
    pthread_mutex_unlock(&relay->mutex);
    free(buffer);
    return ddp_fail(DDP_ERR_MEMORY, "too many streams to relay");
}

/* Waits, with the mutex held, until the stream has ended. */
static bool wait_end(struct relay *relay, const struct slot *slot, int timeout_ms)
{
    int64_t end_ns = ddp_clock_ns() + (int64_t)timeout_ms * 1000000;
    struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    while (slot->state == OPEN)
        if (pthread_cond_timedwait(&relay->changed, &relay->mutex, &end) == ETIMEDOUT)
            break;
    return slot->state != OPEN;
}

void relay_tail(struct relay *relay, int slot, int timeout_ms, char text[RELAY_TAIL + 1],
                bool *in_sight)
{
    struct slot *s = &relay->slots[slot];
    text[0] = 0;
    pthread_mutex_lock(&relay->mutex);
    bool ended = wait_end(relay, s, timeout_ms);
    int fd = s->stream.shown_on;
    *in_sight = fd >= 0 && !relay->broken[fd] && !lost[fd] &&
                relay->shown_bytes - s->shown_at < IN_SIGHT_BYTES;
    if (ended) {
        size_t kept = s->tail_bytes < RELAY_TAIL ? s->tail_bytes : RELAY_TAIL;
        for (size_t i = 0; i < kept; i++)
            text[i] = s->tail[(s->tail_bytes - kept + i) % RELAY_TAIL];
        text[kept] = 0;
        char *newline = s->tail_bytes > RELAY_TAIL ? strchr(text, '\n') : NULL;
        if (newline && newline[1])
            memmove(text, newline + 1, strlen(newline + 1) + 1);
    }
    pthread_mutex_unlock(&relay->mutex);
}

uint64_t relay_bytes(const struct relay *relay)
{
    return relay->read_bytes;
}

int relay_end(struct relay *relay)
{
    pthread_mutex_lock(&relay->mutex);
    relay->finishing = true;
    pthread_mutex_unlock(&relay->mutex);
    notify(relay->wake);
    return relay->done;
}

void relay_close(struct relay *relay)
{
    pthread_join(relay->thread, NULL);
    relay_free(relay);
}

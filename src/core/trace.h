/* SPDX-License-Identifier: MIT
 *
 * A record of what each thread did when, as a Chrome trace (JSON): one file for all processes of a
 * job, which Perfetto and chrome://tracing open. Spans are kept in a buffer of their thread and
 * written out between steps. Recording a span costs two readings of the clock and a store; when
 * nothing records, a load and a branch.
 *
 *     const int64_t begin = ddp_trace_begin();
 *     ... work ...
 *     ddp_trace_end("forward", begin, "shard", shard);
 *
 * Names, keys and texts are not copied: they must live until the trace is closed. */
#ifndef DDP_CORE_TRACE_H
#define DDP_CORE_TRACE_H

#include "ddp.h"

#include "core/clock.h"

extern const int *ddp_trace_recording; /* read and written atomically */

/* The time, or 0 when nothing records. */
static inline int64_t ddp_trace_begin(void)
{
    return __atomic_load_n(ddp_trace_recording, __ATOMIC_RELAXED) ? ddp_clock_ns() : 0;
}

struct ddp_trace_event {
    const char *name;
    int64_t begin_ns, end_ns;
    const char *key;  /* of the argument; NULL: none */
    const char *text; /* the argument; NULL: it is `value` */
    int64_t value;
    bool overlaps; /* others on this thread: shown on its own track, distinguished by `id` */
    uint32_t id;
    const char *track; /* shown on a track of this name, such as a device's; NULL: the thread's */
};

/* For the functions below. */
void ddp_trace_record(const struct ddp_trace_event *event);

/* This thread did `name` since `begin`. Spans of a thread nest. begin == 0: nothing happens. */
static inline void ddp_trace_end(const char *name, int64_t begin, const char *key, int64_t value)
{
    if (begin) {
        const struct ddp_trace_event event = {name, begin, ddp_clock_ns(), key, NULL, value, 0,
                                              0,    NULL};
        ddp_trace_record(&event);
    }
}

static inline void ddp_trace_end_text(const char *name, int64_t begin, const char *key,
                                      const char *text)
{
    if (begin) {
        const struct ddp_trace_event event = {name, begin, ddp_clock_ns(), key, text, 0, 0,
                                              0,    NULL};
        ddp_trace_record(&event);
    }
}

/* The same for work in the background, such as an all-reduce that was started. */
static inline void ddp_trace_end_overlapping(const char *name, int64_t begin, uint32_t id,
                                             const char *key, int64_t value)
{
    if (begin) {
        const struct ddp_trace_event event = {name, begin, ddp_clock_ns(), key, NULL, value, 1,
                                              id,   NULL};
        ddp_trace_record(&event);
    }
}

/* Names the calling thread's track, such as "loader". The first thread to record is "main". */
void ddp_trace_name_thread(const char *name);

/* From now on a plugin's copy of this file records into the trace of the program that loaded it.
 *   recording  whether that records
 *   record     takes what ddp_trace_record() gets */
void ddp_trace_set_sink(const int *recording, void (*record)(const struct ddp_trace_event *event));

/* Opens the file of this process's trace; one at a time. Nothing is recorded yet. Every process of
 * the job opens the same file, rank 0 with `create` and before all others. DDP_ERR_IO names the
 * path. */
enum ddp_status ddp_trace_open(const char *path, int rank, bool create);

/* Begins or ends recording. */
void ddp_trace_set_recording(bool on);

/* Writes out what has been recorded, if the last time was a while ago, or if `now`. Called, like
 * the functions below, by the thread that opened the trace. */
void ddp_trace_flush(bool now);

/* Ends recording and writes out the rest: after this the process writes nothing to the file. */
void ddp_trace_finish(void);

/* Frees everything, after ddp_trace_finish() if that was not called. No thread may record any more.
 *   complete  all processes have finished, and this one adds the end of the file */
void ddp_trace_close(bool complete);

#endif

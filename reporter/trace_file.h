/* SPDX-License-Identifier: MIT
 *
 * What trainer --trace wrote, read back. */
#ifndef DDP_REPORTER_TRACE_FILE_H
#define DDP_REPORTER_TRACE_FILE_H

#include "ddp.h"

#define TRACE_NAME 40

enum span_kind { SPAN_STEP, SPAN_COMPUTE, SPAN_COMMUNICATION, SPAN_WAIT, SPAN_OTHER };

/* A thread was busy with something. */
struct trace_span {
    char name[TRACE_NAME];
    enum span_kind kind;
    double begin, end; /* microseconds */
    double own;        /* of its time, what no span inside of it takes; microseconds */
    int process, thread;
    int64_t step; /* that it lies in, from 1; 0: none */
    int depth;    /* spans around it; -1: in the background, beside others of its thread */
};

struct trace_thread {
    int process, thread;
    char name[TRACE_NAME];
};

struct trace {
    struct trace_span *spans; /* by process, thread, time */
    struct trace_thread *threads;
    size_t span_count, thread_count;
};

/* What the steps of all workers took, summed, in microseconds: on the threads that train. */
struct trace_exposed {
    double steps, communication, waiting; /* the last two are parts of the first */
};

/* DDP_ERR_IO names the file; DDP_ERR_FORMAT: not such a trace, or it has no step;
 * DDP_ERR_MEMORY. trace [out] freed with trace_free(), also after a failure. */
enum ddp_status trace_read(struct trace *trace, const char *path);
enum ddp_status trace_parse(struct trace *trace, const char *name, const char *text, size_t bytes);
void trace_free(struct trace *trace);

/* Adds to what is there. */
void trace_exposed(const struct trace *trace, struct trace_exposed *exposed);

#endif

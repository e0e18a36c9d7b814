/* SPDX-License-Identifier: MIT
 *
 * See trace_file.h. Chrome's trace format as core/trace.c writes it: an array with one event a
 * line. A file that is being written, or whose last line was cut off, is read up to there. */
#include "config.h"

#include "reporter/trace_file.h"

#include "core/input_file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

#include <stdlib.h>
#include <string.h>

#define TRACE_BYTES  ((size_t)2 << 30) /* larger ones are something else */
#define NUMBER_LIMIT (1 << 30)
#define DEPTH        64 /* spans inside of spans */

/* What has spans of its own inside is its own time only: waits are inside of collectives, say. */
static enum span_kind kind_of(const char *name)
{
    static const struct {
        const char *name;
        enum span_kind kind;
    } kinds[] = {
        {"step", SPAN_STEP},
        {"wait", SPAN_WAIT},
        {"wait for data", SPAN_WAIT},
        {"all-gather", SPAN_COMMUNICATION},
        {"all-reduce", SPAN_COMMUNICATION},
        {"barrier", SPAN_COMMUNICATION},
        {"broadcast", SPAN_COMMUNICATION},
        {"bucket", SPAN_COMMUNICATION},
        {"finish all-reduces", SPAN_COMMUNICATION},
        {"gather, loss", SPAN_COMMUNICATION},
        {"reduce slice", SPAN_COMMUNICATION},
        {"reduce-scatter", SPAN_COMMUNICATION},
        {"scatter", SPAN_COMMUNICATION},
        {"sum gradients", SPAN_COMMUNICATION},
        {"wait for gradients", SPAN_COMMUNICATION},
        {"backward", SPAN_COMPUTE},
        {"forward", SPAN_COMPUTE},
        {"loss", SPAN_COMPUTE},
        {"merge", SPAN_COMPUTE},
        {"norm", SPAN_COMPUTE},
        {"update", SPAN_COMPUTE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return kinds[i].kind;
    return SPAN_OTHER;
}

static int small_of(const json_t *object, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(object, key));
    return value >= 0 && value < NUMBER_LIMIT ? (int)value : 0;
}

static void clean(char to[TRACE_NAME], const char *text)
{
    ddp_text_clean(to, TRACE_NAME, text ? text : "", text ? strlen(text) : 0);
}

static enum ddp_status add_thread(struct trace *trace, const json_t *event)
{
    struct trace_thread thread = {small_of(event, "pid"), small_of(event, "tid"), ""};
    clean(thread.name, json_string_value(json_object_get(json_object_get(event, "args"), "name")));
    return ddp_array_append(&trace->threads, &trace->thread_count, &thread, sizeof thread);
}

/* The second half of a span in the background. */
static void end_background(struct trace *trace, const struct trace_span *end)
{
    for (size_t i = trace->span_count; i-- > 0;) {
        struct trace_span *span = &trace->spans[i];
        if (span->depth == -1 && span->end < span->begin && span->process == end->process &&
            span->thread == end->thread && span->own == end->own) {
            span->end = end->begin;
            return;
        }
    }
}

static enum ddp_status add_event(struct trace *trace, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    const char *phase = json_string_value(json_object_get(event, "ph"));
    struct trace_span span = {
        .begin = json_number_value(json_object_get(event, "ts")),
        .process = small_of(event, "pid"),
        .thread = small_of(event, "tid"),
    };
    if (!name || !phase)
        return DDP_OK;
    if (strcmp(phase, "M") == 0)
        return strcmp(name, "thread_name") == 0 ? add_thread(trace, event) : DDP_OK;
    clean(span.name, name);
    span.kind = kind_of(span.name);
    if (strcmp(phase, "X") == 0) {
        span.own = json_number_value(json_object_get(event, "dur"));
        span.end = span.begin + span.own;
        if (span.kind == SPAN_STEP)
            span.step = small_of(json_object_get(event, "args"), "step");
    } else {
        const json_t *id = json_object_get(json_object_get(event, "id2"), "local");
        span.depth = -1;
        span.end = span.begin - 1; /* not known yet */
        span.own = json_is_string(id) ? strtod(json_string_value(id), NULL) : 0;
        if (strcmp(phase, "e") == 0)
            end_background(trace, &span);
        if (strcmp(phase, "b") != 0)
            return DDP_OK;
    }
    return ddp_array_append(&trace->spans, &trace->span_count, &span, sizeof span);
}

/* --- what lies in what ------------------------------------------------------------------------ */

static int compare_spans(const void *a, const void *b)
{
    const struct trace_span *one = a, *other = b;
    if (one->process != other->process)
        return one->process < other->process ? -1 : 1;
    if (one->thread != other->thread)
        return one->thread < other->thread ? -1 : 1;
    if (one->begin != other->begin)
        return one->begin < other->begin ? -1 : 1;
    return (one->end < other->end) - (one->end > other->end);
}

static void nest(struct trace *trace)
{
    struct trace_span *around[DEPTH];
    int depth = 0;
    for (size_t i = 0; i < trace->span_count; i++) {
        struct trace_span *span = &trace->spans[i];
        if (span->depth == -1)
            continue;
        /* Times have three digits after the point, and may be off by the last one. */
        while (depth > 0 && (around[depth - 1]->process != span->process ||
                             around[depth - 1]->thread != span->thread ||
                             around[depth - 1]->end < span->begin + 0.0015))
            depth--;
        span->depth = depth;
        if (depth > 0) {
            around[depth - 1]->own -= span->end - span->begin;
            span->step = around[depth - 1]->step;
        }
        if (depth < DEPTH)
            around[depth++] = span;
    }
}

enum ddp_status trace_parse(struct trace *trace, const char *name, const char *text, size_t bytes)
{
    enum ddp_status status = DDP_OK;
    bool has_step = false;
    *trace = (struct trace){.span_count = 0};
    for (size_t at = 0; status == DDP_OK && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t next = end ? (size_t)(end - text) + 1 : bytes;
        size_t length = end ? next - at - 1 : bytes - at;
        json_t *event = NULL;
        json_error_t error;
        while (length > 0 && (text[at + length - 1] == ',' || text[at + length - 1] == ']'))
            length--;
        if (length > 0 && text[at] == '{' &&
            ddp_json_parse_flags(&event, text + at, length, 0, &error) == DDP_OK) {
            status = add_event(trace, event);
            json_decref(event);
        } else if (length > 0 && text[at] != '[' && end) {
            return ddp_fail(DDP_ERR_FORMAT, "%s: not a trace that trainer --trace wrote", name);
        }
        at = next;
    }
    if (status != DDP_OK)
        return status;
    if (trace->span_count > 0)
        qsort(trace->spans, trace->span_count, sizeof *trace->spans, compare_spans);
    nest(trace);
    for (size_t i = 0; i < trace->span_count && !has_step; i++)
        has_step = trace->spans[i].kind == SPAN_STEP;
    return has_step ? DDP_OK
                    : ddp_fail(DDP_ERR_FORMAT, "%s: no step is in this trace (see --trace)", name);
}

enum ddp_status trace_read(struct trace *trace, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    *trace = (struct trace){.span_count = 0};
    enum ddp_status status =
        ddp_input_file_read_whole(path, "no trace of a training", TRACE_BYTES, &text, &bytes);
    if (status != DDP_OK)
        return status;
    status = trace_parse(trace, path, text, bytes);
    free(text);
    return status;
}

void trace_free(struct trace *trace)
{
    free(trace->spans);
    free(trace->threads);
    *trace = (struct trace){.span_count = 0};
}

void trace_exposed(const struct trace *trace, struct trace_exposed *exposed)
{
    for (size_t i = 0; i < trace->span_count; i++) {
        const struct trace_span *span = &trace->spans[i];
        if (span->kind == SPAN_STEP)
            exposed->steps += span->end - span->begin;
        if (span->step == 0 || span->depth < 1)
            continue;
        if (span->kind == SPAN_COMMUNICATION)
            exposed->communication += span->own;
        if (span->kind == SPAN_WAIT)
            exposed->waiting += span->own;
    }
}

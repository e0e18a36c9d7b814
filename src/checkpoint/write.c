/* SPDX-License-Identifier: MIT
 *
 * The writing half of checkpoint.h. Training stops for the copy into the snapshot alone; a thread
 * writes the files into a temporary directory, syncs and renames it, then removes what is older
 * than --keep allows. One write at a time. Without a snapshot training stops until all of that is
 * done. */
#include "config.h"

#include "checkpoint/checkpoint.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"
#include "core/trace.h"
#include "core/write.h"
#include "weights/weights.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define PIECE_BYTES ((size_t)1 << 20) /* summed and written while it is in the cache */

struct ddp_checkpoint_writer {
    const struct ddp_checkpoint_dir *dir;
    const ddp_graph *graph;
    int64_t keep;
    bool keep_best, no_link; /* the second: none can be made, which was said */
    int array_count;
    char **array_names;
    float **arrays; /* the snapshot; NULL each: they come from */
    const struct ddp_flat_source *source;
    bool *left_out; /* of this checkpoint */
    size_t array_bytes;
    char own_file[DDP_CHECKPOINT_OWN_NAME]; /* "": none */
    void *own;
    size_t own_bytes;
    struct ddp_checkpoint_state state;
    pthread_t thread;
    bool running;             /* the thread is to be joined */
    enum ddp_status status;   /* of the thread, valid when done */
    int64_t begin_ns, end_ns; /* for the trace */
    atomic_bool done;
};

/* --- files ------------------------------------------------------------------------------------ */

/* A file of a checkpoint while it is written. */
struct output {
    const char *path; /* for messages */
    int fd;
    struct ddp_checkpoint_part_sum sum;
};

static enum ddp_status put(void *arg, const void *data, size_t bytes)
{
    struct output *output = arg;
    const char *next = data;
    while (bytes > 0) {
        const size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        output->sum.crc32 = (uint32_t)crc32_z(output->sum.crc32, (const Bytef *)next, piece);
        output->sum.bytes += piece;
        if (ddp_write_all(output->fd, next, piece) < 0)
            return ddp_fail_path(output->path, "write");
        next += piece;
        bytes -= piece;
    }
    return DDP_OK;
}

static enum ddp_status output_open(struct output *output, int dir_fd, const char *name)
{
    output->fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return output->fd < 0 ? ddp_fail_path(output->path, "make") : DDP_OK;
}

/* Syncs on success, closes always. */
static enum ddp_status output_close(struct output *output, enum ddp_status status)
{
    if (output->fd < 0)
        return status;
    if (status == DDP_OK && ddp_sync(output->fd) < 0)
        status = ddp_fail_path(output->path, "sync");
    if (close(output->fd) < 0 && status == DDP_OK)
        status = ddp_fail_path(output->path, "close");
    return status;
}

/* Tensors that come from a source: the array and the parameter of each. */
struct parts {
    const struct ddp_flat_source *source;
    int *arrays;
    const struct ddp_parameter **parameters;
};

static enum ddp_status put_tensor(void *arg, size_t tensor, ddp_safetensors_sink *sink,
                                  void *sink_arg)
{
    const struct parts *parts = arg;
    const struct ddp_parameter *parameter = parts->parameters[tensor];
    return ddp_flat_source_put(parts->source, parts->arrays[tensor], parameter->offset,
                               parameter->count, sink, sink_arg);
}

/* Writes arrays [first, end) as one file of tensors. */
static enum ddp_status put_arrays(struct ddp_checkpoint_writer *writer, struct output *output,
                                  int first, int end)
{
    struct ddp_safetensors_pair pairs[2];
    const bool described = first == 0 && *ddp_graph_description(writer->graph);
    const size_t pair_count = described ? ddp_train_weights_metadata(pairs, writer->graph) : 0;
    size_t count = 0, at = 0;
    for (int i = first; i < end; i++)
        if (!writer->left_out[i])
            count += ddp_checkpoint_tensor_count(writer->graph, writer->array_names[i]);
    struct ddp_safetensor *tensors = ddp_array_alloc(count, sizeof *tensors);
    char **names = ddp_array_alloc(count, sizeof *names);
    struct parts parts = {writer->source, ddp_array_alloc(count, sizeof *parts.arrays),
                          ddp_array_alloc(count, sizeof(void *))};
    enum ddp_status status =
        tensors && names && parts.arrays && parts.parameters ? DDP_OK : DDP_ERR_MEMORY;
    for (int i = first; status == DDP_OK && i < end; i++) {
        if (writer->left_out[i])
            continue;
        status = ddp_checkpoint_tensors(writer->graph, writer->array_names[i], writer->arrays[i],
                                        tensors + at, names + at, parts.parameters + at);
        const size_t last = at + ddp_checkpoint_tensor_count(writer->graph, writer->array_names[i]);
        while (at < last)
            parts.arrays[at++] = i;
    }
    if (status == DDP_OK)
        status =
            ddp_safetensors_write_to(put, output, output->path, writer->source ? put_tensor : NULL,
                                     &parts, tensors, count, pairs, pair_count);
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(parts.parameters);
    free(parts.arrays);
    free(names);
    free(tensors);
    return status;
}

static enum ddp_status write_part(struct ddp_checkpoint_writer *writer, int dir_fd,
                                  const char *path, int part)
{
    struct output output = {.path = path, .fd = -1};
    const bool model = part == DDP_CHECKPOINT_MODEL;
    enum ddp_status status = output_open(&output, dir_fd, ddp_checkpoint_part_names[part]);
    if (status == DDP_OK)
        status = put_arrays(writer, &output, model ? 0 : 1, model ? 1 : writer->array_count);
    status = output_close(&output, status);
    writer->state.parts[part] = output.sum;
    return status;
}

/* The program's own state. */
static enum ddp_status write_own(struct ddp_checkpoint_writer *writer, int dir_fd, const char *path)
{
    struct output output = {.path = path, .fd = -1};
    if (!*writer->own_file)
        return DDP_OK;
    enum ddp_status status = output_open(&output, dir_fd, writer->own_file);
    if (status == DDP_OK)
        status = put(&output, writer->own, writer->own_bytes);
    status = output_close(&output, status);
    writer->state.own = output.sum;
    return status;
}

static enum ddp_status write_state(struct ddp_checkpoint_writer *writer, int dir_fd,
                                   const char *path)
{
    struct output output = {.path = path, .fd = -1};
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status = ddp_checkpoint_state_format(&text, &bytes, &writer->state);
    if (status == DDP_OK)
        status = output_open(&output, dir_fd, "state.json");
    if (status == DDP_OK)
        status = put(&output, text, bytes);
    status = output_close(&output, status);
    free(text);
    return status;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Removes what is older than the `keep` newest. The one just written is among those, and whole.
 * What DIR/best names stays, also in a run that does not look for the best. */
static void remove_old(const struct ddp_checkpoint_writer *writer)
{
    const int64_t newest = writer->state.cursor.step;
    const int64_t linked = ddp_checkpoint_dir_best(writer->dir);
    const int64_t best = writer->keep_best ? writer->state.best.step : linked;
    int64_t *steps = NULL, kept = 1;
    size_t count = 0;
    if (writer->keep == 0 || ddp_checkpoint_dir_list(writer->dir, &steps, &count) != DDP_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        if (steps[i] >= newest || !ddp_checkpoint_looks_whole(writer->dir->fd, steps[i]))
            continue; /* a damaged one is left for its owner to look at */
        if (kept < writer->keep)
            kept++;
        else if (steps[i] != linked && steps[i] != best)
            ddp_checkpoint_dir_remove(writer->dir, steps[i]);
    }
    free(steps);
}

static enum ddp_status write_checkpoint(struct ddp_checkpoint_writer *writer)
{
    const int64_t step = writer->state.cursor.step;
    char name[DDP_CHECKPOINT_NAME];
    char *path = ddp_path_in(writer->dir->path, ddp_checkpoint_name(name, step));
    int fd;
    if (!path)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_checkpoint_dir_begin(writer->dir, step, &fd);
    if (status == DDP_OK) {
        for (int i = 0; status == DDP_OK && i < DDP_CHECKPOINT_PARTS; i++)
            status = write_part(writer, fd, path, i);
        if (status == DDP_OK)
            status = write_own(writer, fd, path);
        if (status == DDP_OK)
            status = write_state(writer, fd, path);
        if (status == DDP_OK)
            status = ddp_checkpoint_dir_commit(writer->dir, step, fd);
        close(fd);
        if (status != DDP_OK)
            ddp_checkpoint_dir_discard(writer->dir, step);
    }
    free(path);
    if (status == DDP_OK && writer->keep_best && writer->state.best.step == step &&
        !writer->no_link)
        writer->no_link = !ddp_checkpoint_dir_set_best(writer->dir, step);
    if (status == DDP_OK)
        remove_old(writer);
    return status;
}

static void *write_snapshot(void *arg)
{
    struct ddp_checkpoint_writer *writer = arg;
    writer->begin_ns = ddp_trace_begin();
    writer->status = write_checkpoint(writer);
    writer->end_ns = ddp_clock_ns();
    atomic_store(&writer->done, true);
    return NULL;
}

/* Touches the snapshot's memory while training begins, so that the first copy into it is as fast as
 * the others. */
static void *touch_snapshot(void *arg)
{
    struct ddp_checkpoint_writer *writer = arg;
    for (int i = 0; i < writer->array_count; i++)
        for (size_t at = 0; at < writer->array_bytes; at += DDP_PAGE)
            ((volatile char *)writer->arrays[i])[at] = 0;
    atomic_store(&writer->done, true);
    return NULL;
}

/* The thread takes no signals, so a limit on the size of files comes as an error, which has a
 * message, instead of a SIGXFSZ that kills. */
static enum ddp_status start_thread(struct ddp_checkpoint_writer *writer, void *(*main)(void *))
{
    atomic_store(&writer->done, false);
    writer->begin_ns = 0;
    const int error = ddp_thread_create(&writer->thread, main, writer);
    if (error)
        return ddp_thread_failed(error, "a thread for checkpoints");
    writer->running = true;
    return DDP_OK;
}

/* --- for training ----------------------------------------------------------------------------- */

enum ddp_status ddp_checkpoint_writer_create(ddp_checkpoint_writer **writer,
                                             const struct ddp_checkpoint_writer_config *config)
{
    struct ddp_checkpoint_writer *w = ddp_array_alloc(1, sizeof *w);
    if (!w)
        return DDP_ERR_MEMORY;
    w->graph = config->graph;
    w->keep = config->keep;
    w->keep_best = config->keep_best;
    w->array_count = config->array_count;
    w->array_bytes = (size_t)ddp_graph_flat_count(config->graph) * sizeof(float);
    w->dir = config->dir;
    w->source = config->source;
    const size_t arrays = (size_t)config->array_count;
    w->array_names = ddp_array_alloc(arrays, sizeof *w->array_names);
    w->arrays = ddp_array_alloc(arrays, sizeof *w->arrays);
    w->left_out = ddp_array_alloc(arrays, sizeof *w->left_out);
    const bool good = w->array_names && w->arrays && w->left_out;
    enum ddp_status status = good ? DDP_OK : DDP_ERR_MEMORY;
    for (int i = 1; status == DDP_OK && i < config->array_count; i++)
        if (!(w->array_names[i] = strdup(config->array_names[i])))
            status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    for (int i = 0; status == DDP_OK && !w->source && i < config->array_count; i++)
        if (!(w->arrays[i] = ddp_pages_alloc(w->array_bytes)))
            status = DDP_ERR_MEMORY;
    if (status == DDP_OK && !w->source)
        status = start_thread(w, touch_snapshot);
    if (status != DDP_OK) {
        ddp_checkpoint_writer_destroy(w);
        return status;
    }
    *writer = w;
    return DDP_OK;
}

void ddp_checkpoint_writer_destroy(ddp_checkpoint_writer *writer)
{
    if (!writer)
        return;
    ddp_checkpoint_wait(writer);
    for (int i = 0; i < writer->array_count; i++) {
        if (writer->arrays)
            ddp_pages_free(writer->arrays[i], writer->array_bytes);
        if (writer->array_names)
            free(writer->array_names[i]);
    }
    free(writer->arrays);
    free(writer->array_names);
    free(writer->left_out);
    free(writer->own);
    free(writer);
}

enum ddp_status ddp_checkpoint_begin(ddp_checkpoint_writer *writer, float *const **arrays)
{
    enum ddp_status status = ddp_checkpoint_wait(writer);
    if (status != DDP_OK)
        return status;
    *arrays = writer->source ? NULL : writer->arrays;
    memset(writer->left_out, 0, (size_t)writer->array_count * sizeof *writer->left_out);
    *writer->own_file = '\0';
    free(writer->own);
    writer->own = NULL;
    return DDP_OK;
}

void ddp_checkpoint_leave_out(ddp_checkpoint_writer *writer, int i)
{
    writer->left_out[i] = true;
}

enum ddp_status ddp_checkpoint_add_own(ddp_checkpoint_writer *writer, const char *file,
                                       const void *bytes, size_t count)
{
    writer->own = ddp_array_alloc(count, 1);
    if (!writer->own)
        return DDP_ERR_MEMORY;
    if (count > 0)
        memcpy(writer->own, bytes, count);
    writer->own_bytes = count;
    snprintf(writer->own_file, sizeof writer->own_file, "%s", file);
    return DDP_OK;
}

/* For the trace, from the thread that trains. */
static void record(const struct ddp_checkpoint_writer *writer)
{
    const struct ddp_trace_event event = {.name = "write checkpoint",
                                          .begin_ns = writer->begin_ns,
                                          .end_ns = writer->end_ns,
                                          .key = "step",
                                          .value = writer->state.cursor.step,
                                          .overlaps = !writer->source};
    if (writer->begin_ns)
        ddp_trace_record(&event);
}

enum ddp_status ddp_checkpoint_start(ddp_checkpoint_writer *writer,
                                     const struct ddp_checkpoint_state *state)
{
    writer->state = *state;
    snprintf(writer->state.own_file, sizeof writer->state.own_file, "%s", writer->own_file);
    if (!writer->source)
        return start_thread(writer, write_snapshot);
    write_snapshot(writer);
    record(writer);
    return DDP_OK;
}

enum ddp_status ddp_checkpoint_poll(ddp_checkpoint_writer *writer)
{
    return atomic_load(&writer->done) ? ddp_checkpoint_wait(writer) : DDP_OK;
}

bool ddp_checkpoint_is_writing(const ddp_checkpoint_writer *writer)
{
    return writer->running && !atomic_load(&writer->done);
}

enum ddp_status ddp_checkpoint_wait(ddp_checkpoint_writer *writer)
{
    if (writer->running) {
        pthread_join(writer->thread, NULL);
        writer->running = false;
        record(writer);
    }
    return writer->status;
}

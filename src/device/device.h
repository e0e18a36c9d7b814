/* SPDX-License-Identifier: MIT
 *
 * Where tensors live and operations run. A device is one processor that a worker or replica
 * computes on: memory, a stream on which copies and operations happen in order, and the kernels for
 * it. The CPU is built in; others come from plugins. Nothing here knows of graphs or training. */
#ifndef DDP_DEVICE_DEVICE_H
#define DDP_DEVICE_DEVICE_H

#include "ddp.h"

#include "core/trace.h"
#include "kernels/kernels.h"

typedef struct ddp_device ddp_device;

/* What a kind of device provides. `state` is what open() made. Everything but open, close, alloc
 * and free is ordered on the device's stream and may return before it is done; synchronize() waits.
 * This struct crosses the plugin border: a change in it changes DDP_PLUGIN_ABI. */
struct ddp_device_ops {
    const char *name;   /* "cpu", "cuda" */
    bool host_memory;   /* the host may read and write the device's memory directly */
    int (*count)(void); /* devices of this kind, 0 when unusable */
    enum ddp_status (*open)(void **state, int index,
                            int threads); /* threads: for kinds that compute with host threads */
    void (*close)(void *state);
    enum ddp_status (*alloc)(void *state, size_t bytes, void **memory); /* zeroed, page-aligned */
    void (*free)(void *state, void *memory, size_t bytes);
    enum ddp_status (*copy_in)(void *state, void *device, const void *host, size_t bytes);
    enum ddp_status (*copy_out)(void *state, void *host, const void *device,
                                size_t bytes); /* host is valid after synchronize */
    enum ddp_status (*copy)(void *state, void *destination, const void *source,
                            size_t bytes); /* between devices of this kind */
    enum ddp_status (*synchronize)(void *state);
    void *(*stream)(void *state); /* the last argument of every kernel */
    const struct ddp_kernels *kernels;
    /* Below: NULL where a kind has no use for it. */
    const char *(*describe)(void *state); /* "NVIDIA H200, 139.8 GiB" */
    /* What is put on this stream from now on waits for what is on the other's, of the same kind. */
    enum ddp_status (*wait)(void *state, void *other);
    /* synchronize() of what was on the stream at the last mark(), which lets what follows run on;
     * of copy_out() only that to page-locked memory is there then. */
    enum ddp_status (*mark)(void *state);
    enum ddp_status (*wait_mark)(void *state);
    /* Called while synchronize() waits; its failure ends the wait and is returned. NULL: none. */
    void (*set_poll)(void *state, enum ddp_status (*poll)(void *arg), void *arg);
    /* Page-locked host memory, from which copy_in() returns at once and overlaps with computing: it
     * may be written again after copied(). */
    enum ddp_status (*host_alloc)(void *state, size_t bytes, void **memory);
    void (*host_free)(void *state, void *memory, size_t bytes);
    enum ddp_status (*copied)(
        void *state); /* waits until all copy_in() have read their host memory */
    /* Work beside the stream's, on memory that is not the device's own but that its kernels use:
     * page-locked host memory, or the device's where there is none of that. What gets the stream
     * aside() begins after all that is on the device's stream; after aside_join() that waits for
     * it. */
    enum ddp_status (*aside_alloc)(void *state, size_t bytes, void **memory);
    void (*aside_free)(void *state, void *memory, size_t bytes);
    enum ddp_status (*aside)(void *state, void **stream);
    enum ddp_status (*aside_join)(void *state);
    /* Input buffers that are filled while others are read, each with a slot of its own, 0 or 1.
     * fill() copies from host memory as soon as the work that the last leave() of the slot stood
     * behind is done; after arrive() the stream finds all that was filled; leave() says that what
     * reads the slot's buffers is on the stream. */
    enum ddp_status (*fill)(void *state, int slot, void *device, const void *host, size_t bytes);
    enum ddp_status (*arrive)(void *state, int slot);
    enum ddp_status (*leave)(void *state, int slot);
    /* What is put on the stream between begin and end is not run but recorded, and run by each
     * replay. A recording that fails leaves *recording NULL and is no error. */
    enum ddp_status (*record_begin)(void *state);
    enum ddp_status (*record_end)(void *state, void **recording);
    enum ddp_status (*replay)(void *state, void *recording);
    void (*recording_free)(void *state, void *recording);
    /* Around an operation, while a trace records (core/trace.h): shows when the device ran it. */
    void (*span_begin)(void *state);
    void (*span_end)(void *state, const struct ddp_trace_event *event);
    /* Where a product has several algorithms, which differ in bits: choices of these, found by
     * timing, by shape. choices_name() says what they are good for, as the name of a file; NULL:
     * none are made. Between tune_begin() and tune_end() products are not computed; those without a
     * choice are counted, and with `time` timed and chosen for. Choices travel as text: of all that
     * there are, freed with free(); import() adds to them, or replaces them, and counts damaged
     * lines, which it leaves out. Not while recording. */
    const char *(*choices_name)(void *state);
    void (*tune_begin)(void *state, bool time);
    int (*tune_end)(void *state);
    enum ddp_status (*choices_export)(void *state, char **text);
    enum ddp_status (*choices_import)(void *state, const char *text, bool replace, size_t *damaged);
    /* Why count() is 0, as the end of a sentence; NULL: there simply is none. */
    const char *(*reason)(void);
    /* Whether that is a fault which may hide devices, and not a lack of them. */
    bool (*faulty)(void);
    /* Bytes of the device's memory, and what nobody uses of it now. NULL: it is the host's. */
    enum ddp_status (*memory)(void *state, size_t *total, size_t *unused);
};

extern const struct ddp_device_ops ddp_device_cpu;

/* What a kind means here, before any device is opened. */
struct ddp_device_kind {
    const char *name; /* "auto" is resolved */
    bool host_memory;
    int count; /* devices of it; 0 for the CPU, which takes any index */
    const struct ddp_kernels *kernels;
    const char *fault; /* what hides GPUs from "auto", as the end of a sentence; or NULL */
};

/* DDP_ERR_UNSUPPORTED: no such kind here, or no device of it (says what to do). */
enum ddp_status ddp_device_find(struct ddp_device_kind *found, const char *kind);

/* Opens device `index` of a kind: "cpu", "cuda", or "auto" (a GPU where a plugin finds one, else
 * the CPU).
 *   index    the CPU takes any number
 *   threads  host threads that compute on a CPU device, at least 1
 *
 * DDP_ERR_UNSUPPORTED: no such kind here (says what to install) or no device of that index. */
enum ddp_status ddp_device_open(ddp_device **device, const char *kind, int index, int threads);
void ddp_device_close(ddp_device *device);

const char *ddp_device_name(const ddp_device *device);
bool ddp_device_host_memory(const ddp_device *device);
const struct ddp_kernels *ddp_device_kernels(const ddp_device *device);
void *ddp_device_stream(const ddp_device *device);
void *ddp_device_state(const ddp_device *device); /* what its kind's open() made */

enum ddp_status ddp_device_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_device_free(ddp_device *device, void *memory, size_t bytes); /* takes NULL memory */
enum ddp_status ddp_device_copy_in(ddp_device *device, void *destination, const void *host,
                                   size_t bytes);
enum ddp_status ddp_device_copy_out(ddp_device *device, void *host, const void *source,
                                    size_t bytes);
enum ddp_status ddp_device_copy(ddp_device *device, void *destination, const void *source,
                                size_t bytes);
enum ddp_status ddp_device_synchronize(ddp_device *device);

/* Waits for what was put on the stream before the last mark, not for what came after. What
 * copy_out() brought to memory of ddp_device_host_alloc() before it is there then. */
enum ddp_status ddp_device_mark(ddp_device *device);
enum ddp_status ddp_device_wait_mark(ddp_device *device);

/* In words; the name where the kind has no more to say. */
const char *ddp_device_describe(const ddp_device *device);

/* Bytes of its memory, and what nobody uses of it now; of the host's, what there is. */
enum ddp_status ddp_device_memory(ddp_device *device, size_t *total, size_t *unused);

/* What is put on `device` from now on waits for what is on `other`, of the same kind. */
enum ddp_status ddp_device_wait(ddp_device *device, ddp_device *other);
void ddp_device_set_poll(ddp_device *device, enum ddp_status (*poll)(void *arg), void *arg);

/* Host memory for copy_in(), page-locked where the kind knows that; ordinary pages elsewhere. After
 * copied() it may be written again. */
enum ddp_status ddp_device_host_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_device_host_free(ddp_device *device, void *memory, size_t bytes);
enum ddp_status ddp_device_copied(ddp_device *device);

/* Work aside; see struct ddp_device_ops. Where the kind cannot: the device's memory and stream. */
enum ddp_status ddp_device_aside_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_device_aside_free(ddp_device *device, void *memory, size_t bytes); /* takes NULL memory */
enum ddp_status ddp_device_aside(ddp_device *device, void **stream);
enum ddp_status ddp_device_aside_join(ddp_device *device);

/* Filling input buffers ahead; see struct ddp_device_ops. Where the kind cannot, fill() is
 * copy_in().
 */
enum { DDP_DEVICE_SLOTS = 2 };
enum ddp_status ddp_device_fill(ddp_device *device, int slot, void *destination, const void *host,
                                size_t bytes);
enum ddp_status ddp_device_arrive(ddp_device *device, int slot);
enum ddp_status ddp_device_leave(ddp_device *device, int slot);

/* Recording and replaying of the operations between begin and end. Where the kind cannot, begin is
 * DDP_ERR_UNSUPPORTED without a message, and nothing is recorded. */
enum ddp_status ddp_device_record_begin(ddp_device *device);
enum ddp_status ddp_device_record_end(ddp_device *device, void **recording);
enum ddp_status ddp_device_replay(ddp_device *device, void *recording);
void ddp_device_recording_free(ddp_device *device, void *recording);

/* Choices of algorithms; see struct ddp_device_ops. Where the kind has none: false, and nothing. */
bool ddp_device_has_choices(const ddp_device *device);
const char *ddp_device_choices_name(ddp_device *device);
void ddp_device_tune_begin(ddp_device *device, bool time);
int ddp_device_tune_end(ddp_device *device);
enum ddp_status ddp_device_choices_export(ddp_device *device, char **text);
enum ddp_status ddp_device_choices_import(ddp_device *device, const char *text, bool replace,
                                          size_t *damaged);

/* An operation on the device's stream, for the trace: its time there is shown on a track of the
 * device. `begin` is what ddp_trace_begin() gave; 0: nothing happens. Name, key and text live until
 * the trace is closed. */
void ddp_device_span_begin(ddp_device *device, int64_t begin);
void ddp_device_span_end(ddp_device *device, int64_t begin, const char *name, const char *key,
                         const char *text);

#endif

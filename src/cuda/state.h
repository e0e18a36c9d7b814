/* SPDX-License-Identifier: MIT
 *
 * A GPU, as the files of this folder share it.
 *
 * Two streams: operations and copies that are ordered with them are on cuda.stream; the input slots
 * are filled on `filling`, beside it. Neither waits for the legacy stream, which is not used. */
#ifndef DDP_CUDA_STATE_H
#define DDP_CUDA_STATE_H

#include "cuda/device.h"

#define DDP_CUDA_CHUNKS      4 /* of page-locked memory, that ordinary memory is copied through */
#define DDP_CUDA_CHUNK_BYTES ((size_t)2 << 20)
#define DDP_CUDA_SPANS       4096 /* between two synchronisations */
#define DDP_CUDA_TRACED      8    /* streams with spans */

/* A piece of page-locked memory on its way to or from the device. */
struct ddp_cuda_chunk {
    char *memory;
    cudaEvent_t copied;
    bool busy;
    void *host; /* its destination after the copy; NULL: it was copied to the device */
    size_t bytes;
};

struct ddp_cuda_slot {
    cudaEvent_t filled, left;
    bool filling; /* host memory may still be read */
    bool used;    /* there is a `left` to wait for */
};

struct ddp_cuda_span {
    cudaEvent_t begin, end;
    cudaStream_t stream;
    bool complete; /* `end` was recorded */
    bool told;     /* it is in the trace, or never will be */
    struct ddp_trace_event event;
};

struct ddp_cuda_device {
    struct ddp_cuda cuda; /* first: what operations get is this address */
    cudaStream_t filling;
    struct ddp_cuda aside;        /* the same GPU by another stream */
    cudaEvent_t ahead, joined;    /* what that waits for, and what waits for it */
    cudaEvent_t done;             /* what the host waits for */
    cudaEvent_t marked;           /* ... where it does not wait for all */
    cudaEvent_t handed;           /* what another device waits for */
    cudaEvent_t read;             /* copies in from page-locked memory */
    bool reading;                 /* ... there are some */
    struct ddp_cuda_fault *fault; /* the host's address */
    enum ddp_status (*poll)(void *arg);
    void *poll_arg;
    bool lost;  /* a wait has failed */
    bool stuck; /* the work on the streams does not end */
    char *staging;
    struct ddp_cuda_chunk chunks[DDP_CUDA_CHUNKS];
    int next_chunk;
    struct ddp_cuda_slot slots[DDP_DEVICE_SLOTS];
    bool graphs;             /* work is recorded when asked to */
    bool recording, refused; /* refused: something was asked for that cannot be recorded */
    struct ddp_cuda_span *spans, *open_span; /* the spans in a ring; NULL until one is needed */
    size_t span_first, span_count;
    cudaEvent_t base; /* a moment that is known on both clocks */
    int64_t base_ns;
    struct {
        cudaStream_t stream;
        int64_t end_ns;
    } told[DDP_CUDA_TRACED]; /* until when each stream's spans are in the trace */
    int replica;             /* among the open devices on this GPU */
    char description[320];
    char choices[192]; /* what choices of algorithms are good for */
};

/* Makes it the calling thread's device: the first thing in every function that others call. */
static inline void ddp_cuda_use(const struct ddp_cuda_device *gpu)
{
    (void)cudaSetDevice(gpu->cuda.index); /* fails as all that follows does, which says so */
}

/* Waits for an event, polls meanwhile, gives up when that fails. */
enum ddp_status ddp_cuda_wait_event(struct ddp_cuda_device *gpu, cudaEvent_t event);

/* Before memory is freed: waits until no work uses it. Not for ever, if the work waits for another
 * process that has ended. False: it may still be in use, and freeing it would wait for ever, so it
 * must be left. */
bool ddp_cuda_quiesce(struct ddp_cuda_device *gpu);

enum ddp_status ddp_cuda_alloc(void *state, size_t bytes, void **memory);
void ddp_cuda_free(void *state, void *memory, size_t bytes);
enum ddp_status ddp_cuda_host_alloc(void *state, size_t bytes, void **memory);
void ddp_cuda_host_free(void *state, void *memory, size_t bytes);
enum ddp_status ddp_cuda_aside_alloc(void *state, size_t bytes, void **memory);
void ddp_cuda_aside_free(void *state, void *memory, size_t bytes);
enum ddp_status ddp_cuda_copy_in(void *state, void *device, const void *host, size_t bytes);
enum ddp_status ddp_cuda_copy_out(void *state, void *host, const void *device, size_t bytes);
enum ddp_status ddp_cuda_copy(void *state, void *destination, const void *source, size_t bytes);
enum ddp_status ddp_cuda_copied(void *state);
enum ddp_status ddp_cuda_fill(void *state, int slot, void *device, const void *host, size_t bytes);
enum ddp_status ddp_cuda_arrive(void *state, int slot);
enum ddp_status ddp_cuda_leave(void *state, int slot);
/* Hands out what copy_out() has brought, all of which has arrived; or forgets it. */
void ddp_cuda_deliver(struct ddp_cuda_device *gpu);
void ddp_cuda_forget(struct ddp_cuda_device *gpu);
void ddp_cuda_staging_free(struct ddp_cuda_device *gpu);

enum ddp_status ddp_cuda_record_begin(void *state);
enum ddp_status ddp_cuda_record_end(void *state, void **recording);
enum ddp_status ddp_cuda_replay(void *state, void *recording);
void ddp_cuda_recording_free(void *state, void *recording);
/* Whether it is recording: then the call cannot be recorded, and nothing is. */
bool ddp_cuda_refuse(struct ddp_cuda_device *gpu);

/* tune.c */
void ddp_cuda_name_choices(struct ddp_cuda_device *gpu, const char *model);
const char *ddp_cuda_choices_name(void *state);
void ddp_cuda_tune_begin(void *state, bool time);
int ddp_cuda_tune_end(void *state);
enum ddp_status ddp_cuda_choices_export(void *state, char **text);
enum ddp_status ddp_cuda_choices_import(void *state, const char *text, bool replace,
                                        size_t *damaged);

/* Several devices may be open on one GPU: each has tracks of its own. */
void ddp_cuda_tracks_open(struct ddp_cuda_device *gpu);
void ddp_cuda_tracks_close(const struct ddp_cuda_device *gpu);
void ddp_cuda_trace_begin(void *state);
void ddp_cuda_trace_end(void *state, const struct ddp_trace_event *event);
/* After a wait for the compute stream: what is done goes into the trace. */
void ddp_cuda_spans_collect(struct ddp_cuda_device *gpu);
void ddp_cuda_spans_free(struct ddp_cuda_device *gpu);

#endif

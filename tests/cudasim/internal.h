/* SPDX-License-Identifier: MIT
 *
 * Inside the simulated runtime: what its parts know of each other. Everything here is called with
 * the lock held. */
#ifndef DDP_TESTS_CUDASIM_INTERNAL_H
#define DDP_TESTS_CUDASIM_INTERNAL_H

#include "tests/cudasim/device.h"
#include "tests/cudasim/fibre.h"
#include "tests/cudasim/sim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { SIM_MAX_DEVICES = 16, SIM_MAX_THREADS = 1024, SIM_WARP = 32 };
enum { SIM_SHARED_BYTES = 48 << 10, SIM_SHARED_OPTIN_BYTES = 227 << 10 };

/* --- settings (settings.c): the environment, read once --- */

enum sim_order { SIM_FORWARD, SIM_REVERSE, SIM_RANDOM };

struct sim_settings {
    bool eager;           /* DDP_CUDASIM_STREAMS=eager: operations run when they are enqueued */
    bool protect;         /* DDP_CUDASIM_PROTECT=1: the host may not touch a device's memory */
    enum sim_order order; /* DDP_CUDASIM_ORDER: of blocks and threads */
    uint64_t seed;        /* of random:SEED */
    int device_count;     /* DDP_CUDASIM_DEVICES, less what CUDA_VISIBLE_DEVICES leaves out */
    int physical[SIM_MAX_DEVICES]; /* which of them each device is */
    size_t memory_bytes;           /* DDP_CUDASIM_MEMORY, of each device */
    const char *wrong; /* DDP_CUDASIM_WRONG=float32, bf16 or mma: products by this are wrong */
    int ptx_version;   /* DDP_CUDASIM_PTX=75: what the kernels were compiled for */
    int cudnn_version; /* DDP_CUDASIM_CUDNN, as 91900; 0: there is no cuDNN */
    bool leaks; /* DDP_CUDASIM_LEAKS=1: the process ends with a report if it holds anything */
};

extern struct sim_settings sim_settings;
uint64_t sim_random(void);

/* --- one call of the interface (call.c) --- */

/* First and last in each function: takes the lock and says whether the call fails before it has
 * begun; gives the lock back and keeps an error for cudaGetLastError(). */
cudaError_t sim_enter(const char *name);
cudaError_t sim_leave(cudaError_t error);

/* Of each thread of the host. All of it is here, as shared memory may be thread-local, too, and is
 * poisoned. */
struct sim_host_thread {
    cudaError_t last_error;
    int device;
    int lock_depth;
};

extern __thread struct sim_host_thread sim_host_thread;
bool sim_is_owner(void);  /* whether this is the process that used CUDA */
uint64_t sim_calls(void); /* how often sim_enter() was called in this process */

/* Gives the lock up for some microseconds, to wait for another thread or process. */
void sim_pause(long microseconds);

/* An error of a device that every later call returns. */
cudaError_t sim_device_error(int device);
void sim_fail_device(int device, cudaError_t error);

/* --- memory (memory.c) --- */

enum sim_memory { SIM_UNKNOWN, SIM_DEVICE, SIM_PINNED, SIM_REGISTERED, SIM_FREED };

struct sim_allocation {
    char *start;
    size_t bytes;
    char *mapping; /* with the guards; NULL for registered memory */
    size_t mapping_bytes;
    enum sim_memory kind;
    int device;
    int holders; /* communicators that it is registered with */
};

/* The allocation that an address lies in (or just behind), NULL for memory of the plain host. */
const struct sim_allocation *sim_find(const void *address);
cudaError_t sim_pinned_malloc(void **memory, size_t bytes);
cudaError_t sim_register(void *memory, size_t bytes);
cudaError_t sim_unregister(void *memory);
cudaError_t sim_pinned_free(void *memory);
/* Adds to the holders of the allocation around an address: while there are any it is not freed. */
void sim_hold(const void *memory, int holders);
size_t sim_memory_used(int device);
bool sim_peer_enabled(int device, int peer);
void sim_enable_peer(int device, int peer);
void sim_protect(bool on); /* does nothing without the setting */
/* What lies at an address, in words, for a report. */
void sim_describe(const void *address, char *text, size_t size);

/* --- streams (stream.c) --- */

/* A point in a stream that others wait for. */
struct sim_mark {
    int references;
    bool done;
    struct CUstream_st *stream;  /* NULL once done */
    uint64_t number;             /* of the operation in its stream */
    struct timespec time;        /* when it was reached */
    struct sim_capture *capture; /* recorded while capturing: a place in a graph */
    struct sim_mark *copy;       /* of a graph's mark, during a launch */
};

struct sim_mark *sim_mark_create(void);
void sim_mark_release(struct sim_mark *mark); /* takes NULL */

enum sim_step { SIM_STEP_OPERATION, SIM_STEP_RECORD, SIM_STEP_WAIT, SIM_STEP_HOST };

struct sim_entry {
    struct sim_entry *next;
    const char *name;
    enum sim_step step;
    enum sim_kind kind;
    sim_operation *operation;
    cudaHostFn_t host;
    void *host_argument;
    struct sim_mark *mark;
    int branch; /* in a graph: which of its streams */
    size_t bytes;
    char arguments[] __attribute__((aligned(16)));
};

struct sim_capture;
struct sim_threads;

struct CUstream_st {
    struct CUstream_st *next; /* of all streams */
    int device;
    unsigned flags;
    int priority;
    struct sim_entry *head, **tail;
    uint64_t submitted, completed;
    uint64_t last_poll; /* number of the last SIM_POLL operation */
    bool running;
    int users;  /* who waits for it */
    bool asked; /* cudaStreamQuery() has said once that it is not done */
    bool closed;
    struct sim_capture *capture;
    int branch;              /* of the capture */
    struct sim_fibre *fibre; /* under ThreadSanitizer: what operations run on */
    struct sim_entry *now;   /* of that fibre */
    cudaError_t result;
    struct sim_threads *threads; /* of kernels on this stream, under ThreadSanitizer */
};

enum { SIM_STREAM_DEFAULT = 1 << 8 }; /* a flag: the one that NULL means */

/* The stream that a handle means (NULL: the default stream of the calling thread's device); NULL
 * for a handle of no stream. */
struct CUstream_st *sim_stream(cudaStream_t handle);
struct sim_entry *sim_entry_create(const char *name, enum sim_step step, size_t bytes);
void sim_entry_free(struct sim_entry *entry);
void sim_submit(struct CUstream_st *stream, struct sim_entry *entry);
void sim_submit_record(struct CUstream_st *stream, struct sim_mark *mark);
void sim_submit_wait(struct CUstream_st *stream, struct sim_mark *mark);
struct CUstream_st *sim_stream_create(int device, unsigned flags, int priority);
void sim_stream_close(struct CUstream_st *stream);

/* Runs what is needed until a stream has come to an operation; false: that must wait for another
 * process or thread. */
bool sim_advance(struct CUstream_st *stream, uint64_t number);
void sim_advance_polled(void); /* all streams as far as their last SIM_POLL operation */
cudaError_t sim_wait(struct CUstream_st *stream, uint64_t number);
cudaError_t sim_wait_device(int device);
struct CUstream_st *sim_streams(void);        /* the first of all */
struct CUstream_st *sim_running_stream(void); /* whose operation runs */

/* --- capture (capture.c) --- */

/* Takes an entry into the graph that a stream captures. */
void sim_capture_add(struct CUstream_st *stream, struct sim_entry *entry);
/* Whether something has gone wrong while it captures. Then it takes nothing any more. */
bool sim_capture_spoiled(const struct CUstream_st *stream);
/* What a call that waits or allocates returns while a capture forbids it, which spoils it. */
cudaError_t sim_capture_forbids(void);
/* A stream takes part in the capture that a mark was recorded in from now on. */
cudaError_t sim_capture_join(struct CUstream_st *stream, struct sim_mark *mark);

/* --- kernels (block.c) --- */

struct sim_launch {
    const char *name;
    void (*call)(void *arguments);
    dim3 grid, block;
    size_t shared_bytes;
    bool thread_local_shared, all_blocks;
};

/* Runs all blocks on `arguments`, here and now. `stream` has the fibres of its threads. */
void sim_run_kernel(const struct sim_launch *launch, void *arguments, struct CUstream_st *stream);
/* "kernel NAME, block (..), thread (..)", or "" when none runs. */
void sim_running_kernel(char *text, size_t size);
void sim_threads_free(struct sim_threads *threads);

/* A report for memory faults (fault.c); once. */
void sim_catch_faults(void);

#endif

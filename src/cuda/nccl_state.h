/* SPDX-License-Identifier: MIT
 *
 * What the files of the NCCL communicator share.
 *
 * It has its own stream: a collective waits there for the work on the device's compute stream, and
 * the compute stream then waits for the collective. The host waits only in alloc, free and barrier,
 * in NCCL's own set-up, and in ddp_device_synchronize(), which polls nccl_check(). That function
 * detects all failures: the job's abort word, NCCL's own errors, a deadline, ranks that do not
 * agree. Then this communicator sets the abort word and is aborted, and so are all others.
 *
 * When ranks call different collectives, NCCL does not report it but hangs. So each rank writes its
 * calls to a page of the job's heap that all map, and compares. */
#ifndef DDP_CUDA_NCCL_STATE_H
#define DDP_CUDA_NCCL_STATE_H

#include "comm/comm.h"

#include "cuda/device.h"

#include <cuda_runtime.h>
#include <nccl.h>

#define NCCL_PENDING      64
#define NCCL_SETUP_MS     600000             /* for the others to come up */
#define NCCL_SCRATCH_MOST ((size_t)32 << 20) /* what is larger is added up in pieces */
#define NCCL_SMALL        ((size_t)16 << 10) /* bytes that everybody adds up alone */
#define NCCL_ALIGN        ((size_t)256)      /* of the parts in the scratch */

enum nccl_kind {
    NCCL_CREATE,
    NCCL_ALLREDUCE,
    NCCL_ALLREDUCE_STARTED,
    NCCL_REDUCE_SCATTER,
    NCCL_SLICES_STARTED,
    NCCL_ALL_GATHER,
    NCCL_GATHER_SLICES,
    NCCL_BROADCAST,
    NCCL_BARRIER,
    NCCL_ALLOC,
    NCCL_FREE,
    NCCL_DESTROY,
};

/* What a rank calls; all ranks must call the same. */
struct nccl_call {
    uint8_t kind, dtype, op, fast;
    int32_t root; /* of a broadcast; the grain of slices */
    uint64_t count;
};

/* A collective that is on the stream. */
struct nccl_pending {
    struct nccl_call call;
    uint32_t number;        /* of the call */
    cudaEvent_t begin, end; /* around it on the communicator's stream */
    int64_t begun_ns;       /* since when the host knows that it runs; 0: not yet */
};

struct nccl_block {
    struct nccl_block *next;
    void *memory, *handle; /* handle: of ncclCommRegister(), or NULL */
    size_t bytes;
    bool of_nccl; /* from ncclMemAlloc() */
};

struct nccl_calls; /* the page of all ranks' calls */

struct nccl {
    struct nccl *next; /* on the list of the communicators to poll */
    const struct ddp_comm_place *place;
    struct ddp_cuda *cuda; /* the device's: its stream is the one to keep in step with */
    struct ddp_cuda own;   /* the same on the communicator's stream */
    ncclComm_t comm;       /* NULL in a world of one */
    cudaEvent_t computed;  /* on the device's stream */
    enum ddp_status dead;  /* what ended it */
    bool stuck;            /* its work could not be ended in time: nothing of it may be touched */
    bool waits;            /* the board says so */
    bool closing;          /* failures do not matter any more */

    struct nccl_block *blocks;
    char *scratch;
    size_t scratch_bytes;
    int32_t *vote;      /* two words on the device */
    int32_t *vote_host; /* a page-locked word */

    struct nccl_pending pending[NCCL_PENDING];
    unsigned first, last;       /* of those that are on the stream; last: the next one's place */
    struct ddp_cuda_span *span; /* of the next one, for the trace */
    bool to_join;               /* the device's stream does not wait for the last one yet */

    struct nccl_calls *calls; /* NULL: there is no heap */
    size_t calls_bytes;
    uint32_t called, compared; /* calls of this rank, and those found to be the same everywhere */
};

/* --- nccl_wait.c: waiting and failing --- */

/* One look at everything that can go wrong. Never waits, unless it fails. */
enum ddp_status nccl_check(struct nccl *nccl);

/* A wait of the host: call between two looks at what is waited for. */
struct nccl_nap {
    int64_t deadline_ns;
    int64_t nap_ns;
    int spins;
};
struct nccl_nap nccl_nap_begin(int timeout_ms);
enum ddp_status nccl_nap(struct nccl *nccl, struct nccl_nap *nap, const struct nccl_call *call);

/* Waits until NCCL has taken what it was given; `result` is what its call returned. */
enum ddp_status nccl_taken(struct nccl *nccl, ncclResult_t result, const struct nccl_call *call);

/* Waits until the device has come to this event. */
enum ddp_status nccl_wait_event(struct nccl *nccl, cudaEvent_t event, const struct nccl_call *call);

/* Waits for everything on the communicator's stream. */
enum ddp_status nccl_drain(struct nccl *nccl, const struct nccl_call *call);

/* Ends the communicator: sets the job's abort word, aborts NCCL within a bounded time, and then the
 * device's other communicators. Returns the status. What happened has been logged. */
enum ddp_status nccl_end(struct nccl *nccl, enum ddp_status status);

/* Where the job is down, the device's other communicators are ended: to free memory waits for all
 * that is on a device, and theirs may never end. */
void nccl_leave_others(const struct nccl *nccl);

/* Waits, not for ever, until nothing of the communicator's stream runs. False: something does. */
bool nccl_quiesce(const struct nccl *nccl);

/* A failure of NCCL or CUDA in words, then nccl_end(). */
enum ddp_status nccl_failed(struct nccl *nccl, ncclResult_t result, const char *what);
enum ddp_status nccl_cuda_failed(struct nccl *nccl, cudaError_t error, const char *what);

/* The communicators of a device are polled while it waits. */
void nccl_watch(struct nccl *nccl);
void nccl_unwatch(struct nccl *nccl);

/* --- nccl_calls.c: what all ranks call --- */

void nccl_describe(const struct nccl_call *call, char *text, size_t size);

/* Rank 0 takes the page from the heap (*offset [out], UINT64_MAX: there is none); the others map
 * it. */
enum ddp_status nccl_calls_make(struct nccl *nccl, uint64_t *offset);
enum ddp_status nccl_calls_map(struct nccl *nccl, uint64_t offset);
void nccl_calls_unmap(struct nccl *nccl);

/* Records this rank's next call and returns its number; compares with ranks that have called. */
uint32_t nccl_calls_post(struct nccl *nccl, const struct nccl_call *call);

/* DDP_ERR_MISMATCH (logged) if another rank called something else. */
enum ddp_status nccl_calls_compare(struct nccl *nccl);

/* " (rank 2 has not arrived)", or nothing. */
void nccl_calls_missing(const struct nccl *nccl, uint32_t number, char *text, size_t size);

/* --- nccl_memory.c --- */

/* Memory of the device, known to NCCL. Local. DDP_ERR_MEMORY says what is needed and there. */
enum ddp_status nccl_take(struct nccl *nccl, size_t bytes, void **memory);
void nccl_give_back(struct nccl *nccl, void *memory); /* takes NULL */

/* NCCL forgets all memory, which stays; and then it is freed. */
void nccl_forget_memory(struct nccl *nccl);
void nccl_free_memory(struct nccl *nccl);

enum ddp_status nccl_alloc(void *state, size_t bytes, void **memory);
enum ddp_status nccl_free(void *state, void *memory);
bool nccl_registered(const void *state, const void *memory, size_t bytes);
enum ddp_status nccl_barrier(void *state);

/* --- nccl_exchange.c: the collectives --- */

enum ddp_status nccl_allreduce(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                               enum ddp_redop op);
enum ddp_status nccl_reduce_scatter(void *state, const void *send, void *receive, size_t count,
                                    enum ddp_dtype dtype, enum ddp_redop op);
enum ddp_status nccl_all_gather(void *state, const void *send, void *receive, size_t count,
                                enum ddp_dtype dtype);
enum ddp_status nccl_broadcast(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                               int root);
enum ddp_status nccl_start(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                           enum ddp_redop op);
enum ddp_status nccl_start_slices(void *state, void *buffer, size_t count, size_t grain,
                                  enum ddp_dtype dtype, enum ddp_redop op);
enum ddp_status nccl_gather_slices(void *state, void *buffer, size_t count, size_t grain,
                                   enum ddp_dtype dtype);

/* --- nccl_queue.c: collectives on the stream --- */

/* Begins a collective: compares calls, and lets the communicator's stream wait for the device's. */
enum ddp_status nccl_begin(struct nccl *nccl, const struct nccl_call *call);

/* It is all on the stream. With `join` the device's stream waits for it. */
enum ddp_status nccl_finish(struct nccl *nccl, bool join);

/* The device's stream waits for the last one on the stream. */
enum ddp_status nccl_join(struct nccl *nccl);

/* Drops what is complete; the oldest of the others is watched. */
enum ddp_status nccl_retire(struct nccl *nccl);

/* The oldest that is on the stream; NULL: none. */
struct nccl_pending *nccl_oldest(struct nccl *nccl);

/* On a rank that is alone. */
enum ddp_status nccl_copy(struct nccl *nccl, void *to, const void *from, size_t bytes);

enum ddp_status nccl_queue_open(struct nccl *nccl);
void nccl_queue_close(struct nccl *nccl);

cudaError_t nccl_query(cudaEvent_t event); /* cudaErrorNotReady: not yet */

#endif

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
 * NCCL does not notice when ranks call different things, it hangs. So each rank writes down what it
 * calls in the ledger, and compares. When a rank has overwritten what it called, NCCL's own hang
 * and a deadline remain. The ledger is a machine's: what ranks of different machines have called is
 * compared in alloc and barrier only, by a hash that goes through NCCL.
 *
 * Collectives of several communicators on one GPU deadlock if their kernels start in different
 * orders on different ranks and one does not fit beside the other. All ranks call them in the same
 * order, and each waits, by an event, until those of other communicators before it have ended.
 * Channels are left out: their operations take little room, and wait for each other in any order.
 * (NCCL_LAUNCH_ORDER_IMPLICIT=1, of NCCL 2.26, is no way: it orders channels too, and a second send
 * then holds up the receive for which the peer waits.)
 *
 * The files call each other one way: nccl_wait.c, nccl_queue.c, nccl_memory.c, nccl_channel.c,
 * nccl_exchange.c, nccl.c. A world of one has no NCCL: comm/self.c serves it. */
#ifndef DDP_CUDA_NCCL_STATE_H
#define DDP_CUDA_NCCL_STATE_H

#include "comm/ledger.h"

#include "cuda/device.h"

#include <cuda_runtime.h>
#include <nccl.h>

#define NCCL_PENDING      64
#define NCCL_RING         256    /* calls that a rank may be ahead, and still be compared with */
#define NCCL_SETUP_MS     600000 /* for the others to come up */
#define NCCL_SCRATCH_MOST ((size_t)32 << 20) /* what is larger is added up in pieces */
#define NCCL_SMALL        ((size_t)16 << 10) /* bytes that everybody adds up alone */
#define NCCL_ALIGN        ((size_t)256)      /* of the parts in the scratch */

/* A collective that is on the stream. */
struct nccl_pending {
    struct ddp_comm_call call;
    uint32_t number;        /* of the call */
    cudaEvent_t begin, end; /* around it on the communicator's stream */
    int64_t begun_ns;       /* since when the host knows that it runs; 0: not yet */
};

/* What a rank brings to a vote over several machines, where the smallest count. */
struct nccl_ballot {
    int64_t status;
    int64_t calls, negated; /* a hash of all calls so far: the same everywhere, or these differ */
};
#define NCCL_BALLOT_WORDS (sizeof(struct nccl_ballot) / sizeof(int64_t))

struct nccl_block {
    struct nccl_block *next;
    void *memory, *handle; /* handle: of ncclCommRegister(), or NULL */
    size_t bytes;
    bool of_nccl; /* from ncclMemAlloc() */
};

struct nccl {
    struct nccl *next; /* on the list of the communicators to poll */
    const struct ddp_comm_place *place;
    struct ddp_cuda *cuda; /* the device's: its stream is the one to keep in step with */
    struct ddp_cuda own;   /* the same on the communicator's stream */
    struct ddp_ledger ledger;
    ncclComm_t comm;      /* NULL: it is not set up, or has ended */
    cudaEvent_t computed; /* on the device's stream */
    enum ddp_status dead; /* what ended it */
    bool stuck;           /* its work could not be ended in time: nothing of it may be touched */
    bool waits;           /* the board says so */
    bool closing;         /* failures concern nobody any more */
    bool ordered;         /* begins after what the device's other communicators have begun before */
    int island;           /* ranks on end, nearer to each other than to others; 0: all are equal */

    struct nccl_block *blocks;
    char *scratch;
    size_t scratch_bytes;
    struct nccl_ballot *ballot; /* page-locked; NULL on one machine */
    void *device_ballot;

    struct nccl_pending pending[NCCL_PENDING];
    unsigned first, last;       /* of those that are on the stream; last: the next one's place */
    struct ddp_cuda_span *span; /* of the next one, for the trace */
    bool to_join;               /* the device's stream does not wait for the last one yet */

    ncclUniqueId *id; /* page-locked: of a channel that is opened */
    void *device_id;
    struct nccl *links;           /* communicators of two, of the channels that end here */
    struct nccl *next_link;       /* ... of such a one */
    struct nccl_channel *channel; /* ... and what it serves */
};

/* --- nccl_wait.c: waiting and failing --- */

/* One look at everything that can go wrong. Never waits, unless it fails. */
enum ddp_status nccl_check(struct nccl *nccl);

/* Waits until NCCL has taken what it was given; `result` is what its call returned. */
enum ddp_status nccl_taken(struct nccl *nccl, ncclResult_t result,
                           const struct ddp_comm_call *call);

/* Waits until the device has come to this event. */
enum ddp_status nccl_wait_event(struct nccl *nccl, cudaEvent_t event,
                                const struct ddp_comm_call *call);

/* Waits for everything on the communicator's stream. */
enum ddp_status nccl_drain(struct nccl *nccl, const struct ddp_comm_call *call);

/* Ends the communicator: sets the job's abort word, aborts NCCL within a bounded time, and then the
 * device's other communicators. Returns the status. What happened has been logged. */
enum ddp_status nccl_end(struct nccl *nccl, enum ddp_status status);

/* Where the job is down, the device's other communicators are ended: to free memory waits for all
 * that is on a device, and theirs may never end. */
void nccl_leave_others(const struct nccl *nccl);

/* The communicator's stream waits for what the device's other communicators have begun. */
cudaError_t nccl_wait_others(struct nccl *nccl);

/* Waits, not for ever, until nothing of the communicator's stream runs. False: something does. */
bool nccl_quiesce(const struct nccl *nccl);

/* The place of a collective that is on the stream; the oldest one's, or NULL: none. */
static inline struct nccl_pending *nccl_pending_at(struct nccl *nccl, unsigned index)
{
    return &nccl->pending[index % NCCL_PENDING];
}

static inline struct nccl_pending *nccl_oldest(struct nccl *nccl)
{
    return nccl->first == nccl->last ? NULL : nccl_pending_at(nccl, nccl->first);
}

/* A failure of NCCL or CUDA in words, then nccl_end(). */
enum ddp_status nccl_failed(struct nccl *nccl, ncclResult_t result,
                            const struct ddp_comm_call *call);
enum ddp_status nccl_cuda_failed(struct nccl *nccl, cudaError_t error, const char *what);
enum ddp_status nccl_call_failed(struct nccl *nccl, cudaError_t error,
                                 const struct ddp_comm_call *call);

/* The communicators of a device are polled while it waits. */
void nccl_watch(struct nccl *nccl);
void nccl_unwatch(struct nccl *nccl);

/* --- nccl_queue.c: collectives on the stream --- */

/* Begins a collective: compares calls, and lets the communicator's stream wait for the device's. */
enum ddp_status nccl_begin(struct nccl *nccl, const struct ddp_comm_call *call);

/* Begins the transfer of a channel, which is compared with nothing. The communicator's stream waits
 * for the device's if it is `computed`, and for the event unless that is NULL. */
enum ddp_status nccl_begin_after(struct nccl *nccl, const struct ddp_comm_call *call, bool computed,
                                 cudaEvent_t event);

/* It is all on the stream. With `join` the device's stream waits for it. */
enum ddp_status nccl_finish(struct nccl *nccl, bool join);

/* The device's stream waits for the last one on the stream. */
enum ddp_status nccl_join(struct nccl *nccl);

enum ddp_status nccl_queue_open(struct nccl *nccl);
void nccl_queue_close(struct nccl *nccl);

/* --- nccl_memory.c --- */

/* Memory of the device, known to NCCL. Local. DDP_ERR_MEMORY says what is needed and there. */
enum ddp_status nccl_take(struct nccl *nccl, size_t bytes, void **memory);
void nccl_give_back(struct nccl *nccl, void *memory); /* takes NULL */

/* NCCL forgets all memory, which stays; and then it is freed. */
void nccl_forget_memory(struct nccl *nccl);
void nccl_free_memory(struct nccl *nccl);

/* Memory for votes, where there are several machines. */
enum ddp_status nccl_ballot_open(struct nccl *nccl);
void nccl_ballot_close(struct nccl *nccl);

/* Ends what nccl_begin() began: waits until the device has done it, and all others have; the first
 * failure is everybody's. */
enum ddp_status nccl_vote(struct nccl *nccl, enum ddp_status own, const struct ddp_comm_call *call);

enum ddp_status nccl_alloc(void *state, const struct ddp_comm_call *call, void **memory);
enum ddp_status nccl_free(struct nccl *nccl, const struct ddp_comm_call *call);
enum ddp_status nccl_barrier(struct nccl *nccl, const struct ddp_comm_call *call);
bool nccl_registered(const void *state, const void *memory, size_t bytes);

/* --- nccl_channel.c --- */

/* All ranks: checks that they call the same. The id for the two ends is then in nccl->id. */
enum ddp_status nccl_channel_agree(struct nccl *nccl, const struct ddp_comm_call *call);

/* All ranks: opens an end over the link; both are NULL where there is none. */
enum ddp_status nccl_channel_open(struct nccl *nccl, struct nccl *link,
                                  const struct ddp_comm_call *call, struct ddp_channel_end *end);
enum ddp_status nccl_channel_await(struct ddp_channel_end *end, uint64_t message, int timeout_ms);
enum ddp_status nccl_channel_pass(struct ddp_channel_end *end, uint64_t message);
void nccl_channel_close(struct nccl *link); /* also of one that has none */

/* --- nccl_exchange.c --- */

/* At the end of set-up, whose deadline is long: a little of everything that will be called. NCCL
 * connects ranks only when they first need it, which takes seconds for many ranks or machines. All
 * ranks. */
enum ddp_status nccl_connect(struct nccl *nccl);

/* All calls but alloc, free and barrier. */
enum ddp_status nccl_collective(struct nccl *nccl, const struct ddp_comm_call *call);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Inside the simulated NCCL: what its parts share. nccl_shared.c has the memory that ranks meet in,
 * nccl_init.c the life of communicators, nccl_calls.c the collectives as called and groups,
 * nccl_run.c the collectives as they run, nccl_order.c when they begin, nccl_reduce.c the
 * arithmetic. Everything here is called with the simulation's lock held unless it says otherwise.
 */
#ifndef DDP_TESTS_CUDASIM_NCCL_SIM_H
#define DDP_TESTS_CUDASIM_NCCL_SIM_H

#include <nccl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* NVIDIA's header has them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#define NCCL_SIM_MAX_RANKS  64
#define NCCL_SIM_SLOT_BYTES ((size_t)256 << 10) /* of a rank, for one round of a collective */
#define NCCL_SIM_PAIR_BYTES ((size_t)64 << 10)  /* from one rank to another */

enum nccl_sim_kind {
    NCCL_SIM_ALL_REDUCE,
    NCCL_SIM_BROADCAST,
    NCCL_SIM_REDUCE,
    NCCL_SIM_REDUCE_SCATTER,
    NCCL_SIM_ALL_GATHER,
    NCCL_SIM_SEND,
    NCCL_SIM_RECV,
};

/* What all ranks must call alike. */
struct nccl_sim_signature {
    uint64_t number; /* of the collective in its communicator, from 1 */
    uint64_t count;
    int32_t kind, type, op, root; /* op and root: -1 where the call has none */
};

/* --- shared memory; see nccl_shared.c --- */
struct nccl_sim_rank {
    _Atomic uint32_t joined; /* 1: being filled in, 2: the plain members are valid */
    int32_t device;
    pid_t pid;
    uint64_t host;
    char bus[32]; /* which GPU of that host */
    _Atomic uint32_t aborted;
    _Atomic uint64_t posted, taken; /* rounds, since the beginning */
    struct nccl_sim_signature signature[2];
};

struct nccl_sim_pair {
    _Atomic uint64_t posted, taken;
    struct nccl_sim_signature sent[2];
    _Atomic uint32_t refused; /* the receiver expects something else: */
    struct nccl_sim_signature expected;
};

struct nccl_sim_shared {
    uint64_t magic, nonce;
    _Atomic uint32_t size; /* ranks; 0 until the first comes */
};

/* --- this process --- */
struct nccl_sim_task {
    struct nccl_sim_signature signature;
    int peer; /* of send and receive */
    const void *send;
    void *receive;
    uint64_t done; /* elements (of each block) */
    bool posted;   /* this round */
    bool finished;
};

/* The calls of one group on one communicator: one operation on a stream. */
struct nccl_sim_batch {
    struct ncclComm *comm;
    struct nccl_sim_batch *next; /* in the communicator's list of what has not been launched */
    uint64_t ticket;             /* its turn in the communicator; 0: taken when it first runs */
    uint64_t place;              /* on the device, until it begins; 0: of a graph */
    int64_t since_ns;            /* it lets others of the device go first */
    bool captured;               /* belongs to a graph: runs any number of times */
    bool complete;
    int references;                         /* the operation's, and one of each gate */
    int gates, gates_arrived, stream_count; /* other streams of the group, which wait too */
    cudaStream_t *streams;
    size_t count, capacity;
    struct nccl_sim_task *tasks;
};

enum nccl_sim_state {
    NCCL_SIM_JOINING, /* until all ranks have come */
    NCCL_SIM_READY,
    NCCL_SIM_FINALIZING,
    NCCL_SIM_FINALIZED,
    NCCL_SIM_GONE, /* destroyed or aborted; kept to tell who uses it afterwards */
};

struct nccl_sim_registration {
    struct nccl_sim_registration *next;
    const void *memory;
};

struct ncclComm {
    struct ncclComm *next; /* of all that ever were */
    enum nccl_sim_state state;
    ncclResult_t error; /* that the communicator has met */
    bool blocking, aborted;
    int rank, size, device;
    ncclUniqueId id;
    struct nccl_sim_shared *shared;
    size_t shared_bytes;
    uint64_t issued, served;                             /* tickets */
    uint64_t outstanding;                                /* batches that have not ended */
    uint64_t collectives;                                /* that have begun */
    uint64_t round;                                      /* of collectives */
    uint64_t *sent, *received;                           /* rounds, for each peer */
    unsigned connected;                                  /* kinds of calls */
    int64_t connected_ns;                                /* when what is called now will be */
    int patience;                                        /* polls that still answer "in progress" */
    struct nccl_sim_batch *unlaunched, *unlaunched_last; /* non-blocking: until polled */
    struct nccl_sim_registration *registrations;
};

/* Says what is wrong: kept for ncclGetLastError, and on stderr. Returns `result`. */
ncclResult_t nccl_sim_fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The memory of an id. */
ncclResult_t nccl_sim_id_create(ncclUniqueId *id);
ncclResult_t nccl_sim_attach(struct ncclComm *comm);
void nccl_sim_detach(struct ncclComm *comm);
void nccl_sim_id_close(const ncclUniqueId *id); /* all ranks have come: no one opens it any more */
struct nccl_sim_rank *nccl_sim_rank(const struct ncclComm *comm, int rank);
char *nccl_sim_slot(const struct ncclComm *comm, int rank, uint64_t round);
struct nccl_sim_pair *nccl_sim_pair(const struct ncclComm *comm, int from, int to);
char *nccl_sim_pair_slot(const struct ncclComm *comm, int from, int to, uint64_t round);

/* Life. */
void nccl_sim_check_comm(const char *call, const struct ncclComm *comm);
ncclResult_t nccl_sim_ready(const char *call, struct ncclComm *comm);
ncclResult_t nccl_sim_poll(struct ncclComm *comm); /* what ncclCommGetAsyncError answers */
void nccl_sim_release(struct ncclComm *comm);      /* after the last batch has gone */
bool nccl_sim_in_group(void);
ncclResult_t nccl_sim_group_add_init(struct ncclComm *comm);
ncclResult_t nccl_sim_wait_ready(struct ncclComm *comm); /* without the lock */

/* Puts what a non-blocking communicator has been asked for on its streams. */
ncclResult_t nccl_sim_launch(struct nccl_sim_batch *batch);
ncclResult_t nccl_sim_launch_pending(struct ncclComm *comm);
void nccl_sim_batch_free(struct nccl_sim_batch *batch);

/* The operation of a batch on its stream, and of the other streams of its group. */
struct nccl_sim_operation {
    struct nccl_sim_batch *batch;
    uint64_t ticket;
    bool started, arrived;
};
cudaError_t nccl_sim_run(void *operation);
cudaError_t nccl_sim_gate(void *operation);

/* When an operation may begin (nccl_order.c): it is launched; may it begin; it never will, because
 * its communicator has failed; it has ended. */
void nccl_sim_place(struct nccl_sim_batch *batch);
bool nccl_sim_may_begin(struct nccl_sim_batch *batch);
void nccl_sim_skip(struct nccl_sim_batch *batch);
void nccl_sim_ended(const struct nccl_sim_batch *batch);

/* sum[i] = the operator over sources[0..n)[i] in this order; false: a type that is not simulated.
 */
size_t nccl_sim_type_bytes(ncclDataType_t type);
bool nccl_sim_reducible(ncclDataType_t type);
void nccl_sim_reduce(void *sum, const void *const *sources, int n, size_t count,
                     ncclDataType_t type, ncclRedOp_t op);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What the files of the communicator over several machines share. Each calls only those before it:
 * nodes_order.c, nodes_wire.c, nodes_chunks.c, nodes_channel.c, nodes_mail.c, nodes.c.
 *
 * Rails: rank l of a machine talks to the ranks l of the others and to nobody else, about the
 * slices of these ranks, which it adds up for its machine, in the memory that the machine's ranks
 * share. Where a machine has S ranks, fewer than others, its rank l is also on the rails l + S,
 * l + 2 S, ... of these. A call is cut into chunks, which are a piece of every slice:
 *
 *     parts   each rank sends the sums of its machine for the slices of its rails to their owners
 *     sums    which add them up, and send their slices to the others
 *     copies  each rank copies what came into the buffers of its machine's other ranks
 *
 * An all-reduce has all three, a reduce-scatter parts, an all-gather sums and copies. In a
 * broadcast only one machine has parts. NODES_DEPTH chunks are on their way at a time, in the same
 * order everywhere. Each message names the call, so the first one reveals calls that differ. */
#ifndef DDP_COMM_NODES_H
#define DDP_COMM_NODES_H

#include "comm/nodes_order.h"
#include "comm/shm.h"
#include "comm/slices.h"
#include "comm/wire.h"

#define NODES_DEPTH       4
#define NODES_PENDING     SHM_PENDING
#define NODES_PIECE_BYTES ((size_t)1 << 19)  /* of a slice in a chunk, at most */
#define NODES_LEAST       ((size_t)64 << 10) /* ... a multiple: small calls are cut too */
#define NODES_CHUNK_BYTES ((size_t)8 << 20)  /* of all slices in a chunk, about */
#define NODES_SMALL       ((size_t)16 << 10) /* up to here every rank adds up all: one message */

/* head.flags of a message */
#define NODES_FAILED 1u /* the call failed there: a second message says why */

/* A call that is not complete. */
struct nodes_call {
    struct ddp_comm_call call;
    uint32_t number; /* over the machines: part of the keys */
    uint32_t entry;  /* in this machine's ledger */
    int64_t begin_ns;
    struct ddp_slices all;
    struct nodes_order order;
    int source;       /* machine of a broadcast's root; -1: all have parts */
    bool parts, sums; /* which messages it has */
    bool spread;      /* small, on machines that are alike: parts go to all, which add up all slices
                         of the rail */
    bool ready;       /* all ranks here have called it */
    bool packed;      /* all sums are bf16, and travel as that */
    bool staged;      /* the memory is not registered: `bases` are in the stage */
    bool told;        /* this rank's part is complete, and the others here know */
    size_t piece;     /* elements of a slice in a chunk */
    size_t stride;    /* bytes of a slice's piece in the stage */
    uint32_t chunks, allowed, posted, finished;
    char *bases[DDP_REDUCE_MAX]; /* of the buffers of this machine's ranks */
};

enum { PARTS_OUT, PARTS_IN, SUMS_OUT, SUMS_IN, OP_KINDS };

/* A chunk on its way. */
struct nodes_slot {
    struct nodes_call *call;
    uint32_t chunk;
    struct ddp_wire_op *ops[OP_KINDS]; /* each (peer_count) */
    char *in, *out;                    /* partial sums: of machines, for slices of peers */
    const char *own;                   /* this machine's, of the slices that this rank adds up */
};

/* A rank of another machine that this one talks to. */
struct nodes_peer {
    int rank, node;
    bool sums_up; /* our slice for its machine: parts come from it, and our sum goes there */
    bool owns;    /* a slice that we add up for our machine: its parts go there */
};

struct nodes {
    const struct ddp_comm_place *place;
    const struct ddp_wire_ops *ops;
    struct ddp_wire *wire;
    struct shm shm;           /* between the ranks of this machine */
    struct nodes_peer *peers; /* in the order of their machines, from the one behind this */
    int peer_count;
    bool alike;                  /* the machines have equally many ranks */
    struct ddp_comm_roots ranks; /* each rank is a leaf */
    int most;                    /* partial sums of such a machine */
    const void **partials;       /* for a sum: (DDP_REDUCE_LEAVES) */
    uint32_t next;               /* number of the next call */
    enum ddp_status failed;      /* the first failure: nothing can follow */
    size_t piece_bytes, room; /* of a slice in a chunk; of the messages between two ranks for it */
    struct nodes_slot slots[NODES_DEPTH];
    uint64_t posted, summed, finished; /* chunks so far */
    struct nodes_call *pending;        /* (NODES_PENDING), a ring */
    int pending_first, pending_count;
    struct ddp_wire_op *small_out, *small_in; /* (peer_count) */
    struct ddp_wire_op *goodbyes;             /* (peer_count) of in and out */
    char *small;                              /* payloads of a small call */
    char *memory;                             /* behind `in`, `out` and `small` */
    size_t memory_bytes;
    struct nodes_channel *channels;         /* that end at this rank */
    uint32_t channels_opened, mails_opened; /* by all ranks together */
    char *stage;                            /* registered, or NULL */
    size_t stage_bytes;
};

static inline struct nodes_call *nodes_pending(const struct nodes *nodes, int index)
{
    return &nodes->pending[(nodes->pending_first + index) % NODES_PENDING];
}

/* The rank of a machine that is on the rail of a rank. */
static inline int nodes_on_rail(const struct ddp_comm_place *place, int rank, int node)
{
    const int size = place->starts[node + 1] - place->starts[node];
    return place->starts[node] + (rank - place->starts[ddp_comm_node_of(place, rank)]) % size;
}

/* A peer as the wire and messages name it. */
static inline int nodes_wire_peer(const struct nodes *nodes, int peer)
{
    return ddp_comm_job_rank(nodes->place, nodes->peers[peer].rank);
}

/* How the arrays of a call are added up. */
static inline struct nodes_order nodes_order_of(const struct nodes *nodes,
                                                const struct ddp_comm_call *call)
{
    return (struct nodes_order){
        .roots = call->roots ? call->roots : &nodes->ranks,
        .nodes = nodes->place->node_count,
        .starts = nodes->place->starts,
        .fast = call->fast,
    };
}

/* --- nodes_wire.c --- */

/* The process's wire, open and connected to all peers. */
enum ddp_status nodes_wire_open(struct nodes *nodes);
void nodes_wire_leave(struct nodes *nodes);

/* A connection with a rank of the job, which need not be on this one's rails. */
enum ddp_status nodes_connect(struct nodes *nodes, int peer);

/* A message of a call; `index` counts the call's messages. */
void nodes_send(struct nodes *nodes, int peer, struct ddp_wire_op *op, uint32_t number,
                uint32_t index, const struct ddp_comm_call *call, const void *data, size_t bytes);
void nodes_receive(struct nodes *nodes, int peer, struct ddp_wire_op *op, uint32_t number,
                   uint32_t index, void *buffer, size_t room);

/* The key of a message; `number` and `index` (24 bits) as the callers agree. */
uint64_t nodes_key(const struct nodes *nodes, uint32_t number, uint32_t index);

/* A rank that is still needed is lost. Waits a while for the launcher's reason: DDP_ERR_ABORTED. */
enum ddp_status nodes_lost(const struct nodes *nodes, int rank);

/* Whether all (one a peer) are over. With an error, one is lost. */
bool nodes_over(const struct nodes *nodes, const struct ddp_wire_op *ops, enum ddp_status *status);

/* Ends `count` ops: waits so long for them to be over, unless the job is aborted, and takes back
 * those that are not. */
void nodes_end_ops(struct nodes *nodes, struct ddp_wire_op *ops, int count, int timeout_ms);

/* The first rank whose op is not over; if none, one that is awaited in any case. */
int nodes_missing(const struct nodes *nodes, const struct ddp_wire_op *ops);

/* Whether what came for a call belongs to the same call and has `bytes`. */
enum ddp_status nodes_check(struct nodes *nodes, const struct ddp_wire_op *op, uint32_t number,
                            const struct ddp_comm_call *call, size_t bytes);

/* Tells all peers why a call that has sent nothing yet fails. */
void nodes_tell_failure(struct nodes *nodes, uint32_t number, const struct ddp_comm_call *call);

/* A turn of waiting in which nothing moved, as long as `idle` says; at most one millisecond when
 * something on this machine is awaited too. DDP_ERR_ABORTED. */
enum ddp_status nodes_nap(struct nodes *nodes, int *idle, bool here_too);

/* --- nodes_chunks.c --- */

/* Plans what a call sends on the wire. */
void nodes_call_plan(const struct nodes *nodes, struct nodes_call *c);

/* Moves on all calls that can be. */
enum ddp_status nodes_advance(struct nodes *nodes, bool *moved);

/* Moves on until this rank is done with all calls that all ranks here have made, and everything has
 * left the process: it may sleep then.
 *   until  returns earlier, once this rank is done with this call; or NULL */
enum ddp_status nodes_drive(struct nodes *nodes, const struct nodes_call *until);

/* Finds the buffers of the ranks of this machine: false when one is not registered. */
bool nodes_find_buffers(const struct nodes *nodes, struct nodes_call *c);

/* Copies between a call's memory and the stage: what this rank gives, what it gets. */
void nodes_stage_in(const struct nodes *nodes, const struct nodes_call *c, uint32_t chunk);
void nodes_stage_out(const struct nodes *nodes, const struct nodes_call *c, uint32_t chunk);

/* --- nodes_channel.c --- */

/* Called by all ranks, which have agreed on the call; `end` is NULL if there is none. agreed()
 * follows when it is open everywhere: only such a channel is left in order. */
enum ddp_status nodes_channel_open(struct nodes *nodes, const struct ddp_comm_call *call,
                                   struct ddp_channel_end *end);
void nodes_channel_agreed(struct nodes *nodes);
enum ddp_status nodes_channel_await(struct ddp_channel_end *end, uint64_t message, int timeout_ms);
enum ddp_status nodes_channel_pass(struct ddp_channel_end *end, uint64_t message);

/* Waits until both ends of all channels leave: the other may have messages to receive. */
void nodes_channels_leave(struct nodes *nodes, int64_t deadline);
void nodes_channels_free(struct nodes *nodes);

/* --- nodes_mail.c --- */

/* Between ranks of different machines, as ddp.h says; close() waits a while for theirs. changes()
 * counts what has come and what can be sent, turn() is one of waiting for that. */
struct nodes_mail;
enum ddp_status nodes_mail_open(struct nodes_mail **mail, struct nodes *nodes);
void nodes_mail_close(struct nodes_mail *mail);
size_t nodes_mail_write(struct nodes_mail *mail, int to, const void *data, size_t bytes);
size_t nodes_mail_read(struct nodes_mail *mail, int from, void *data, size_t bytes);
uint32_t nodes_mail_changes(struct nodes_mail *mail);
enum ddp_status nodes_mail_turn(struct nodes_mail *mail, int *idle);

#endif

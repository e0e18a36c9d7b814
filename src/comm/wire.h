/* SPDX-License-Identifier: MIT
 *
 * A wire between machines: messages between ranks on different machines, and nothing else. Sums,
 * their order and the choice of who talks to whom belong to nodes.c. A wire is one const struct
 * ddp_wire_ops in a plugin (libddp-ucx.so), and any library with matched messages will do.
 *
 * A process has one wire, which all its communicators share. Peers are named by their rank in the
 * job. Every message has a head, and is received by the key in it: the first message of a peer with
 * a key goes to the first receive for it. Messages that come before their receive are kept. A
 * message or a receive is described by a struct ddp_wire_op, which stays where it is, with its
 * buffer, until its state says that it is over. All functions may be called by any thread. Only
 * wait() waits.
 *
 * These structs cross the plugin border: a change to them changes DDP_PLUGIN_ABI. */
#ifndef DDP_COMM_WIRE_H
#define DDP_COMM_WIRE_H

#include "ddp.h"

#include "job/job.h"

#include <stdatomic.h>

struct ddp_wire; /* the wire's own */

/* The beginning of a message. The wire reads the key and fills in `from`. */
struct ddp_wire_head {
    uint64_t key;
    uint32_t from; /* rank of the sender */
    uint32_t flags;
    uint64_t words[2];
};

enum ddp_wire_state {
    DDP_WIRE_OVER,  /* done, or never begun: 0 */
    DDP_WIRE_GOING, /* the wire may read or write the buffer */
    DDP_WIRE_LOST,  /* the peer is lost: it will not happen */
};

struct ddp_wire_op {
    _Atomic int state;         /* enum ddp_wire_state */
    struct ddp_wire_head head; /* of a receive: [in] key, [out] what came */
    size_t bytes;              /* of a receive: [out] that came; more than fit are dropped */
    /* The wire's. */
    struct ddp_wire_op *next;
    void *buffer;
    size_t room;
    int peer;
};

static inline enum ddp_wire_state ddp_wire_state(const struct ddp_wire_op *op)
{
    return (enum ddp_wire_state)atomic_load_explicit(&op->state, memory_order_acquire);
}

struct ddp_wire_ops {
    const char *name; /* "ucx" */

    /* Opens this rank's end.
     *   size     ranks of the job: peers are 0 .. size-1
     *   address  [out] where the others reach it, *bytes of it */
    enum ddp_status (*open)(struct ddp_wire **wire, int rank, int size,
                            unsigned char address[DDP_ADDRESS_MAX_BYTES], size_t *bytes);

    /* Connects a peer. The same address again changes nothing unless the peer was lost; another one
     * begins anew. */
    enum ddp_status (*connect)(struct ddp_wire *wire, int peer, const void *address, size_t bytes);

    /* Starts a message to a peer that is connected (op->head is filled in), and a receive from any
     * (op->head.key is). */
    void (*send)(struct ddp_wire *wire, int peer, struct ddp_wire_op *op, const void *data,
                 size_t bytes);
    void (*receive)(struct ddp_wire *wire, int peer, struct ddp_wire_op *op, void *buffer,
                    size_t bytes);

    /* Moves on everything that can be; true: something happened. */
    bool (*progress)(struct ddp_wire *wire);

    /* Sleeps until there is something to move on, at most this long; may return early. */
    void (*wait)(struct ddp_wire *wire, int timeout_ms);

    /* Takes a receive back; a message that is on its way ends its peer's connection. */
    void (*cancel)(struct ddp_wire *wire, struct ddp_wire_op *op);

    /* Whether everything that was sent has left this process. Called again and again until true. */
    bool (*flushed)(struct ddp_wire *wire);

    void (*close)(struct ddp_wire *wire); /* what is still going is lost */
};

#endif

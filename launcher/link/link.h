/* SPDX-License-Identifier: MIT
 *
 * The link between the ddpruns of a job that runs on several machines, one ddprun a machine
 * (node). Node 0 listens on one address; each other node has one TCP connection, to node 0. Owns:
 * joining, proofs of who is who, signs of life, and messages of bounded size in order. It does not
 * interpret what its owner sends.
 *
 * One thread uses a link. After link_open() no call waits, except link_close(), which waits for a
 * moment. All descriptors are close-on-exec. */
#ifndef DDP_LAUNCHER_LINK_H
#define DDP_LAUNCHER_LINK_H

#include "job/board.h"
#include "launcher/link/proof.h"

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>

#define LINK_NAME_BYTES   256   /* of a host's name or an address, with its 0 */
#define LINK_TEXT_BYTES   16384 /* of the text of LINK_FAILED and LINK_END, with its 0 */
#define LINK_DEFAULT_LOST 5.0   /* seconds of silence after which a node is lost */

/* What a message is. The sizes of each are checked on arrival: an owner gets no message that is
 * shorter than its struct, or whose text does not end. */
enum link_kind {
    /* Made by the link itself, never sent by the owner: */
    LINK_LOST = 1, /* data: why, as text: "node 3 (host) is lost: it has not answered for 5 s" */
    LINK_LEFT = 2, /* the node has closed its link in order; no data */
    LINK_CUT = 3,  /* the node takes us for lost; data: why, as text */
    LINK_FORMED =
        4, /* the members are others: link_node(), link_count(), link_meeting(); no data */

    /* From the owner of one end to that of the other: */
    LINK_POSTED = 16,    /* struct link_posted: a worker has posted an id or its address */
    LINK_BARRIER = 18,   /* struct link_step, number: the round that is complete here or opened */
    LINK_STOP = 19,      /* struct link_step, number: the signal that asks the job to stop */
    LINK_HOLD = 20,      /* struct link_step: begin no further step */
    LINK_HELD = 21,      /* struct link_step, step: the highest that a worker here has begun */
    LINK_STOP_STEP = 22, /* struct link_step, step: the one that no rank begins */
    LINK_FAILED = 23,    /* struct link_text: what failed on this node */
    LINK_END = 24,       /* struct link_text: node 0 ends the job */
    LINK_DONE = 25,      /* struct link_step: the workers of this node have ended without failure */
    LINK_RESTART = 26,   /* struct link_step: next attempt; number: its MASTER_PORT */
    LINK_ABORT = 27,     /* struct link_step, number: the abort word of a node's board */
    LINK_SIGNAL = 28,    /* struct link_step, number: a signal for all; step: 1: it kills */
    LINK_TIMES = 29,     /* struct link_times */
};

/* `attempt` is the number of restarts so far: a message of an earlier attempt may still come. */
struct link_step {
    uint32_t attempt;
    uint32_t number;
    int64_t step;
};

/* Sent as far as its data go: offsetof(struct link_posted, data) + bytes. */
struct link_posted {
    uint32_t attempt;
    uint32_t number, edition; /* as in struct ddp_posted; not checked */
    unsigned char data[DDP_BOARD_ADDRESS_BYTES];
};

/* Sent as far as its text goes, with the 0 at its end. The text may have several lines. */
struct link_text {
    uint32_t attempt;
    int32_t exit_code;
    int32_t node;
    int32_t rank;   /* of the job, that was named; -1: none */
    uint32_t sure;  /* 0: the end of a victim; more: how sure it is that this came first */
    uint32_t flags; /* the owner's */
    char text[LINK_TEXT_BYTES];
};

/* What ranks have waited in collectives over a run. */
struct board_times {
    int latest; /* the rank that waited least, because the others waited for it */
    int64_t least_ns, most_ns;
    uint64_t timed; /* collectives */
};

/* Of the workers of a node. */
struct link_times {
    uint32_t attempt;
    struct board_times times;
};

/* What a node's signs of life tell about it. */
struct link_status {
    uint32_t attempt;
    int32_t running;                   /* workers */
    int64_t lowest_step, highest_step; /* -1: none yet */
    int64_t idle_ns;                   /* since its progress has changed, by its own clock */
    char phase[DDP_BOARD_NAME];        /* of the worker with the lowest step; ends with 0 */
    uint32_t accepts;                  /* enum job_accepts */
    uint32_t stepped;                  /* a worker has finished a step */
};

struct link_message {
    enum link_kind kind;
    int node;         /* that sent it, or is lost */
    size_t bytes;     /* of data */
    const void *data; /* aligned for the structs; valid until the next call on the link */
};

/* How the other nodes learn what they need to reach node 0, where something carries it: PMIx. */
struct link_contact {
    char address[LINK_NAME_BYTES]; /* numeric */
    int port;
    unsigned char key[32]; /* random, made by node 0 */
};

struct link_setup {
    int node, node_count; /* 2 or more. Of an elastic job: the most; but for node 0, `node` is only
                             a wish */
    int least_nodes;      /* of an elastic job, fewer than node_count; 0: it is not */
    const char *command;  /* that the job runs: must be the same on all nodes if it is elastic */
    const char *job;      /* the same on all nodes, not secret: run id, or Slurm's job and step */
    const char *host;     /* our name */
    int nproc;            /* our workers */
    int64_t max_restarts; /* the same on all nodes */

    /* Of a member that has lost node 0 (link_succeed()): one more than the restarts; else 0. */
    uint32_t epoch;
    int standby; /* a listener that the link takes; 0: none */

    /* Node 0's name or address as all nodes know it. "": on node 0, the machine's own address;
     * other nodes then need `exchange`. */
    const char *address;
    int port;        /* 0: any free one (needs `exchange`) */
    int port_count;  /* ports from there on that both sides try; 1: this one only */
    int worker_port; /* node 0: MASTER_PORT of the workers, for all nodes to know */

    double node_timeout; /* seconds until all nodes must be there */
    double lost_seconds; /* 0: LINK_DEFAULT_LOST */
    int interrupt_fd;    /* readable: stop joining, unless `interrupted` says otherwise; -1: none */
    struct proof *proof; /* opened; stays the caller's, and may be closed after link_open(); on node
                            0 of an elastic job all that this points to lives as long as the link */

    /* NULL, or PMIx: what node 0 has in the contact, the others get. Errors are logged by it. */
    enum ddp_status (*exchange)(void *owner, struct link_contact *contact);
    void *exchange_owner;

    /* NULL, or asked when interrupt_fd is readable. DDP_OK: go on; else link_open() ends with it,
     * and after DDP_ERR_PREEMPTED on the other nodes that have come too. */
    enum ddp_status (*interrupted)(void *owner);
    void *interrupted_owner;
};

/* What the members of an elastic job are told for their next attempt. */
struct link_round {
    int worker_port; /* MASTER_PORT of the workers */
    int restart;     /* how often the job has been restarted, and how often for a failure */
    int failures;
    int first_size; /* workers of all nodes in the first attempt; 0: this is it */
    uint64_t begun; /* the run that workers have begun; 0: none */
};

struct link_meeting {
    char address[LINK_NAME_BYTES]; /* of node 0, numeric, as we reach it: for MASTER_ADDR */
    char interface[IF_NAMESIZE];   /* through which node 0, or on node 0 the others, are reached:
                                      "eth0"; "" if it cannot be told */
    struct link_round round;       /* node 0's */
};

struct link;

/* Joins: node 0 waits for all others, these for node 0 and each other. All nodes are there when it
 * returns DDP_OK; of an elastic job as many as have come soon, at least the least. DDP_OK and no
 * *link: the elastic job has ended while this node waited (logged). Otherwise one line has been
 * logged, the same on all nodes that had come, and ddprun ends with EXIT_LAUNCHER:
 *   DDP_ERR_TIMEOUT   nodes have not come within node_timeout (named), or node 0 has not answered
 *   DDP_ERR_MISMATCH  two nodes have one rank; other versions or node counts; too many workers;
 *                     another key, method or job
 *   DDP_ERR_INVALID   the address is not one of this machine, or loopback where it must not be
 *   DDP_ERR_IO        the port is taken; the name is unknown; the connection was lost
 *   DDP_ERR_ABORTED   interrupt_fd became readable (logged nowhere)
 *   DDP_ERR_PREEMPTED a node, perhaps this one, was asked to stop (logged nowhere)
 *   DDP_ERR_MEMORY, DDP_ERR_SYSTEM */
enum ddp_status link_open(struct link **link, const struct link_setup *setup);

/* Readable whenever link_next() has something to do, signs of life included. */
int link_fd(const struct link *link);

/* Does what is due without waiting, and takes the next message. False: there is none now. To be
 * called until then whenever link_fd() is readable: it also sends our signs of life, so whoever
 * does not call it for LINK_DEFAULT_LOST is lost to the others. After one of the first three
 * kinds nothing more comes from that node. */
bool link_next(struct link *link, struct link_message *message);

/* To all nodes with which there is a connection but `except`, which may be our own: from node 0 all
 * others, from these node 0. The data are copied; their size is one of this kind. A node that does
 * not take what is sent to it is lost once more than 1 MiB waits: LINK_LOST follows. */
void link_send(struct link *link, int except, enum link_kind kind, const void *data, size_t bytes);

/* To one. */
void link_send_to(struct link *link, int node, enum link_kind kind, const void *data, size_t bytes);

/* What our signs of life carry from now on. */
void link_set_status(struct link *link, const struct link_status *status);

/* The last that came from a node: on node 0 of each, elsewhere of node 0; our own of ourselves.
 * All zero, except steps, where none has come yet. */
const struct link_status *link_status(const struct link *link, int node);

/* When a node was heard last, by ddp_clock_ns(). */
int64_t link_heard_ns(const struct link *link, int node);

/* Whether the node's connection is up; our own is. Except on node 0, nodes other than 0 count as up
 * while node 0 is. */
bool link_node_alive(const struct link *link, int node);

/* The host name that a node gave, all nodes know all. Control characters are escaped. */
const char *link_node_name(const struct link *link, int node);

/* How many workers a member has. */
int link_node_workers(const struct link *link, int node);

/* What joining has found out. */
const struct link_meeting *link_meeting(const struct link *link);

/* The number of members, and ours among them: changes by link_form() and before LINK_FORMED. */
int link_count(const struct link *link);
int link_node(const struct link *link);

/* Node 0 of an elastic job: how many nodes have waited for so long to become members. */
int link_waiting(const struct link *link, int64_t waited_ns);

/* Of the next members; those that are members already stay. */
struct link_limits {
    int nodes;         /* at most */
    int workers;       /* of all, at most, when others join; 0: any number */
    int64_t waited_ns; /* by those that join */
};

/* The same: how many members there would be now. */
int link_fitting(const struct link *link, const struct link_limits *limits);

/* The same: the nodes that are there become the members, in the order in which they are; then those
 * that wait and fit. All are told, with what they need for the next attempt; those that still wait,
 * which member they can go to when this one is lost. */
void link_form(struct link *link, const struct link_limits *limits, const struct link_round *round);

/* A node but node 0 whose connection was lost: is that because its process has ended? Else it may
 * live. */
bool link_has_ended(const struct link *link, int node);

/* What link_succeed() has found. */
struct link_succession {
    int voters;       /* members that may live, ourselves included */
    int reached;      /* of them, those that take connections, but for the last node 0 */
    bool tie_is_lost; /* one that is not reached has a lower number than the next node 0 */
};

/* A member of an elastic job that has lost node 0, between two attempts: the next node 0 is the
 * member with the lowest number that takes a connection. Becomes node 0, at once, with link_count()
 * 1, or joins it as with link_open(), within setup->node_timeout. Node 0 then waits until members
 * have come back and forms the new ones only if link_votes() says that nobody else can: with more
 * than half of the voters, or half of them and the one that has the lowest number.
 *   link   [in|out] another one then; if that fails the same
 *   setup  as for link_open(), with an epoch; node, address, port and standby are not looked at */
enum ddp_status link_succeed(struct link **link, const struct link_setup *setup,
                             struct link_succession *succession);

/* The new node 0: how many other members of that epoch have come back. */
int link_votes(const struct link *link, uint32_t epoch);

/* Where this node is node 0: "10.0.0.2 29500". */
const char *link_contact(const struct link *link);

/* Says goodbye and closes. Waits at most half a second until what was sent has been taken. NULL is
 * allowed. */
void link_close(struct link *link);

#endif

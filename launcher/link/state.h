/* SPDX-License-Identifier: MIT
 *
 * What the files of the link share: its state, and how joining fills it in. */
#ifndef DDP_LAUNCHER_LINK_STATE_H
#define DDP_LAUNCHER_LINK_STATE_H

#include "launcher/link/address.h"
#include "launcher/link/connection.h"

#define LINK_ERROR_BYTES REFUSAL_TEXT /* of the error that ends joining on all nodes */
#define LINK_DAMAGED     "what it sends arrives damaged"

/* Another node, or ourselves. */
struct peer {
    struct connection connection; /* open: on node 0 to each other node, elsewhere to node 0 */
    char name[LINK_NAME_BYTES];
    char contact[CONTACT_BYTES]; /* where it would be node 0, or is; "": nowhere */
    uint32_t epoch;              /* with which it came */
    int nproc;                   /* its workers; 0: not known */
    struct link_status status;   /* the last that came; our own */
    int64_t since_ns;            /* when it has come */
    bool lost;                   /* and this is not delivered yet: */
    bool cut;                    /* ... we are, to it */
    bool ended;                  /* ... its end of the connection was closed */
    char why[FRAME_LOST_MAX];
};

struct door;

struct link {
    int node, count; /* of the members, which are the first of the peers */
    int room;        /* of peers: behind the members of an elastic job are nodes that wait */
    int next;        /* members that have come from node 0, of the next ones */
    struct link_meeting meeting;
    bool unneeded;     /* the job has ended while this node waited for a place */
    struct door *door; /* node 0 of an elastic job; NULL: nobody comes any more */

    int standby; /* where other members come if this node is to be node 0; 0: nowhere */

    int epoll; /* with the connections, whose peers are the data, and the timer: NULL */
    int timer;
    int64_t lost_ns;       /* how long a peer may be silent */
    int64_t tick_ns;       /* when the timer was looked at last */
    int64_t ping_ns;       /* when we have sent a sign of life last */
    struct peer *current;  /* may have more frames that have come */
    int lost_count;        /* peers whose loss is to be delivered */
    union frame_data data; /* of the message that the owner has; of the last frame while joining */
    struct peer peers[];   /* (room) */
};

static inline bool link_has_peer(const struct link *link, const void *who)
{
    return who >= (const void *)link->peers && who < (const void *)(link->peers + link->room);
}

/* Fewer nodes than the most are enough, and they may change. */
static inline bool link_is_elastic(const struct link_setup *setup)
{
    return setup->least_nodes > 0;
}

/* Closes all without a word. */
void link_free(struct link *link);

/* Joining, until all are there and all connections are up. Errors are logged. */
enum ddp_status link_node0_join(struct link *link, const struct link_setup *setup);
enum ddp_status link_node_join(struct link *link, const struct link_setup *setup);

#endif

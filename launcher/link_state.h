/* SPDX-License-Identifier: MIT
 *
 * What the files of the link share: its state, and how joining fills it in. */
#ifndef DDP_LAUNCHER_LINK_STATE_H
#define DDP_LAUNCHER_LINK_STATE_H

#include "launcher/link_address.h"
#include "launcher/link_connection.h"

#define LINK_ERROR_BYTES REFUSAL_TEXT /* of the error that ends joining on all nodes */

/* Another node, or ourselves. */
struct peer {
    struct connection connection; /* open: on node 0 to each other node, elsewhere to node 0 */
    char *name;
    bool has_status;
    struct link_status status;
    char *lost; /* why, until it is delivered */
};

static inline void peer_take_status(struct peer *peer, const union frame_data *data)
{
    peer->status = data->status;
    peer->has_status = true;
}

struct link {
    int node, count;
    struct peer *peers; /* (count) */
    uint64_t job_id;
    int worker_port;
    char address[LINK_NAME_BYTES]; /* of node 0 */
    char interface[64];
    struct link_status status; /* ours */

    int epoll; /* with the connections, whose peers are the data, and the timer: NULL */
    int timer;
    int64_t lost_ns;       /* how long a peer may be silent */
    int64_t tick_ns;       /* when the timer was looked at last */
    int64_t ping_ns;       /* when we have sent a sign of life last */
    struct peer *current;  /* may have more frames that have come */
    int lost_count;        /* peers whose loss is to be delivered */
    union frame_data data; /* of the message that the owner has */
};

/* Joining, until all are there and all connections are up. Errors are logged. */
enum ddp_status link_node0_join(struct link *link, const struct link_setup *setup);
enum ddp_status link_node_join(struct link *link, const struct link_setup *setup);

#endif

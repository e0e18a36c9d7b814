/* SPDX-License-Identifier: MIT
 *
 * Node 0's door: who comes, and what is wrong with whom. Whoever connects is a stranger until he
 * has proved that he belongs to the job: of a stranger a few fixed bytes are read, he has a few
 * seconds, and nothing that he does ends the job or holds others up. Open while the nodes come
 * together, and in an elastic job as long as the link. */
#ifndef DDP_LAUNCHER_LINK_DOOR_H
#define DDP_LAUNCHER_LINK_DOOR_H

#include "launcher/link/hello.h"
#include "launcher/link/state.h"

#define DOOR_STRANGERS 64 /* at once, beside one for each node */

struct stranger {
    struct connection connection;
    struct said said;
    char from[LINK_NAME_BYTES];
    int64_t since_ns;
    struct stranger *next;
};

struct door {
    struct link *link;
    struct link_setup setup;
    struct address address;
    int listener;
    int arrived;            /* other nodes */
    int64_t arrival_ns;     /* of the last */
    struct stranger *first; /* the oldest */
    int strangers;
    bool stranger_told;
    int notes;
    char note[480];         /* the last refusal, for the final error */
    bool over;              /* the job ends before it has begun */
    int told;               /* nodes that know why */
    struct stranger *wrong; /* the node because of which it ends; not yet told */
    enum ddp_status status;
    char error[LINK_ERROR_BYTES]; /* that all nodes print; "" if there is none */
};

/* The job ends. The first error stays. */
void door_end_job(struct door *door, enum ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* What epoll says of the listener, whose datum is the door, or of a stranger. */
void door_event(struct door *door, void *who);

/* Strangers that have not said who they are go. */
void door_tick(struct door *door);

/* What has come of a node that waits: signs of life only. */
void door_take_pings(struct door *door, struct peer *peer);

/* Tells a node why the job ends. */
void door_tell(struct door *door, struct connection *connection);

/* Closes it, and the connections of strangers. */
void door_close(struct door *door);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What joining and running links share: waiting for connections, signs of life, losses. */
#ifndef DDP_LAUNCHER_LINK_PEERS_H
#define DDP_LAUNCHER_LINK_PEERS_H

#include "launcher/link/state.h"

#include <sys/epoll.h>

/* Opens epoll and timer. DDP_ERR_SYSTEM (logged). */
enum ddp_status peers_open(struct link *link, double lost_seconds);

/* Closes all at once. */
void peers_close(struct link *link);

/* Makes the link's descriptor readable. */
void peers_wake(struct link *link);

/* The number of a peer. */
static inline int peer_node(const struct link *link, const struct peer *peer)
{
    return (int)(peer - link->peers);
}

/* Watches a connection that has just been opened. DDP_ERR_SYSTEM (logged). */
enum ddp_status peer_watch(struct link *link, struct peer *peer);

/* connection_put() to a peer. One whose queue is full is lost. */
void peer_put(struct link *link, struct peer *peer, uint32_t kind, const void *data, size_t bytes);

/* Nobody is there. */
void peer_clear(struct link *link, struct peer *peer);

/* Moves a peer to a place, and whoever is there to its own. */
void peer_move(struct link *link, struct peer *from, struct peer *to);

/* A node: takes one of the next members, whose end is FRAME_WELCOME, which says which one it is.
 * False: it does not fit. */
bool peers_take_member(struct link *link);
bool peers_take_welcome(struct link *link);

/* Node 0: tells a node which members there are, and whether it is one of them or waits. */
void peer_welcome(struct link *link, struct peer *peer);

/* Sends a sign of life. */
static inline void peer_ping(struct link *link, struct peer *peer)
{
    const struct link_status *own = &link->peers[link->node].status;
    peer_put(link, peer, FRAME_PING, own, sizeof *own);
}

/* Closes its connection; `format` says why, after "node 3 (host) is lost: ". */
void peer_lose(struct link *link, struct peer *peer, const char *format, ...) DDP_PRINTF(3, 4);

/* The same with the whole text. */
void peer_lose_as(struct link *link, struct peer *peer, const char *text);

/* Does what epoll says: sends what waits, reads once. True: frames may have come; false also: it is
 * lost. */
bool peer_handle(struct link *link, struct peer *peer, uint32_t events);

/* The timer: sends signs of life and finds peers that give none. */
void peers_tick(struct link *link);

/* Asks the owner, whose interrupt_fd is readable: DDP_OK: it goes on. */
enum ddp_status link_interrupt(const struct link_setup *setup);

/* Waits for the owner's interrupt_fd or, of `fd` (-1: none), for `events`. DDP_ERR_TIMEOUT: nothing
 * has come; another error: the owner wants to stop. */
enum ddp_status link_pause(const struct link_setup *setup, int fd, int events, int milliseconds);

/* Takes a name, with control characters escaped. */
void peer_set_name(struct peer *peer, const char *name);

/* The same where it would be node 0. */
void peer_set_contact(struct peer *peer, const char *contact);

#endif

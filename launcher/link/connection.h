/* SPDX-License-Identifier: MIT
 *
 * One TCP connection of the link: a non-blocking socket, what has come and is not taken yet, what
 * waits to be sent. Both are bounded. */
#ifndef DDP_LAUNCHER_LINK_CONNECTION_H
#define DDP_LAUNCHER_LINK_CONNECTION_H

#include "launcher/link/frame.h"
#include "launcher/link/proof.h"

#define CONNECTION_QUEUE_MAX (1u << 20) /* bytes that wait to be sent */

struct connection {
    int fd; /* -1: closed */
    enum frame_phase phase;
    unsigned char *in;
    size_t in_size, in_start, in_end;
    unsigned char *out;
    size_t out_size, out_start, out_end;
    struct proof_seal in_seal, out_seal; /* on: each frame has a seal behind it */
    bool unsendable;  /* the peer takes no more; what it has sent may still be here */
    int64_t heard_ns; /* when the last byte came */
    uint32_t watched; /* what epoll waits for, kept by the owner */
};

/* Takes the socket over and sets what all sockets of the link have: non-blocking, no delay,
 * keepalive. */
void connection_open(struct connection *connection, int fd, enum frame_phase phase);

/* Frees everything; nothing is sent any more. Also twice. */
void connection_close(struct connection *connection);

enum connection_result {
    CONNECTION_NOTHING, /* nothing is there */
    CONNECTION_BYTES,   /* some have come */
    CONNECTION_ENDED,   /* the peer has closed it */
    CONNECTION_FAILED,  /* errno says why */
};

/* Reads once what is there. All frames must have been taken before. */
enum connection_result connection_receive(struct connection *connection);

/* The next frame that is whole, FRAME_BAD if it is not as it was sent; its data are valid until
 * connection_receive(). */
enum frame_result connection_take(struct connection *connection, struct frame *frame);

/* Puts a frame into the queue and sends as much as goes now. False: no room or no memory. A
 * connection that has failed takes it and forgets it: the reading side says so. */
bool connection_put(struct connection *connection, uint32_t kind, const void *data, size_t bytes);

/* Sends as much of the queue as goes now. */
void connection_flush(struct connection *connection);

/* Whether something waits to be sent. */
bool connection_waits(const struct connection *connection);

/* Sends the rest and waits for the peers to close, at most half a second; then closes all. A socket
 * that is closed before its peer has sent all takes from it what it has not read yet. */
void connections_finish(struct connection *const *connections, int count);

#endif

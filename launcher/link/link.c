/* SPDX-License-Identifier: MIT
 *
 * See link.h. Here: a link that is up. */
#include "config.h"

#include "launcher/link/link.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "launcher/link/door.h"
#include "launcher/link/peers.h"
#include "launcher/link/state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void link_free(struct link *link)
{
    if (link->door)
        door_close(link->door);
    free(link->door);
    if (link->standby > 0)
        close(link->standby);
    peers_close(link);
    free(link);
}

enum ddp_status link_open(struct link **out, const struct link_setup *setup)
{
    /* In an elastic job as many nodes may wait as there are members. */
    const size_t room = (size_t)setup->node_count * (link_is_elastic(setup) ? 2 : 1);
    assert(setup->node_count > 1 && setup->node >= 0 && setup->node < setup->node_count);
    struct link *link = ddp_array_alloc(1, sizeof *link + room * sizeof link->peers[0]);
    *out = NULL;
    if (!link)
        return DDP_ERR_MEMORY;
    link->epoll = link->timer = -1;
    link->node = setup->node;
    link->count = link_is_elastic(setup) ? 1 : setup->node_count;
    link->room = (int)room;
    for (int i = 0; i < link->room; i++)
        peer_clear(link, &link->peers[i]);
    peer_set_name(&link->peers[link->node], setup->host);
    link->peers[link->node].nproc = setup->nproc;
    link->standby = setup->standby;
    enum ddp_status status = peers_open(link, setup->lost_seconds);
    if (status == DDP_OK)
        status = (setup->node == 0 ? link_node0_join : link_node_join)(link, setup);
    if (status != DDP_OK || link->unneeded) {
        link_free(link);
        return status;
    }
    /* Of node 0 more may have come with its welcome. */
    link->current = setup->node == 0 ? NULL : &link->peers[0];
    peers_wake(link);
    *out = link;
    return DDP_OK;
}

int link_fd(const struct link *link)
{
    return link->epoll;
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Gives the owner a loss. A node that only waited is not missed. */
static bool deliver_loss(struct link *link, struct link_message *message)
{
    for (int i = 0; i < link->room && link->lost_count > 0; i++) {
        struct peer *peer = &link->peers[i];
        if (!peer->lost)
            continue;
        peer->lost = false;
        link->lost_count--;
        if (i >= link->count) {
            ddp_log(DDP_LOG_DEBUG, "of those that wait, %s", peer->why);
            continue;
        }
        *message = (struct link_message){peer->cut ? LINK_CUT : LINK_LOST, i, strlen(peer->why) + 1,
                                         peer->why};
        return true;
    }
    return false;
}

/* Handles a frame of the link's own. False: it cannot come here. */
static bool take_own(struct link *link, struct peer *peer, const struct frame *frame,
                     struct link_message *message)
{
    char text[FRAME_LOST_MAX];
    switch (frame->kind) {
    case FRAME_PING:
        peer->status = link->data.status;
        return true;
    case FRAME_LOST:
        snprintf(text, sizeof text, "%.*s", FRAME_LOST_MAX - 1, (const char *)link->data.bytes);
        peer->cut = true; /* we were stopped, or out of reach */
        peer_lose_as(link, peer, text);
        return true;
    case FRAME_MEMBER:
        return link->node > 0 && peers_take_member(link);
    case FRAME_WELCOME:
        message->kind = LINK_FORMED;
        return link->node > 0 && peers_take_welcome(link);
    case FRAME_GOODBYE:
        message->kind = LINK_LEFT;
        connection_close(&peer->connection);
        link->current = NULL;
        return true;
    default:
        return false;
    }
}

/* Takes one frame of the current peer. True: it is for the owner. */
static bool take_frame(struct link *link, struct link_message *message)
{
    struct frame frame;
    struct peer *peer = link->current;
    enum frame_result result = connection_take(&peer->connection, &frame);
    if (result == FRAME_NONE) {
        link->current = NULL;
        return false;
    }
    if (result == FRAME_BAD || !frame_read(&frame, &link->data)) {
        peer_lose(link, peer, LINK_DAMAGED);
        return false;
    }
    const int node = peer_node(link, peer);
    *message =
        (struct link_message){(enum link_kind)frame.kind, node, frame.bytes, link->data.bytes};
    if (frame.kind >= LINK_POSTED)
        return true;
    message->kind = 0;
    if (!take_own(link, peer, &frame, message))
        peer_lose(link, peer, LINK_DAMAGED);
    return message->kind != 0 && node < link->count;
}

/* Handles one event. False: there is none. */
static bool handle_event(struct link *link)
{
    struct epoll_event event;
    int n = epoll_wait(link->epoll, &event, 1, 0);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    struct peer *peer = event.data.ptr;
    if (!peer) {
        peers_tick(link);
        if (link->door)
            door_tick(link->door);
        return true;
    }
    if (!link_has_peer(link, peer)) {
        door_event(link->door, peer);
        return true;
    }
    if (peer_handle(link, peer, event.events))
        link->current = peer;
    return true;
}

bool link_next(struct link *link, struct link_message *message)
{
    do {
        if (link->lost_count > 0 && deliver_loss(link, message))
            return true;
        while (link->current)
            if (take_frame(link, message))
                return true;
    } while (link->lost_count > 0 || handle_event(link));
    return false;
}

/* --- sending ---------------------------------------------------------------------------------- */

void link_send_to(struct link *link, int node, enum link_kind kind, const void *data, size_t bytes)
{
    assert(kind >= LINK_POSTED && frame_size_fits(kind, bytes));
    peer_put(link, &link->peers[node], kind, data, bytes);
}

void link_send(struct link *link, int except, enum link_kind kind, const void *data, size_t bytes)
{
    for (int i = 0; i < link->count; i++)
        if (i != except)
            link_send_to(link, i, kind, data, bytes);
}

void link_set_status(struct link *link, const struct link_status *status)
{
    link->peers[link->node].status = *status;
}

/* --- what is known of the nodes --------------------------------------------------------------- */

const struct link_status *link_status(const struct link *link, int node)
{
    return &link->peers[node].status;
}

int64_t link_heard_ns(const struct link *link, int node)
{
    return node == link->node ? ddp_clock_ns() : link->peers[node].connection.heard_ns;
}

bool link_node_alive(const struct link *link, int node)
{
    if (node == link->node)
        return true;
    return link->peers[link->node == 0 ? node : 0].connection.fd >= 0;
}

bool link_has_ended(const struct link *link, int node)
{
    return link->peers[node].ended;
}

const char *link_contact(const struct link *link)
{
    return link->peers[link->node].contact;
}

const char *link_node_name(const struct link *link, int node)
{
    return link->peers[node].name;
}

int link_node_workers(const struct link *link, int node)
{
    return link->peers[node].nproc;
}

const struct link_meeting *link_meeting(const struct link *link)
{
    return &link->meeting;
}

void link_close(struct link *link)
{
    if (!link)
        return;
    struct connection **all = calloc((size_t)link->room, sizeof(*all));
    for (int i = 0; i < link->room; i++) {
        struct connection *connection = &link->peers[i].connection;
        connection_put(connection, FRAME_GOODBYE, NULL, 0);
        if (all)
            all[i] = connection;
    }
    if (all)
        connections_finish(all, link->room);
    free(all);
    link_free(link);
}

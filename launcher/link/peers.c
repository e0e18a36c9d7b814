/* SPDX-License-Identifier: MIT
 *
 * See peers.h. Time is our own monotonic clock only. */
#include "config.h"

#include "launcher/link/peers.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TICKS 20 /* looks at the clock in the time that a node may be silent */
#define PINGS 5  /* signs of life in that time */

void peers_wake(struct link *link)
{
    const int64_t tick_ns = link->lost_ns / TICKS;
    const struct itimerspec spec = {
        .it_interval = {tick_ns / 1000000000, tick_ns % 1000000000},
        .it_value = {0, 1},
    };
    timerfd_settime(link->timer, 0, &spec, NULL);
}

enum ddp_status peers_open(struct link *link, double lost_seconds)
{
    struct epoll_event event = {.events = EPOLLIN};
    link->lost_ns = (int64_t)((lost_seconds > 0 ? lost_seconds : LINK_DEFAULT_LOST) * 1e9);
    link->tick_ns = ddp_clock_ns();
    link->epoll = epoll_create1(EPOLL_CLOEXEC);
    link->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (link->epoll < 0 || link->timer < 0 ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->timer, &event) != 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch the other nodes: %s", strerror(errno));
    peers_wake(link);
    return DDP_OK;
}

void peers_close(struct link *link)
{
    for (int i = 0; i < link->room; i++)
        connection_close(&link->peers[i].connection);
    if (link->epoll >= 0)
        close(link->epoll);
    if (link->timer >= 0)
        close(link->timer);
}

/* --- connections ------------------------------------------------------------------------------ */

static bool control(struct link *link, struct peer *peer, int operation)
{
    struct connection *connection = &peer->connection;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (connection_waits(connection))
        event.events |= EPOLLOUT;
    if (operation == EPOLL_CTL_MOD && event.events == connection->watched)
        return true;
    connection->watched = event.events;
    return epoll_ctl(link->epoll, operation, connection->fd, &event) == 0;
}

enum ddp_status peer_watch(struct link *link, struct peer *peer)
{
    if (!control(link, peer, EPOLL_CTL_ADD))
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch the other nodes: %s", strerror(errno));
    return DDP_OK;
}

void peer_put(struct link *link, struct peer *peer, uint32_t kind, const void *data, size_t bytes)
{
    if (peer->connection.fd < 0)
        return;
    if (connection_put(&peer->connection, kind, data, bytes))
        control(link, peer, EPOLL_CTL_MOD);
    else
        peer_lose(link, peer, "it does not take what is sent to it");
}

void peer_lose_as(struct link *link, struct peer *peer, const char *text)
{
    if (peer->connection.fd < 0)
        return;
    connection_close(&peer->connection);
    snprintf(peer->why, sizeof peer->why, "%s", text);
    peer->lost = true;
    link->lost_count++;
    if (link->current == peer)
        link->current = NULL;
    peers_wake(link);
}

static void say_why(const struct link *link, const struct peer *peer, char text[FRAME_LOST_MAX],
                    const char *why)
{
    snprintf(text, FRAME_LOST_MAX, "node %d (%s) is lost: %s", peer_node(link, peer), peer->name,
             why);
}

/* A node that was stopped hears why it was lost when it continues. */
static void lose_silent(struct link *link, struct peer *peer)
{
    char why[64], text[FRAME_LOST_MAX];
    snprintf(why, sizeof why, "it has not answered for %g s", (double)link->lost_ns * 1e-9);
    say_why(link, peer, text, why);
    peer_put(link, peer, FRAME_LOST, text, strlen(text) + 1);
    peer_lose_as(link, peer, text);
}

void peer_lose(struct link *link, struct peer *peer, const char *format, ...)
{
    char why[256], text[FRAME_LOST_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    say_why(link, peer, text, why);
    peer_lose_as(link, peer, text);
}

/* Reads once what has come. False: the peer is lost. */
static bool receive(struct link *link, struct peer *peer)
{
    const enum connection_result result = connection_receive(&peer->connection);
    if (result == CONNECTION_NOTHING || result == CONNECTION_BYTES)
        return true;
    /* What it had not read was lost with it. */
    peer->ended = result == CONNECTION_ENDED || errno == ECONNRESET || errno == EPIPE;
    if (peer->ended)
        peer_lose(link, peer, "its ddprun has ended without a word");
    else
        peer_lose(link, peer, "the connection failed: %s", strerror(errno));
    return false;
}

bool peer_handle(struct link *link, struct peer *peer, uint32_t events)
{
    if (events & EPOLLOUT) {
        connection_flush(&peer->connection);
        control(link, peer, EPOLL_CTL_MOD);
    }
    return (events & ~(uint32_t)EPOLLOUT) && receive(link, peer);
}

/* --- members ---------------------------------------------------------------------------------- */

void peer_clear(struct link *link, struct peer *peer)
{
    link->lost_count -= peer->lost;
    *peer = (struct peer){
        .connection.fd = -1, .name = "?", .status = {.lowest_step = -1, .highest_step = -1}};
}

static void watch_by_another_name(struct link *link, struct peer *peer)
{
    peer->connection.watched = 0;
    if (peer->connection.fd >= 0 && !control(link, peer, EPOLL_CTL_MOD))
        peer_lose(link, peer, "it cannot be watched any more");
}

void peer_move(struct link *link, struct peer *from, struct peer *to)
{
    if (from == to)
        return;
    if (to->connection.fd < 0)
        peer_clear(link, to);
    const struct peer other = *to;
    *to = *from;
    *from = other;
    if (link->current == from || link->current == to)
        link->current = link->current == from ? to : from;
    watch_by_another_name(link, to);
    watch_by_another_name(link, from);
}

bool peers_take_member(struct link *link)
{
    if (link->next >= link->room)
        return false;
    struct peer *peer = &link->peers[link->next++];
    peer->nproc = (int)link->data.member.nproc;
    peer_set_name(peer, link->data.member.name);
    peer_set_contact(peer, link->data.member.contact);
    return true;
}

bool peers_take_welcome(struct link *link)
{
    const struct welcome *welcome = &link->data.welcome;
    if ((int)welcome->node_count != link->next || (int64_t)welcome->node >= link->room)
        return false;
    link->peers[welcome->node].status = link->peers[link->node].status;
    link->node = (int)welcome->node;
    link->count = (int)welcome->node_count;
    link->meeting.round =
        (struct link_round){(int)welcome->worker_port, (int)welcome->restart,
                            (int)welcome->failures, (int)welcome->first_size, welcome->begun};
    link->next = 0;
    return true;
}

/* --- signs of life ---------------------------------------------------------------------------- */

void peers_tick(struct link *link)
{
    uint64_t expirations;
    const int64_t now = ddp_clock_ns(), ping_ns = link->lost_ns / PINGS;
    if (read(link->timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        ddp_log(DDP_LOG_DEBUG, "timer of the link: %s", strerror(errno));
    /* Whoever was stopped himself, or had no time to look, has heard nobody meanwhile. */
    const bool late = now - link->tick_ns > ping_ns;
    const bool ping = now - link->ping_ns >= ping_ns;
    link->tick_ns = now;
    if (ping)
        link->ping_ns = now;
    for (int i = 0; i < link->room; i++) {
        struct peer *peer = &link->peers[i];
        if (peer->connection.fd < 0)
            continue;
        if (late)
            peer->connection.heard_ns = now;
        if (now - peer->connection.heard_ns > link->lost_ns)
            lose_silent(link, peer);
        else if (ping)
            peer_ping(link, peer);
    }
}

enum ddp_status link_interrupt(const struct link_setup *setup)
{
    return setup->interrupted ? setup->interrupted(setup->interrupted_owner) : DDP_ERR_ABORTED;
}

enum ddp_status link_pause(const struct link_setup *setup, int fd, int events, int milliseconds)
{
    struct pollfd fds[2] = {{setup->interrupt_fd, POLLIN, 0}, {fd, (short)events, 0}};
    while (poll(fds, 2, milliseconds) > 0) {
        enum ddp_status status = fds[0].revents ? link_interrupt(setup) : DDP_OK;
        if (status != DDP_OK || fds[1].revents)
            return status;
    }
    return DDP_ERR_TIMEOUT;
}

void peer_set_contact(struct peer *peer, const char *contact)
{
    ddp_text_clean(peer->contact, sizeof peer->contact, contact, strlen(contact));
}

void peer_set_name(struct peer *peer, const char *name)
{
    ddp_text_clean(peer->name, sizeof peer->name, name, strlen(name));
}

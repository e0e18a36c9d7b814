/* SPDX-License-Identifier: MIT
 *
 * A member of an elastic job that has lost node 0 becomes the next node 0, or finds it. All members
 * that reach each other come to the same: the one with the lowest number. Each listens from the
 * beginning where it would be node 0, so that a refused connection means that its process has
 * ended; what neither takes nor refuses one may live behind a network that is down. A member joins
 * one other only, and another one only if that has ended: of two that would be node 0 at most one
 * finds more than half of the members. */
#include "config.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "launcher/link/listen.h"
#include "launcher/link/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE_MS  2000
#define END_MS    100 /* a process that ends closes its connections before it listens no more */
#define END_LOOKS 20
#define END_LATE  5 /* looks that one which really ends does not outlive */

enum member_state {
    MEMBER_SILENT,
    MEMBER_LIVES,
    MEMBER_HAS_ENDED,
};

struct candidate {
    enum member_state state;
    char host[CONTACT_BYTES]; /* "": it cannot be node 0 */
    int port;
    int fd; /* on its way; -1: none */
};

/* What has become of a connection; 0: it is up. */
static void note_end(struct candidate *member, int error)
{
    if (error == 0 && address_meets_itself(member->fd))
        error = ECONNREFUSED;
    if (error == 0)
        member->state = MEMBER_LIVES;
    else if (error == ECONNREFUSED)
        member->state = MEMBER_HAS_ENDED;
    close(member->fd);
    member->fd = -1;
}

static void begin_probe(struct candidate *member)
{
    struct addresses found;
    char why[256];
    bool again;
    member->state = MEMBER_SILENT;
    if (!member->host[0] ||
        !addresses_find(&found, member->host, member->port, why, sizeof why, &again))
        return;
    const struct address *to = &found.list[0];
    member->fd = socket(to->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (member->fd < 0)
        return;
    if (connect(member->fd, (const struct sockaddr *)&to->socket, to->length) == 0)
        note_end(member, 0);
    else if (errno != EINPROGRESS)
        note_end(member, errno);
}

/* Finds out which of `count` members have ended. */
static enum ddp_status probe(struct candidate *members, int count)
{
    const int64_t end_ns = ddp_deadline_ns(PROBE_MS);
    struct pollfd *fds = ddp_array_alloc((size_t)count, sizeof *fds);
    if (!fds)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < count; i++)
        begin_probe(&members[i]);
    for (;;) {
        bool waits = false;
        for (int i = 0; i < count; i++) {
            fds[i] = (struct pollfd){.fd = members[i].fd, .events = POLLOUT};
            waits = waits || members[i].fd >= 0;
        }
        if (!waits || ddp_deadline_passed(end_ns))
            break;
        poll(fds, (nfds_t)count, 50);
        for (int i = 0; i < count; i++) {
            int error = 0;
            socklen_t length = sizeof error;
            if (!fds[i].revents)
                continue;
            getsockopt(members[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
            note_end(&members[i], error);
        }
    }
    for (int i = 0; i < count; i++)
        if (members[i].fd >= 0)
            note_end(&members[i], ETIMEDOUT);
    free(fds);
    return DDP_OK;
}

/* Opens the next link, with a copy of what listens: the last one keeps its own until that is up. */
static enum ddp_status open_next(struct link **next, const struct link *last,
                                 const struct link_setup *setup, int node,
                                 const struct candidate *node0)
{
    struct link_setup own = *setup;
    own.node = node;
    own.address = node0->host;
    own.port = node0->port;
    own.port_count = 1;
    own.standby = last->standby > 0 ? fcntl(last->standby, F_DUPFD_CLOEXEC, 3) : 0;
    if (own.standby < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot listen for other nodes: %s", strerror(errno));
    return link_open(next, &own);
}

/* The next node 0, as far as this node can see, and what stands against it. */
static int find_heir(const struct link *last, const struct candidate *members,
                     struct link_succession *succession)
{
    int heir = last->node;
    for (int i = last->node - 1; i > 0; i--)
        if (members[i].state == MEMBER_LIVES)
            heir = i;
    *succession = (struct link_succession){0};
    for (int i = 0; i < last->count; i++) {
        const bool own = i == last->node;
        const bool reached = own || (i > 0 && members[i].state == MEMBER_LIVES);
        succession->reached += reached;
        succession->voters += own || members[i].state != MEMBER_HAS_ENDED;
        if (i < heir && !reached && members[i].state != MEMBER_HAS_ENDED)
            succession->tie_is_lost = true;
    }
    return heir;
}

/* Do all that are reached not suffice? */
static bool is_cut_off(const struct link_succession *succession)
{
    const int silent = succession->voters - succession->reached;
    return 2 * silent + succession->tie_is_lost > succession->voters;
}

/* Finds out which of the members have ended. One whose connection was closed gets time to do so;
 * one that has run on for longer was left, by a network that reset the connection: it went on with
 * others, and its end since then is not for this node to answer. */
static enum ddp_status probe_all(struct candidate *members, const struct link *last)
{
    const bool closed = last->peers[0].ended;
    if (closed)
        poll(NULL, 0, END_MS);
    enum ddp_status status = probe(members, last->count);
    int looks = 0;
    while (status == DDP_OK && closed && members[0].state == MEMBER_LIVES && looks++ < END_LOOKS) {
        poll(NULL, 0, END_MS);
        status = probe(members, 1);
    }
    if (looks > END_LATE && members[0].state == MEMBER_HAS_ENDED)
        members[0].state = MEMBER_LIVES;
    return status;
}

static enum ddp_status find_next(struct link **next, const struct link *last,
                                 const struct link_setup *setup, struct candidate *members,
                                 struct link_succession *succession)
{
    const struct peer *node0 = &last->peers[0];
    for (;;) {
        enum ddp_status status = probe_all(members, last);
        if (status != DDP_OK)
            return status;
        const int heir = find_heir(last, members, succession);
        if (node0->ended && members[0].state == MEMBER_LIVES)
            return ddp_fail(DDP_ERR_IO,
                            "node 0 (%s) has closed the connection, and gone on: this node is out; "
                            "start it again",
                            node0->name);
        if (is_cut_off(succession))
            return ddp_fail(DDP_ERR_IO,
                            "this node reaches %d of %d nodes that may be there, itself included: "
                            "too few to go on without node 0 (%s)",
                            succession->reached, succession->voters, node0->name);
        if (heir == last->node)
            return open_next(next, last, setup, 0, &members[heir]);
        ddp_log(DDP_LOG_INFO, "node %d (%s) is to be node 0 now", heir, last->peers[heir].name);
        status = open_next(next, last, setup, last->node, &members[heir]);
        if (status == DDP_OK || status == DDP_ERR_ABORTED || status == DDP_ERR_PREEMPTED)
            return status;
        const enum ddp_status again = probe(&members[heir], 1);
        if (again != DDP_OK || members[heir].state != MEMBER_HAS_ENDED)
            return status;
    }
}

enum ddp_status link_succeed(struct link **link, const struct link_setup *setup,
                             struct link_succession *succession)
{
    struct link *last = *link, *next = NULL;
    if (last->next > 0)
        return ddp_fail(DDP_ERR_IO, "node 0 (%s) was lost while it told which nodes there are",
                        last->peers[0].name);
    struct candidate *members = ddp_array_alloc((size_t)last->count, sizeof *members);
    if (!members)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < last->count; i++) {
        members[i].fd = -1;
        address_read_contact(last->peers[i].contact, members[i].host, &members[i].port);
    }
    enum ddp_status status = find_next(&next, last, setup, members, succession);
    if (status == DDP_OK && !next)
        status = ddp_fail(DDP_ERR_IO, "the next node 0 has ended the job");
    if (status == DDP_OK) {
        link_free(last);
        *link = next;
    }
    free(members);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Which nodes are members of the job: formed by node 0 when all have come, and in an elastic job
 * again between two attempts. */
#include "config.h"

#include "core/clock.h"
#include "launcher/link/peers.h"

#include <stdio.h>
#include <string.h>

int link_count(const struct link *link)
{
    return link->count;
}

int link_node(const struct link *link)
{
    return link->node;
}

/* Is a node there that can be a member: is one, or has waited for so long? */
static bool can_join(const struct link *link, int i, int64_t waited_ns)
{
    const struct peer *peer = &link->peers[i];
    return peer->connection.fd >= 0 &&
           (i < link->count || ddp_clock_ns() - peer->since_ns >= waited_ns);
}

int link_waiting(const struct link *link, int64_t waited_ns)
{
    int waiting = 0;
    for (int i = link->count; i < link->room; i++)
        waiting += can_join(link, i, waited_ns);
    return waiting;
}

int link_votes(const struct link *link, uint32_t epoch)
{
    int votes = 0;
    for (int i = link->count; i < link->room; i++)
        votes += link->peers[i].connection.fd >= 0 && link->peers[i].epoch == epoch;
    return votes;
}

void peer_welcome(struct link *link, struct peer *peer)
{
    const int node = peer_node(link, peer);
    const struct link_round *round = &link->meeting.round;
    const struct welcome welcome = {.node = (uint32_t)node,
                                    .node_count = (uint32_t)link->count,
                                    .worker_port = (uint32_t)round->worker_port,
                                    .restart = (uint32_t)round->restart,
                                    .failures = (uint32_t)round->failures,
                                    .first_size = (uint32_t)round->first_size,
                                    .begun = round->begun};
    for (int k = 0; k < link->count; k++) {
        struct member member = {.nproc = (uint32_t)link->peers[k].nproc};
        snprintf(member.contact, sizeof member.contact, "%s", link->peers[k].contact);
        snprintf(member.name, sizeof member.name, "%s", link->peers[k].name);
        peer_put(link, peer, FRAME_MEMBER, &member,
                 offsetof(struct member, name) + strlen(member.name) + 1);
    }
    peer_put(link, peer, FRAME_WELCOME, &welcome, sizeof welcome);
    if (node < link->count)
        peer->connection.phase = PHASE_RUNNING;
}

/* Takes a node into account that would be the next member, if there is room for it. */
static bool fits(const struct link *link, int i, const struct link_limits *limits, int *nodes,
                 int *workers)
{
    const int more = *workers + link->peers[i].nproc;
    if (!can_join(link, i, limits->waited_ns) || *nodes >= limits->nodes ||
        (i >= link->count && limits->workers > 0 && more > limits->workers))
        return false;
    *workers = more;
    ++*nodes;
    return true;
}

int link_fitting(const struct link *link, const struct link_limits *limits)
{
    int nodes = 1, workers = link->peers[0].nproc;
    for (int i = 1; i < link->room; i++)
        fits(link, i, limits, &nodes, &workers);
    return nodes;
}

void link_form(struct link *link, const struct link_limits *limits, const struct link_round *round)
{
    int nodes = 1, workers = link->peers[0].nproc;
    for (int i = 1; i < link->room; i++)
        if (fits(link, i, limits, &nodes, &workers))
            peer_move(link, &link->peers[i], &link->peers[nodes - 1]);
    link->count = nodes;
    link->meeting.round = *round;
    for (int i = 1; i < link->room; i++)
        if (link->peers[i].connection.fd >= 0)
            peer_welcome(link, &link->peers[i]);
}

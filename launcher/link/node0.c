/* SPDX-License-Identifier: MIT
 *
 * Node 0's side of joining: waits for the others, and begins the job or says why it cannot. Who
 * comes is door.c's. */
#include "config.h"

#include "launcher/link/door.h"
#include "launcher/link/listen.h"
#include "launcher/link/peers.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "launcher/system/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINGER_MS    3000                /* for nodes that come when the job has failed */
#define TELL_MS      5000                /* until the user hears whom we wait for */
#define LAST_CALL_NS INT64_C(1000000000) /* for more nodes, when enough have come */

struct joining {
    struct door *door;
    struct link *link;
    const struct link_setup *setup; /* the caller's, of which the door has a copy */
    int64_t deadline_ns, tell_ns;
    enum ddp_status interrupt; /* why the owner wants to stop; DDP_OK: it does not */
};

/* --- before anybody comes --------------------------------------------------------------------- */

/* What PMIx tells the others. */
static enum ddp_status publish(struct joining *j)
{
    const struct link_setup *setup = j->setup;
    struct link_contact contact = {.port = address_port(&j->door->address)};
    snprintf(contact.address, sizeof contact.address, "%s", j->link->meeting.address);
    enum ddp_status status = proof_random(contact.key, sizeof contact.key);
    if (status == DDP_OK && setup->proof->method == PROOF_PMIX)
        status = proof_take_key(setup->proof, contact.key, sizeof contact.key);
    if (status == DDP_OK)
        status = setup->exchange(setup->exchange_owner, &contact);
    explicit_bzero(contact.key, sizeof contact.key);
    return status;
}

/* A node that had come has gone again: it may come once more. */
static void note_losses(struct joining *j)
{
    for (int i = 1; i < j->link->room && j->link->lost_count > 0; i++) {
        struct peer *peer = &j->link->peers[i];
        if (!peer->lost)
            continue;
        snprintf(j->door->note, sizeof j->door->note, "node %d (%.128s) had come and is gone", i,
                 peer->name);
        peer->lost = false;
        j->link->lost_count--;
        j->door->arrived--;
    }
}

/* --- the end of joining ----------------------------------------------------------------------- */

/* Enough have come, and no more are on their way. */
static bool all_there(const struct joining *j)
{
    const struct door *door = j->door;
    const int nodes = door->arrived + 1;
    return nodes >= j->setup->node_count ||
           (link_is_elastic(j->setup) && nodes >= j->setup->least_nodes &&
            (ddp_clock_ns() - door->arrival_ns > LAST_CALL_NS ||
             ddp_deadline_passed(j->deadline_ns)));
}

/* "node 2 of 4" or "nodes 1-2, 5 of 16"; of an elastic job "1 more node of at least 2". Returns how
 * many. */
static int list_missing(const struct joining *j, char *out, size_t size)
{
    const struct link *link = j->link;
    if (link_is_elastic(j->setup)) {
        const int more = j->setup->least_nodes - 1 - j->door->arrived;
        snprintf(out, size, "%d more node%s of at least %d", more, more == 1 ? "" : "s",
                 j->setup->least_nodes);
        return more;
    }
    char list[256] = "";
    size_t used = 0;
    int count = 0;
    for (int i = 1; i < link->count; i++) {
        int last = i;
        if (link->peers[i].connection.fd >= 0)
            continue;
        while (last + 1 < link->count && link->peers[last + 1].connection.fd < 0)
            last++;
        if (used < sizeof list - 32)
            used += (size_t)snprintf(list + used, sizeof list - used, last > i ? "%s%d-%d" : "%s%d",
                                     used ? ", " : "", i, last);
        else if (list[used - 1] != '.')
            used += (size_t)snprintf(list + used, sizeof list - used, ", ...");
        count += last - i + 1;
        i = last;
    }
    snprintf(out, size, "node%s %s of %d", count == 1 ? "" : "s", list, link->count);
    return count;
}

static void tell_waiting(struct joining *j)
{
    char missing[320], here[LINK_NAME_BYTES];
    j->tell_ns = INT64_MAX;
    if (link_is_elastic(j->setup) && j->door->arrived + 1 >= j->setup->least_nodes)
        return;
    list_missing(j, missing, sizeof missing);
    address_show(&j->door->address, here);
    ddp_log(DDP_LOG_INFO, "waiting for %s: node 0 listens on %s", missing, here);
}

static void time_is_over(struct joining *j)
{
    struct door *door = j->door;
    char missing[320], here[LINK_NAME_BYTES];
    const int count = list_missing(j, missing, sizeof missing);
    address_show(&door->address, here);
    door_end_job(door, DDP_ERR_TIMEOUT, "%s %s not come within %g s; node 0 listens on %s%s%s",
                 missing, count == 1 ? "has" : "have", j->setup->node_timeout, here,
                 door->note[0] ? "; " : "",
                 !door->note[0] && address_is_loopback(&door->address)
                     ? ", on this machine only: is --master-addr right?"
                     : door->note);
}

/* Closes all connections of nodes when they have taken what was sent. */
static void finish(struct joining *j)
{
    struct link *link = j->link;
    struct connection **all = calloc((size_t)(link->room + j->door->strangers), sizeof(*all));
    int count = 0;
    if (!all)
        return;
    for (int i = 1; i < link->room; i++)
        all[count++] = &link->peers[i].connection;
    for (struct stranger *s = j->door->first; s; s = s->next)
        if (s->connection.phase == PHASE_JOINED)
            all[count++] = &s->connection;
    connections_finish(all, count);
    free(all);
}

static void handle_event(struct joining *j)
{
    struct link *link = j->link;
    struct epoll_event event;
    int n = epoll_wait(link->epoll, &event, 1, -1); /* the timer ticks */
    void *who = n > 0 ? event.data.ptr : NULL;
    if (who == j->setup) {
        j->interrupt = link_interrupt(j->setup);
    } else if (link_has_peer(link, who)) {
        if (peer_handle(link, who, event.events))
            door_take_pings(j->door, who);
    } else if (who) {
        door_event(j->door, who);
    } else {
        peers_tick(link);
        door_tick(j->door);
    }
    note_losses(j);
}

static void wait_for_nodes(struct joining *j)
{
    struct door *door = j->door;
    while (!door->over && j->interrupt == DDP_OK && !all_there(j)) {
        if (ddp_deadline_passed(j->deadline_ns))
            time_is_over(j);
        else if (ddp_deadline_passed(j->tell_ns))
            tell_waiting(j);
        else
            handle_event(j);
    }
    if (!door->over)
        door->status = j->interrupt;
}

/* Those who have come hear at once why the job ends, those who are on their way when they come. */
static void end_joining(struct joining *j)
{
    struct door *door = j->door;
    const int64_t linger_ns = ddp_deadline_ns(LINGER_MS);
    for (int i = 1; i < j->link->room; i++)
        if (j->link->peers[i].connection.fd >= 0)
            door_tell(door, &j->link->peers[i].connection);
    if (door->wrong)
        door_tell(door, &door->wrong->connection);
    while (door->status == DDP_ERR_MISMATCH && j->interrupt == DDP_OK &&
           door->told < j->link->count - 1 && !ddp_deadline_passed(linger_ns))
        handle_event(j);
    finish(j);
}

static enum ddp_status watch(struct joining *j, int fd, void *who)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};
    if (fd >= 0 && epoll_ctl(j->link->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch for other nodes: %s", strerror(errno));
    return DDP_OK;
}

static enum ddp_status prepare(struct joining *j)
{
    struct link *link = j->link;
    struct door *door = j->door;
    descriptors_raise(link->room * 2 + DOOR_STRANGERS + 256); /* as many strangers as nodes */
    enum ddp_status status = DDP_OK;
    if (link->standby > 0) {
        door->listener = link->standby;
        link->standby = 0;
        address_of_socket(door->listener, false, &door->address);
    } else {
        status = link_listen(j->setup, j->deadline_ns, &door->listener, &door->address);
    }
    if (status != DDP_OK)
        return status;
    address_contact(&door->address, link->peers[0].contact);
    address_host(&door->address, link->meeting.address);
    address_interface(&door->address, link->meeting.interface, sizeof link->meeting.interface);
    if (j->setup->exchange)
        status = publish(j);
    if (status == DDP_OK)
        status = watch(j, door->listener, door);
    if (status == DDP_OK)
        status = watch(j, j->setup->interrupt_fd, (void *)(uintptr_t)j->setup);
    if (status == DDP_OK && j->setup->proof->method == PROOF_NONE)
        ddp_log(DDP_LOG_WARNING, "--insecure-link: whoever reaches port %d of %s can join this job",
                address_port(&door->address), link->meeting.address);
    return status;
}

/* The door of an elastic job stays open. */
static void end_door(struct joining *j)
{
    struct door *door = j->door;
    if (j->setup->interrupt_fd >= 0)
        epoll_ctl(j->link->epoll, EPOLL_CTL_DEL, j->setup->interrupt_fd, NULL);
    if (door->status == DDP_OK && link_is_elastic(j->setup)) {
        j->link->door = door;
        return;
    }
    door_close(door);
    free(door);
}

enum ddp_status link_node0_join(struct link *link, const struct link_setup *setup)
{
    struct joining j = {
        .door = ddp_array_alloc(1, sizeof *j.door),
        .link = link,
        .setup = setup,
        .deadline_ns = ddp_clock_ns() + (int64_t)(setup->node_timeout * 1e9),
        .tell_ns = ddp_deadline_ns(TELL_MS),
    };
    struct door *door = j.door;
    if (!door)
        return DDP_ERR_MEMORY;
    *door =
        (struct door){.link = link, .setup = *setup, .listener = -1, .arrival_ns = ddp_clock_ns()};
    door->status = prepare(&j);
    if (door->status == DDP_OK && setup->epoch == 0) {
        wait_for_nodes(&j);
        if (door->status == DDP_OK)
            link_form(link, &(struct link_limits){.nodes = setup->node_count},
                      &(struct link_round){.worker_port = setup->worker_port});
        else
            end_joining(&j);
    }
    if (door->error[0])
        ddp_fail(door->status, "%s", door->error);
    const enum ddp_status status = door->status;
    end_door(&j);
    return status;
}

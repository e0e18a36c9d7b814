/* SPDX-License-Identifier: MIT
 *
 * Joining from the side of all nodes but node 0: finds it, proves who we are, and waits until all
 * are there. */
#include "config.h"

#include "launcher/link/hello.h"
#include "launcher/link/listen.h"
#include "launcher/link/peers.h"
#include "launcher/link/state.h"

#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MS   50
#define CONNECT_MS 2000                /* then another address is tried */
#define PORTS_MS   2000                /* the same where another port may be node 0's */
#define SILENT     2                   /* so often nothing comes from what is not ddprun */
#define LOOK_UP_NS INT64_C(2000000000) /* between two looks at a name */
#define TELL_NS    INT64_C(5000000000) /* until the user hears what we wait for */

struct trying {
    struct link *link;
    const struct link_setup *setup;
    const char *name; /* of node 0 */
    int port, port_count;
    struct addresses addresses;
    int64_t start_ns, deadline_ns, look_up_ns;
    double answer_seconds; /* for all that node 0 says until it has proved itself */
    int64_t answer_ns;     /* until when */
    bool connected; /* to what is tried; `answered`: something was, in this round of all ports */
    bool answered;
    int silent; /* how often it said nothing */
    bool told, warned, waits;
    bool orphan; /* node 0 was lost while this node waited: one of its members will be the next */
    struct link_contact contact;     /* from PMIx */
    char shown[LINK_NAME_BYTES];     /* the address that is tried */
    char why[LINK_NAME_BYTES + 256]; /* what went wrong last */
};

/* Another try may succeed. A wait that the end of joining has cut short says less than what went
 * wrong before, and ports where nobody listens less than one that answers. */
static enum ddp_status try_again(struct trying *t, const char *format, ...) DDP_PRINTF(2, 3);
static enum ddp_status try_again(struct trying *t, const char *format, ...)
{
    va_list arguments;
    if (t->why[0] && (ddp_deadline_passed(t->deadline_ns) || (t->answered && !t->connected)))
        return DDP_ERR_TIMEOUT;
    t->answered = t->answered || t->connected;
    va_start(arguments, format);
    size_t used = (size_t)snprintf(t->why, sizeof t->why, "%s: ", t->shown);
    if (used < sizeof t->why)
        vsnprintf(t->why + used, sizeof t->why - used, format, arguments);
    va_end(arguments);
    return DDP_ERR_TIMEOUT;
}

/* Can node 0 be nowhere else? */
static bool only_one(const struct trying *t)
{
    return t->port_count == 1 && t->addresses.count == 1;
}

/* What is tried says, or shows, why we cannot join there, and has proved nothing: whoever came
 * first to a port that others can foretell may say so too, and node 0 is on another one then. */
static enum ddp_status turned_away(struct trying *t, const char *format, ...) DDP_PRINTF(2, 3);
static enum ddp_status turned_away(struct trying *t, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (t->port_count == 1)
        return ddp_fail(DDP_ERR_MISMATCH, "%s", text);
    if (!t->warned)
        ddp_log(DDP_LOG_WARNING, "%s; looking for node 0 on other ports", text);
    t->warned = true;
    return try_again(t, "%s", text);
}

/* --- one connection --------------------------------------------------------------------------- */

static int milliseconds_left(int64_t first_ns, int64_t second_ns)
{
    const int64_t end_ns = first_ns < second_ns ? first_ns : second_ns;
    const int64_t left_ns = end_ns - ddp_clock_ns();
    return left_ns < 0 ? 0 : (int)((left_ns + 999999) / 1000000);
}

/* DDP_OK: *fd [out] is connected. */
static enum ddp_status connect_to(struct trying *t, const struct address *address, int *fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    t->connected = false;
    *fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return try_again(t, "%s", strerror(errno));
    if (connect(*fd, (const struct sockaddr *)&address->socket, address->length) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        enum ddp_status status = link_pause(
            t->setup, *fd, POLLOUT, milliseconds_left(t->deadline_ns, ddp_deadline_ns(CONNECT_MS)));
        if (status == DDP_ERR_TIMEOUT)
            error = ETIMEDOUT;
        else if (status != DDP_OK)
            return status;
        else
            getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0 && address_meets_itself(*fd))
        error = ECONNREFUSED;
    if (error != 0)
        return try_again(t, "%s", strerror(error));
    t->connected = true;
    t->answer_ns = ddp_deadline_ns(t->port_count > 1 ? PORTS_MS : (int)(t->answer_seconds * 1e3));
    return DDP_OK;
}

/* Another program has the port, and node 0 cannot have it. */
static enum ddp_status no_ddprun(struct trying *t, const struct connection *connection)
{
    char said[48];
    const size_t bytes = connection->in_end - connection->in_start;
    ddp_text_clean(said, sizeof said, (const char *)connection->in + connection->in_start,
                   bytes < 40 ? bytes : 40);
    if (!only_one(t) || connection->phase != PHASE_HELLO)
        return try_again(t, "what answers there is not ddprun: it says %s", said);
    return ddp_fail(
        DDP_ERR_MISMATCH,
        "node %d: what answers at %s is not ddprun: it says %s; give a port that is free on "
        "node 0 to all nodes with --master-port",
        t->setup->node, t->shown, said);
}

static enum ddp_status no_answer(struct trying *t, const struct connection *connection)
{
    if (connection->phase == PHASE_HELLO && t->setup->epoch == 0 && !t->orphan && only_one(t) &&
        ++t->silent == SILENT && !ddp_deadline_passed(t->deadline_ns))
        return ddp_fail(
            DDP_ERR_IO,
            "node %d: what listens at %s takes connections, but has not answered for %g s: "
            "if it is not ddprun, give a port that is free on node 0 to all nodes with "
            "--master-port",
            t->setup->node, t->shown, SILENT * t->answer_seconds);
    return try_again(t, "it takes connections, but does not answer");
}

/* The next frame of node 0, into t->link->data. */
static enum ddp_status hear(struct trying *t, struct connection *connection, struct frame *frame)
{
    for (;;) {
        enum frame_result result = connection_take(connection, frame);
        if (result == FRAME_READY && frame_read(frame, &t->link->data))
            return DDP_OK;
        if (result != FRAME_NONE)
            return no_ddprun(t, connection);
        enum ddp_status status = link_pause(t->setup, connection->fd, POLLIN,
                                            milliseconds_left(t->deadline_ns, t->answer_ns));
        if (status == DDP_ERR_TIMEOUT || ddp_deadline_passed(t->answer_ns))
            return no_answer(t, connection);
        if (status != DDP_OK)
            return status;
        const enum connection_result received = connection_receive(connection);
        if (received == CONNECTION_ENDED)
            return try_again(t, "it closes the connection");
        if (received == CONNECTION_FAILED)
            return try_again(t, "%s", strerror(errno));
    }
}

static enum ddp_status refused(struct trying *t)
{
    const struct refusal *refusal = &t->link->data.refusal;
    const char *own = proof_method_name(t->setup->proof->method);
    /* Node 0 has proved who it is before it ends the job. */
    if (refusal->reason == REFUSED_JOB_ENDS && t->link->peers[0].connection.phase == PHASE_WAITING)
        return ddp_fail(DDP_ERR_MISMATCH, "%s", refusal->text);
    if (refusal->reason == REFUSED_STOPPED && t->link->peers[0].connection.phase == PHASE_WAITING)
        return DDP_ERR_PREEMPTED;
    switch (refusal->reason) {
    case REFUSED_JOB:
        return try_again(t, "that port is another job's");
    case REFUSED_METHOD:
        return turned_away(t,
                           "node 0 (%s) has %s, this is node %d and has %s: give the same to all",
                           t->shown, proof_method_name(refusal->method), t->setup->node, own);
    case REFUSED_PROOF:
        return turned_away(t, "node 0 (%s) refuses this node, %d: %s", t->shown, t->setup->node,
                           t->setup->proof->method == PROOF_KEY
                               ? "it has another key: give the same to all with --key-file or "
                                 "DDPRUN_KEY"
                               : "node 0's message says why");
    default:
        return try_again(t, "it refuses this node (reason %u)", refusal->reason);
    }
}

/* Is the other side a ddprun that we can speak with? */
static enum ddp_status check_hello(struct trying *t, const struct said *said)
{
    char version[128];
    if (said->node0.protocol != FRAME_PROTOCOL) {
        hello_show_version(&said->node0, version, sizeof version);
        return turned_away(
            t,
            "node 0 (%s) runs %s, this node, %d, runs ddprun %s: install one version "
            "on all",
            t->shown, version, t->setup->node, ddp_version());
    }
    if (said->node0.job != said->node.job)
        return try_again(t, "that port is another job's");
    if (said->node0.node != 0)
        return try_again(t, "that is node %u", said->node0.node);
    return DDP_OK;
}

/* Shows node 0 who we are, and sees that it is node 0. */
static enum ddp_status prove(struct trying *t, struct connection *connection)
{
    char why[PROOF_WHY] = "its method of proof is another";
    struct frame frame;
    struct said said = {0};
    const struct proof *proof = t->setup->proof;
    enum ddp_status status = hello_make(&said.node, t->setup);
    if (status != DDP_OK)
        return status;
    connection_put(connection, FRAME_HELLO, &said.node, sizeof said.node);
    status = hear(t, connection, &frame);
    if (status == DDP_OK && frame.kind != FRAME_HELLO)
        return refused(t);
    if (status != DDP_OK)
        return status;
    said.node0 = t->link->data.hello;
    connection->phase = PHASE_PROOF;
    status = check_hello(t, &said);
    if (status == DDP_OK && said.node0.method == said.node.method)
        status = hello_send_proof(connection, proof, &said, false);
    if (status == DDP_OK)
        status = hear(t, connection, &frame);
    if (status != DDP_OK)
        return status;
    if (frame.kind != FRAME_PROOF)
        return refused(t);
    if (said.node0.method == said.node.method &&
        hello_check_proof(proof, &said, true, &frame, why)) {
        hello_seal(connection, proof, &said, false);
        explicit_bzero(&said, sizeof said);
        return DDP_OK;
    }
    return turned_away(t, "what answers at %s is not node 0 of this job: %s", t->shown, why);
}

/* Listens where this node would be node 0: at node 0's port, if that is free here. */
static void stand_by(const struct trying *t, struct address *own)
{
    struct link *link = t->link;
    if (!link_is_elastic(t->setup))
        return;
    if (link->standby == 0)
        link->standby = link_listen_at(own);
    if (link->standby < 0) {
        address_set_port(own, 0);
        link->standby = link_listen_at(own);
    }
    if (link->standby > 0 && address_of_socket(link->standby, false, own))
        address_contact(own, link->peers[link->node].contact);
}

static enum ddp_status try_address(struct trying *t, struct address address, int port)
{
    int fd = -1;
    struct address own;
    struct link *link = t->link;
    struct peer *node0 = &link->peers[0];
    struct join join = {.nproc = (uint32_t)t->setup->nproc,
                        .max_restarts = (uint32_t)t->setup->max_restarts,
                        .least_nodes = (uint32_t)t->setup->least_nodes,
                        .epoch = t->setup->epoch,
                        .command_hash = ddp_hash(t->setup->command, strlen(t->setup->command))};
    address_set_port(&address, port);
    address_show(&address, t->shown);
    enum ddp_status status = connect_to(t, &address, &fd);
    if (status != DDP_OK) {
        if (fd >= 0)
            close(fd);
        return status;
    }
    connection_open(&node0->connection, fd, PHASE_HELLO);
    status = prove(t, &node0->connection);
    if (status != DDP_OK) {
        connection_close(&node0->connection);
        return status;
    }
    if (address_of_socket(fd, false, &own)) {
        address_set_port(&own, t->port);
        stand_by(t, &own);
    }
    snprintf(join.contact, sizeof join.contact, "%s", link->peers[link->node].contact);
    snprintf(join.version, sizeof join.version, "%s", ddp_version());
    snprintf(join.host, sizeof join.host, "%s", link->peers[link->node].name);
    ddp_text_clean(join.command, sizeof join.command, t->setup->command, strlen(t->setup->command));
    connection_put(&node0->connection, FRAME_JOIN, &join, sizeof join);
    node0->connection.phase = PHASE_WAITING;
    address_host(&address, link->meeting.address);
    if (address_of_socket(fd, false, &address))
        address_interface(&address, link->meeting.interface, sizeof link->meeting.interface);
    return DDP_OK;
}

/* --- finding node 0 --------------------------------------------------------------------------- */

/* What the name means may change while nodes start. */
static enum ddp_status look_up(struct trying *t)
{
    char why[256], list[512];
    bool again;
    const int64_t now = ddp_clock_ns();
    if (t->addresses.count > 0 && now < t->look_up_ns)
        return DDP_OK;
    t->look_up_ns = now + LOOK_UP_NS;
    snprintf(t->shown, sizeof t->shown, "%s", t->name);
    t->connected = false;
    if (!addresses_find(&t->addresses, t->name, t->port, why, sizeof why, &again))
        return again ? try_again(t, "%s", why)
                     : ddp_fail(DDP_ERR_IO, "node 0 has no address: %s: %s", t->name, why);
    if (address_is_any(&t->addresses.list[0]))
        return ddp_fail(DDP_ERR_INVALID,
                        "--master-addr %s names no machine: give the address of node 0", t->name);
    /* Node 0 may be this machine, and listen where others reach it. */
    if (t->addresses.trap && t->addresses.count < ADDRESSES_MAX &&
        addresses_own(&t->addresses.list[t->addresses.count], t->port, list, sizeof list))
        t->addresses.count++;
    return DDP_OK;
}

static enum ddp_status try_all(struct trying *t)
{
    enum ddp_status status = look_up(t);
    if (status != DDP_OK)
        return status;
    status = DDP_ERR_TIMEOUT;
    t->answered = false;
    for (int port = 0; port < t->port_count && status == DDP_ERR_TIMEOUT; port++)
        for (int i = 0; i < t->addresses.count && status == DDP_ERR_TIMEOUT; i++)
            status = try_address(t, t->addresses.list[i], t->port + port);
    return status;
}

static enum ddp_status give_up(const struct trying *t)
{
    char hint[LINK_NAME_BYTES + 128] = "", host[LINK_NAME_BYTES];
    if (t->addresses.count > 0 && address_is_loopback(&t->addresses.list[0])) {
        address_host(&t->addresses.list[0], host);
        snprintf(hint, sizeof hint, "; %s is this machine itself: is --master-addr right%s?", host,
                 t->addresses.trap ? ", and the line of that name in /etc/hosts" : "");
    }
    return ddp_fail(DDP_ERR_TIMEOUT,
                    "node %d of %d cannot reach node 0 at %s port %d within %g s: %s%s",
                    t->setup->node, t->setup->node_count, t->name, t->port, t->setup->node_timeout,
                    t->why, hint);
}

/* The first of them that lives is the next node 0, and answers when it knows that. */
static enum ddp_status try_members(struct trying *t)
{
    char host[CONTACT_BYTES];
    enum ddp_status status = DDP_ERR_TIMEOUT;
    for (int i = 1; i < t->link->count && status == DDP_ERR_TIMEOUT; i++) {
        if (!address_read_contact(t->link->peers[i].contact, host, &t->port))
            continue;
        t->name = host;
        t->addresses.count = 0;
        status = try_all(t);
    }
    t->name = t->setup->address;
    return status;
}

static enum ddp_status find_node0(struct trying *t)
{
    for (;;) {
        enum ddp_status status = t->orphan ? try_members(t) : try_all(t);
        if (status != DDP_ERR_TIMEOUT)
            return status;
        if (ddp_deadline_passed(t->deadline_ns))
            return give_up(t);
        if (!t->told && ddp_clock_ns() - t->start_ns > TELL_NS) {
            t->told = true;
            ddp_log(DDP_LOG_INFO, "waiting for node 0: %s", t->why);
        }
        status = link_pause(t->setup, -1, 0, RETRY_MS);
        if (status != DDP_ERR_TIMEOUT)
            return status;
    }
}

/* --- waiting for the others ------------------------------------------------------------------- */

/* DDP_ERR_TIMEOUT: go on. */
static enum ddp_status act(struct trying *t, const struct frame *frame)
{
    struct link *link = t->link;
    struct peer *node0 = &link->peers[0];
    switch (frame->kind) {
    case FRAME_PING:
        if (!t->waits)
            ddp_log(DDP_LOG_DEBUG, "node 0 has room for this node to wait");
        t->waits = true;
        node0->status = link->data.status;
        return DDP_ERR_TIMEOUT;
    case FRAME_MEMBER:
        if (peers_take_member(link))
            return DDP_ERR_TIMEOUT;
        break;
    case FRAME_REFUSED:
        return refused(t);
    case FRAME_WELCOME:
        if (!peers_take_welcome(link))
            break;
        if (link->node >= link->count) {
            peer_set_name(&link->peers[link->node], t->setup->host);
            return DDP_ERR_TIMEOUT;
        }
        node0->connection.phase = PHASE_RUNNING;
        return DDP_OK;
    case FRAME_GOODBYE:
        if (!link_is_elastic(t->setup))
            break;
        ddp_log(DDP_LOG_INFO, "the job has ended; this node was not needed");
        link->unneeded = true;
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_IO, "node 0 (%s) has sent what this ddprun does not understand",
                    t->shown);
}

static enum ddp_status hear_node0(struct trying *t)
{
    struct frame frame;
    enum frame_result result;
    struct peer *node0 = &t->link->peers[0];
    while ((result = connection_take(&node0->connection, &frame)) == FRAME_READY &&
           frame_read(&frame, &t->link->data)) {
        enum ddp_status status = act(t, &frame);
        if (status != DDP_ERR_TIMEOUT)
            return status;
    }
    if (result != FRAME_NONE)
        peer_lose(t->link, node0, LINK_DAMAGED);
    return DDP_ERR_TIMEOUT;
}

/* DDP_OK: there is another node 0. */
static enum ddp_status look_elsewhere(struct trying *t)
{
    struct peer *node0 = &t->link->peers[0];
    ddp_log(DDP_LOG_INFO, "%s; this node waits for the next node 0", node0->why);
    peer_clear(t->link, node0);
    t->link->next = 0;
    t->orphan = true;
    t->waits = false;
    t->port_count = 1;
    t->deadline_ns = ddp_clock_ns() + (int64_t)(t->setup->node_timeout * 1e9);
    enum ddp_status status = find_node0(t);
    if (status == DDP_OK)
        status = peer_watch(t->link, node0);
    if (status == DDP_OK)
        peer_ping(t->link, node0);
    return status;
}

/* Node 0 says when it takes too long. */
static enum ddp_status wait_for_all(struct trying *t)
{
    struct link *link = t->link;
    struct peer *node0 = &link->peers[0];
    enum ddp_status status = peer_watch(link, node0);
    if (status != DDP_OK)
        return status;
    peer_ping(link, node0);
    do {
        struct epoll_event event;
        status = link_pause(t->setup, link->epoll, POLLIN, -1);
        if (status != DDP_OK)
            return status;
        status = DDP_ERR_TIMEOUT;
        if (epoll_wait(link->epoll, &event, 1, 0) <= 0)
            continue;
        if (!event.data.ptr)
            peers_tick(link);
        else if (peer_handle(link, node0, event.events))
            status = hear_node0(t);
        if (node0->lost && (link->count <= 1 || link->node < link->count))
            return ddp_fail(DDP_ERR_IO, "while the nodes came together %s", node0->why);
        if (node0->lost) {
            status = look_elsewhere(t);
            if (status != DDP_OK)
                return status;
            status = DDP_ERR_TIMEOUT;
        }
    } while (status == DDP_ERR_TIMEOUT);
    return status;
}

enum ddp_status link_node_join(struct link *link, const struct link_setup *setup)
{
    const int64_t now = ddp_clock_ns();
    struct trying trying = {.link = link,
                            .setup = setup,
                            .name = setup->address,
                            .port = setup->port,
                            .port_count = setup->exchange ? 1 : setup->port_count,
                            .answer_seconds =
                                setup->lost_seconds > 0 ? setup->lost_seconds : LINK_DEFAULT_LOST,
                            .start_ns = now,
                            .deadline_ns = now + (int64_t)(setup->node_timeout * 1e9)};
    struct trying *t = &trying;
    enum ddp_status status = DDP_OK;
    if (setup->exchange) {
        status = setup->exchange(setup->exchange_owner, &t->contact);
        t->name = t->contact.address;
        t->port = t->contact.port;
        if (status == DDP_OK && setup->proof->method == PROOF_PMIX)
            status = proof_take_key(setup->proof, t->contact.key, sizeof t->contact.key);
    }
    if (status == DDP_OK)
        status = find_node0(t);
    if (status == DDP_OK)
        status = wait_for_all(t);
    if (status == DDP_ERR_PREEMPTED && link->peers[0].connection.phase == PHASE_WAITING) {
        struct connection *node0 = &link->peers[0].connection;
        connection_put(node0, FRAME_GOODBYE, NULL, 0); /* it asks the others to stop */
        connections_finish(&node0, 1);
    }
    explicit_bzero(&t->contact, sizeof t->contact);
    return status;
}

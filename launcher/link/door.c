/* SPDX-License-Identifier: MIT
 *
 * See door.h. */
#include "config.h"

#include "launcher/link/door.h"
#include "launcher/link/peers.h"

#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "job/board.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGER_SECONDS 5  /* for all that a stranger has to say */
#define MAX_NOTES        16 /* refusals that are logged */

void door_end_job(struct door *door, enum ddp_status status, const char *format, ...)
{
    va_list arguments;
    if (door->over)
        return;
    door->over = true;
    door->status = status;
    va_start(arguments, format);
    vsnprintf(door->error, sizeof door->error, format, arguments);
    va_end(arguments);
}

/* --- strangers -------------------------------------------------------------------------------- */

static void forget(struct door *door, struct stranger *stranger)
{
    struct stranger **at = &door->first;
    while (*at != stranger)
        at = &(*at)->next;
    *at = stranger->next;
    door->strangers--;
    if (door->wrong == stranger)
        door->wrong = NULL;
    connection_close(&stranger->connection);
    free(stranger);
}

static void drop(struct door *door, struct stranger *stranger, const char *why)
{
    ddp_log(door->stranger_told ? DDP_LOG_DEBUG : DDP_LOG_WARNING,
            "dropped a connection from %s, which is not a ddprun of this job: %s%s", stranger->from,
            why, door->stranger_told ? "" : " (further ones are not reported)");
    door->stranger_told = true;
    forget(door, stranger);
}

static void refuse(struct door *door, struct stranger *stranger, enum refusal_reason reason,
                   const char *format, ...) DDP_PRINTF(4, 5);
static void refuse(struct door *door, struct stranger *stranger, enum refusal_reason reason,
                   const char *format, ...)
{
    char why[256];
    va_list arguments;
    struct refusal refusal = {.reason = reason, .method = door->setup.proof->method};
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    snprintf(door->note, sizeof door->note, "%.64s came as node %u and was refused: %s",
             stranger->from, stranger->said.node.node, why);
    /* A node of another job that looks for its own node 0 says so itself. */
    const bool told = reason == REFUSED_JOB || door->notes++ >= MAX_NOTES;
    ddp_log(told ? DDP_LOG_DEBUG : DDP_LOG_WARNING, "%s", door->note);
    connection_put(&stranger->connection, FRAME_REFUSED, &refusal, sizeof refusal);
    forget(door, stranger);
}

/* A job that runs goes on, but nobody comes any more. */
static void no_room(struct door *door, const char *why)
{
    door_end_job(door, DDP_ERR_SYSTEM, "node 0 (%s) cannot take connections: %s", door->setup.host,
                 why);
    if (!door->link->door)
        return;
    ddp_log(DDP_LOG_ERROR, "%s; no further nodes can come", door->error);
    close(door->listener);
    door->listener = -1;
}

static void take_stranger(struct door *door)
{
    struct address from = {.length = sizeof from.socket};
    struct stranger *stranger, **end = &door->first;
    int fd = accept4(door->listener, (struct sockaddr *)&from.socket, &from.length, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        if (door->first)
            drop(door, door->first, "room is needed for others");
        else
            no_room(door, strerror(errno));
    }
    if (fd < 0)
        return;
    if (door->strangers >= DOOR_STRANGERS + door->link->count)
        drop(door, door->first, "room is needed for others");
    stranger = calloc(1, sizeof *stranger);
    if (!stranger) {
        close(fd);
        return;
    }
    address_host(&from, stranger->from);
    connection_open(&stranger->connection, fd, PHASE_HELLO);
    stranger->since_ns = ddp_clock_ns();
    while (*end)
        end = &(*end)->next;
    *end = stranger;
    door->strangers++;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stranger};
    if (epoll_ctl(door->link->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        forget(door, stranger);
}

void door_tick(struct door *door)
{
    const int64_t before_ns = ddp_clock_ns() - STRANGER_SECONDS * INT64_C(1000000000);
    while (!door->over && door->first && door->first->since_ns < before_ns)
        if (door->first->connection.phase == PHASE_JOINED) /* it was told why it cannot join */
            forget(door, door->first);
        else
            drop(door, door->first, "it has not said who it is");
}

static void heard_hello(struct door *door, struct stranger *stranger)
{
    char version[128];
    struct said *said = &stranger->said;
    const enum proof_method method = door->setup.proof->method;
    if (hello_make(&said->node0, &door->setup) != DDP_OK ||
        !connection_put(&stranger->connection, FRAME_HELLO, &said->node0, sizeof said->node0)) {
        forget(door, stranger);
    } else if (said->node.protocol != FRAME_PROTOCOL) {
        hello_show_version(&said->node, version, sizeof version);
        refuse(door, stranger, REFUSED_PROTOCOL, "it runs %s", version);
    } else if (said->node.job != said->node0.job) {
        refuse(door, stranger, REFUSED_JOB, "it belongs to another job");
    } else if (said->node.method != method) {
        refuse(door, stranger, REFUSED_METHOD, "it has %s, node 0 has %s",
               proof_method_name(said->node.method), proof_method_name(method));
    } else {
        stranger->connection.phase = PHASE_PROOF;
    }
}

static void heard_proof(struct door *door, struct stranger *stranger, const struct frame *frame)
{
    char why[PROOF_WHY];
    const struct proof *proof = door->setup.proof;
    struct said *said = &stranger->said;
    struct connection *connection = &stranger->connection;
    if (!hello_check_proof(proof, said, false, frame, why)) {
        refuse(door, stranger, REFUSED_PROOF, "%s", why);
    } else if (hello_send_proof(connection, proof, said, true) != DDP_OK) {
        forget(door, stranger);
    } else {
        hello_seal(connection, proof, said, true);
        connection->phase = PHASE_JOIN;
    }
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* What two nodes run, from the first word that differs. */
static void show_difference(const char *there, const char *here, char *out, size_t size)
{
    size_t same = 0, word = 0;
    for (; there[same] && there[same] == here[same]; same++)
        if (there[same] == ' ')
            word = same + 1;
    snprintf(out, size, "%.128s, where node 0 runs: %.128s", there + word, here + word);
}

/* Of the nodes that are there. */
static int count_workers(const struct link *link)
{
    int workers = 0;
    for (int i = 0; i < link->room; i++)
        if (i == link->node || link->peers[i].connection.fd >= 0)
            workers += link->peers[i].nproc;
    return workers;
}

/* Is the node as it should be? Otherwise `text` says what is wrong. It has proved that it belongs
 * to the job. */
static bool fits(const struct door *door, const struct hello *hello, const struct join *join,
                 char text[LINK_ERROR_BYTES])
{
    const struct link_setup *setup = &door->setup;
    const bool elastic = link_is_elastic(setup);
    const struct peer *peer = &door->link->peers[hello->node];
    char difference[320];
    const size_t size = LINK_ERROR_BYTES;
    if (join->least_nodes != (uint32_t)setup->least_nodes)
        snprintf(text, size,
                 "node %u (%s) was told of at least %u nodes, node 0 (%s) of %d: give the same "
                 "--nnodes to all",
                 hello->node, join->host, join->least_nodes, setup->host, setup->least_nodes);
    else if (hello->node_count != (uint32_t)setup->node_count)
        snprintf(text, size,
                 "node %u (%s) was told of %u nodes, node 0 (%s) of %d: give the same --nnodes to "
                 "all",
                 hello->node, join->host, hello->node_count, setup->host, setup->node_count);
    else if (strcmp(join->version, ddp_version()) != 0)
        snprintf(text, size,
                 "node %u (%s) runs ddprun %s, node 0 (%s) ddprun %s: install one version on all",
                 hello->node, join->host, join->version, setup->host, ddp_version());
    else if (hello->node == 0)
        snprintf(text, size,
                 "two ddpruns are node 0, on %s and on %s: give each its own --node-rank",
                 setup->host, join->host);
    else if (!elastic && peer->connection.fd >= 0)
        snprintf(text, size,
                 "two ddpruns are node %u, on %s and on %s: give each its own --node-rank",
                 hello->node, peer->name, join->host);
    else if (count_workers(door->link) + (int)join->nproc > DDP_BOARD_MAX_WORLD)
        snprintf(text, size,
                 "with the %u workers of node %u (%s) the nodes have %d: a job has at most %d",
                 join->nproc, hello->node, join->host, count_workers(door->link) + (int)join->nproc,
                 DDP_BOARD_MAX_WORLD);
    else if (join->max_restarts != (uint32_t)setup->max_restarts)
        snprintf(text, size,
                 "node %u (%s) has --max-restarts %u, node 0 (%s) %" PRId64 ": give the same to "
                 "all",
                 hello->node, join->host, join->max_restarts, setup->host, setup->max_restarts);
    else if (elastic && join->command_hash != ddp_hash(setup->command, strlen(setup->command))) {
        show_difference(join->command, setup->command, difference, sizeof difference);
        snprintf(text, size, "node %u (%s) runs: %s; give the same program and options to all",
                 hello->node, join->host, difference);
    } else {
        return true;
    }
    return false;
}

/* What has come of a node that waits: signs of life only. */
void door_take_pings(struct door *door, struct peer *peer)
{
    struct frame frame;
    enum frame_result result;
    while ((result = connection_take(&peer->connection, &frame)) == FRAME_READY) {
        if (frame.kind == FRAME_GOODBYE && !door->over && !link_is_elastic(&door->setup)) {
            door->over = true; /* it was asked to stop */
            door->status = DDP_ERR_PREEMPTED;
        }
        if (frame.kind != FRAME_PING || !frame_read(&frame, &door->link->data))
            break;
        peer->status = door->link->data.status;
    }
    if (result != FRAME_NONE)
        peer_lose(door->link, peer, result == FRAME_BAD ? LINK_DAMAGED : "it has left");
}

static void refuse_job(struct door *door, struct connection *connection, uint32_t reason,
                       const char *text)
{
    struct refusal refusal = {.reason = reason};
    snprintf(refusal.text, sizeof refusal.text, "%s", text);
    connection_put(connection, FRAME_REFUSED, &refusal, sizeof refusal);
    door->told++;
}

void door_tell(struct door *door, struct connection *connection)
{
    char text[128];
    snprintf(text, sizeof text, "node 0 (%.64s) has given up", door->setup.host);
    if (door->status == DDP_ERR_PREEMPTED)
        refuse_job(door, connection, REFUSED_STOPPED, "");
    else
        refuse_job(door, connection, REFUSED_JOB_ENDS, door->error[0] ? door->error : text);
}

/* A node that does not fit ends a job of a fixed size. One that is elastic does without it. */
static void turn_away(struct door *door, struct stranger *stranger, const char *text)
{
    if (!link_is_elastic(&door->setup)) {
        door_end_job(door, DDP_ERR_MISMATCH, "%s", text);
        door->wrong = stranger;
        return;
    }
    snprintf(door->note, sizeof door->note, "%.470s", text);
    ddp_log(door->notes++ >= MAX_NOTES ? DDP_LOG_DEBUG : DDP_LOG_WARNING,
            "refused a node; the job does without it: %s", text);
    refuse_job(door, &stranger->connection, REFUSED_JOB_ENDS, text);
}

/* Where the node is to be: in an elastic job behind the members, as it wishes if that is free.
 * NULL: there is no room. */
static struct peer *find_place(const struct door *door, int wanted)
{
    struct link *link = door->link;
    if (!link_is_elastic(&door->setup))
        return &link->peers[wanted];
    int place =
        wanted >= link->count && link->peers[wanted].connection.fd < 0 ? wanted : link->count;
    while (place < link->room && link->peers[place].connection.fd >= 0)
        place++;
    return place < link->room ? &link->peers[place] : NULL;
}

/* Those that the job ends without stay strangers, and give signs of life until they hear it. */
static void heard_join(struct door *door, struct stranger *stranger, const struct join *join)
{
    char text[LINK_ERROR_BYTES];
    stranger->connection.phase = PHASE_JOINED;
    if (door->over) {
        door_tell(door, &stranger->connection);
        return;
    }
    if (!fits(door, &stranger->said.node, join, text)) {
        turn_away(door, stranger, text);
        return;
    }
    struct link *link = door->link;
    struct peer *peer = find_place(door, (int)stranger->said.node.node);
    if (!peer) {
        drop(door, stranger, "as many nodes wait as there is room for");
        return;
    }
    peer_set_name(peer, join->host[0] ? join->host : stranger->from);
    peer->nproc = (int)join->nproc;
    peer_set_contact(peer, join->contact);
    peer->epoch = join->epoch;
    peer->ended = false;
    epoll_ctl(link->epoll, EPOLL_CTL_DEL, stranger->connection.fd, NULL);
    peer->connection = stranger->connection;
    peer->since_ns = ddp_clock_ns();
    stranger->connection = (struct connection){.fd = -1};
    forget(door, stranger);
    if (peer_watch(link, peer) != DDP_OK)
        return;
    door->arrived++;
    door->arrival_ns = ddp_clock_ns();
    peer_ping(link, peer);
    if (link->meeting.round.worker_port > 0) /* members have been formed */
        peer_welcome(link, peer);
    door_take_pings(door, peer); /* that have come with this */
}

static void hear_stranger(struct door *door, struct stranger *stranger)
{
    struct frame frame;
    union frame_data data;
    const enum connection_result received = connection_receive(&stranger->connection);
    if (received == CONNECTION_NOTHING)
        return;
    if (received != CONNECTION_BYTES) { /* a port scan, or the node will try again */
        forget(door, stranger);
        return;
    }
    const enum frame_result result = connection_take(&stranger->connection, &frame);
    if (result == FRAME_NONE)
        return;
    const uint32_t kind = result == FRAME_READY && frame_read(&frame, &data) ? frame.kind : 0;
    if (kind == FRAME_HELLO) {
        stranger->said.node = data.hello;
        heard_hello(door, stranger);
    } else if (kind == FRAME_PROOF) {
        heard_proof(door, stranger, &frame);
    } else if (kind == FRAME_JOIN) {
        heard_join(door, stranger, &data.join);
    } else if (kind != FRAME_PING) {
        drop(door, stranger, "it does not speak ddprun's language");
    }
}

void door_event(struct door *door, void *who)
{
    if (who == door)
        take_stranger(door);
    else
        hear_stranger(door, who);
}

void door_close(struct door *door)
{
    while (door->first)
        forget(door, door->first);
    if (door->listener >= 0)
        close(door->listener);
    door->listener = -1;
}

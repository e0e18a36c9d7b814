/* SPDX-License-Identifier: MIT
 *
 * Node 0's side of joining: who comes, and what is wrong with whom. Whoever connects is a stranger
 * until he has proved that he belongs to the job: of a stranger a few fixed bytes are read, he has
 * a few seconds, and nothing that he does ends the job or holds others up. */
#include "config.h"

#include "launcher/link/hello.h"
#include "launcher/link/listen.h"
#include "launcher/link/peers.h"
#include "launcher/link/state.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/system/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGER_SECONDS 5    /* for all that a stranger has to say */
#define MORE_STRANGERS   64   /* at once, beside one for each node */
#define MAX_NOTES        16   /* refusals that are logged */
#define LINGER_MS        3000 /* for nodes that come when the job has failed */
#define TELL_MS          5000 /* until the user hears whom we wait for */

struct stranger {
    struct connection connection;
    struct said said;
    char from[LINK_NAME_BYTES];
    int64_t since_ns;
    struct stranger *next;
};

struct joining {
    struct link *link;
    const struct link_setup *setup;
    struct address address;
    int listener;
    int arrived; /* other nodes */
    int64_t deadline_ns, tell_ns;
    struct stranger *first; /* the oldest */
    int strangers;
    bool stranger_told;
    int notes;
    char note[480]; /* the last refusal, for the final error */
    bool over;
    enum ddp_status interrupt; /* why the owner wants to stop; DDP_OK: it does not */
    int told;                  /* nodes that know why the job ends */
    struct stranger *wrong;    /* the node because of which it ends; not yet told */
    enum ddp_status status;
    char error[LINK_ERROR_BYTES]; /* that all nodes print; "" if there is none */
};

/* The job ends. The first error stays. */
static void end_job(struct joining *j, enum ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);
static void end_job(struct joining *j, enum ddp_status status, const char *format, ...)
{
    va_list arguments;
    if (j->over)
        return;
    j->over = true;
    j->status = status;
    va_start(arguments, format);
    vsnprintf(j->error, sizeof j->error, format, arguments);
    va_end(arguments);
}

/* --- before anybody comes --------------------------------------------------------------------- */

/* What PMIx tells the others. */
static enum ddp_status publish(struct joining *j)
{
    const struct link_setup *setup = j->setup;
    struct link_contact contact = {.port = address_port(&j->address)};
    snprintf(contact.address, sizeof contact.address, "%s", j->link->meeting.address);
    enum ddp_status status = proof_random(contact.key, sizeof contact.key);
    if (status == DDP_OK && setup->proof->method == PROOF_PMIX)
        status = proof_take_key(setup->proof, contact.key, sizeof contact.key);
    if (status == DDP_OK)
        status = setup->exchange(setup->exchange_owner, &contact);
    explicit_bzero(contact.key, sizeof contact.key);
    return status;
}

/* --- strangers -------------------------------------------------------------------------------- */

static void forget(struct joining *j, struct stranger *stranger)
{
    struct stranger **at = &j->first;
    while (*at != stranger)
        at = &(*at)->next;
    *at = stranger->next;
    j->strangers--;
    if (j->wrong == stranger)
        j->wrong = NULL;
    connection_close(&stranger->connection);
    free(stranger);
}

static void drop(struct joining *j, struct stranger *stranger, const char *why)
{
    ddp_log(j->stranger_told ? DDP_LOG_DEBUG : DDP_LOG_WARNING,
            "dropped a connection from %s, which is not a ddprun of this job: %s%s", stranger->from,
            why, j->stranger_told ? "" : " (further ones are not reported)");
    j->stranger_told = true;
    forget(j, stranger);
}

static void refuse(struct joining *j, struct stranger *stranger, enum refusal_reason reason,
                   const char *format, ...) DDP_PRINTF(4, 5);
static void refuse(struct joining *j, struct stranger *stranger, enum refusal_reason reason,
                   const char *format, ...)
{
    char why[256];
    va_list arguments;
    struct refusal refusal = {.reason = reason, .method = j->setup->proof->method};
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    snprintf(j->note, sizeof j->note, "%.64s came as node %u and was refused: %s", stranger->from,
             stranger->said.node.node, why);
    /* A node of another job that looks for its own node 0 says so itself. */
    const bool told = reason == REFUSED_JOB || j->notes++ >= MAX_NOTES;
    ddp_log(told ? DDP_LOG_DEBUG : DDP_LOG_WARNING, "%s", j->note);
    connection_put(&stranger->connection, FRAME_REFUSED, &refusal, sizeof refusal);
    forget(j, stranger);
}

static void take_stranger(struct joining *j)
{
    struct address from = {.length = sizeof from.socket};
    struct stranger *stranger, **end = &j->first;
    int fd = accept4(j->listener, (struct sockaddr *)&from.socket, &from.length, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        if (j->first)
            drop(j, j->first, "room is needed for others");
        else
            end_job(j, DDP_ERR_SYSTEM, "node 0 (%s) cannot take connections: %s", j->setup->host,
                    strerror(errno));
    }
    if (fd < 0)
        return;
    if (j->strangers >= MORE_STRANGERS + j->link->count)
        drop(j, j->first, "room is needed for others");
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
    j->strangers++;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stranger};
    if (epoll_ctl(j->link->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        forget(j, stranger);
}

static void drop_old_strangers(struct joining *j)
{
    const int64_t before_ns = ddp_clock_ns() - STRANGER_SECONDS * INT64_C(1000000000);
    while (!j->over && j->first && j->first->since_ns < before_ns)
        drop(j, j->first, "it has not said who it is");
}

static void heard_hello(struct joining *j, struct stranger *stranger)
{
    char version[128];
    struct said *said = &stranger->said;
    const enum proof_method method = j->setup->proof->method;
    if (hello_make(&said->node0, j->setup) != DDP_OK ||
        !connection_put(&stranger->connection, FRAME_HELLO, &said->node0, sizeof said->node0)) {
        forget(j, stranger);
    } else if (said->node.protocol != FRAME_PROTOCOL) {
        hello_show_version(&said->node, version, sizeof version);
        refuse(j, stranger, REFUSED_PROTOCOL, "it runs %s", version);
    } else if (said->node.job != said->node0.job) {
        refuse(j, stranger, REFUSED_JOB, "it belongs to another job");
    } else if (said->node.method != method) {
        refuse(j, stranger, REFUSED_METHOD, "it has %s, node 0 has %s",
               proof_method_name(said->node.method), proof_method_name(method));
    } else {
        stranger->connection.phase = PHASE_PROOF;
    }
}

static void heard_proof(struct joining *j, struct stranger *stranger, const struct frame *frame)
{
    char why[PROOF_WHY];
    const struct proof *proof = j->setup->proof;
    struct said *said = &stranger->said;
    struct connection *connection = &stranger->connection;
    if (!hello_check_proof(proof, said, false, frame, why)) {
        refuse(j, stranger, REFUSED_PROOF, "%s", why);
    } else if (hello_send_proof(connection, proof, said, true) != DDP_OK) {
        forget(j, stranger);
    } else {
        hello_seal(connection, proof, said, true);
        connection->phase = PHASE_JOIN;
    }
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* Is the node as it should be? Otherwise the job ends: it has proved that it belongs to it. */
static bool check_join(struct joining *j, const struct hello *hello, const struct join *join)
{
    const struct link_setup *setup = j->setup;
    const struct peer *peer;
    if (hello->node_count != (uint32_t)setup->node_count)
        end_job(j, DDP_ERR_MISMATCH,
                "node %u (%s) was told of %u nodes, node 0 (%s) of %d: give the same --nnodes to "
                "all",
                hello->node, join->host, hello->node_count, setup->host, setup->node_count);
    else if (strcmp(join->version, ddp_version()) != 0)
        end_job(j, DDP_ERR_MISMATCH,
                "node %u (%s) runs ddprun %s, node 0 (%s) ddprun %s: install one version on all",
                hello->node, join->host, join->version, setup->host, ddp_version());
    else if (hello->node == 0)
        end_job(j, DDP_ERR_MISMATCH,
                "two ddpruns are node 0, on %s and on %s: give each its own --node-rank",
                setup->host, join->host);
    else if (peer = &j->link->peers[hello->node], peer->connection.fd >= 0)
        end_job(j, DDP_ERR_MISMATCH,
                "two ddpruns are node %u, on %s and on %s: give each its own --node-rank",
                hello->node, peer->name, join->host);
    else if (join->nproc != (uint32_t)setup->nproc)
        end_job(j, DDP_ERR_MISMATCH,
                "node %u (%s) has %u workers, node 0 (%s) has %d: give the same --nproc to all",
                hello->node, join->host, join->nproc, setup->host, setup->nproc);
    else if (join->max_restarts != (uint32_t)setup->max_restarts)
        end_job(j, DDP_ERR_MISMATCH,
                "node %u (%s) has --max-restarts %u, node 0 (%s) %" PRId64 ": give the same to all",
                hello->node, join->host, join->max_restarts, setup->host, setup->max_restarts);
    return !j->over;
}

/* What has come of a node that waits: signs of life only. */
static void take_pings(struct joining *j, struct peer *peer)
{
    struct frame frame;
    enum frame_result result;
    while ((result = connection_take(&peer->connection, &frame)) == FRAME_READY) {
        if (frame.kind == FRAME_GOODBYE && !j->over) {
            j->over = true; /* it was asked to stop */
            j->status = DDP_ERR_PREEMPTED;
        }
        if (frame.kind != FRAME_PING || !frame_read(&frame, &j->link->data))
            break;
        peer->status = j->link->data.status;
    }
    if (result != FRAME_NONE)
        peer_lose(j->link, peer, result == FRAME_BAD ? LINK_DAMAGED : "it has left");
}

/* Tells a node why the job ends. */
static void tell(struct joining *j, struct connection *connection)
{
    struct refusal refusal = {.reason = REFUSED_JOB_ENDS};
    if (j->status == DDP_ERR_PREEMPTED)
        refusal.reason = REFUSED_STOPPED;
    else if (j->error[0])
        snprintf(refusal.text, sizeof refusal.text, "%s", j->error);
    else
        snprintf(refusal.text, sizeof refusal.text, "node 0 (%.64s) has given up", j->setup->host);
    connection_put(connection, FRAME_REFUSED, &refusal, sizeof refusal);
    j->told++;
}

/* Those that the job ends without stay strangers, and give signs of life until they hear it. */
static void heard_join(struct joining *j, struct stranger *stranger, const struct join *join)
{
    stranger->connection.phase = PHASE_JOINED;
    if (j->over) {
        tell(j, &stranger->connection);
        return;
    }
    if (!check_join(j, &stranger->said.node, join)) {
        j->wrong = stranger;
        return;
    }
    struct link *link = j->link;
    struct peer *peer = &link->peers[stranger->said.node.node];
    peer_set_name(peer, join->host[0] ? join->host : stranger->from);
    epoll_ctl(link->epoll, EPOLL_CTL_DEL, stranger->connection.fd, NULL);
    peer->connection = stranger->connection;
    stranger->connection = (struct connection){.fd = -1};
    forget(j, stranger);
    if (peer_watch(link, peer) != DDP_OK)
        return;
    j->arrived++;
    peer_ping(link, peer);
    take_pings(j, peer); /* that have come with this */
}

static void hear_stranger(struct joining *j, struct stranger *stranger)
{
    struct frame frame;
    union frame_data data;
    const enum connection_result received = connection_receive(&stranger->connection);
    if (received == CONNECTION_NOTHING)
        return;
    if (received != CONNECTION_BYTES) { /* a port scan, or the node will try again */
        forget(j, stranger);
        return;
    }
    const enum frame_result result = connection_take(&stranger->connection, &frame);
    if (result == FRAME_NONE)
        return;
    const uint32_t kind = result == FRAME_READY && frame_read(&frame, &data) ? frame.kind : 0;
    if (kind == FRAME_HELLO) {
        stranger->said.node = data.hello;
        heard_hello(j, stranger);
    } else if (kind == FRAME_PROOF) {
        heard_proof(j, stranger, &frame);
    } else if (kind == FRAME_JOIN) {
        heard_join(j, stranger, &data.join);
    } else if (kind != FRAME_PING) {
        drop(j, stranger, "it does not speak ddprun's language");
    }
}

/* A node that had come has gone again: it may come once more. */
static void note_losses(struct joining *j)
{
    for (int i = 1; i < j->link->count && j->link->lost_count > 0; i++) {
        struct peer *peer = &j->link->peers[i];
        if (!peer->lost)
            continue;
        snprintf(j->note, sizeof j->note, "node %d (%.128s) had come and is gone", i, peer->name);
        peer->lost = false;
        j->link->lost_count--;
        j->arrived--;
    }
}

/* --- the end of joining ----------------------------------------------------------------------- */

/* "node 2 of 4" or "nodes 1-2, 5 of 16". Returns how many. */
static int list_missing(const struct link *link, char *out, size_t size)
{
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
    list_missing(j->link, missing, sizeof missing);
    address_show(&j->address, here);
    ddp_log(DDP_LOG_INFO, "waiting for %s: node 0 listens on %s", missing, here);
}

static void time_is_over(struct joining *j)
{
    char missing[320], here[LINK_NAME_BYTES];
    const int count = list_missing(j->link, missing, sizeof missing);
    address_show(&j->address, here);
    end_job(j, DDP_ERR_TIMEOUT, "%s %s not come within %g s; node 0 listens on %s%s%s", missing,
            count == 1 ? "has" : "have", j->setup->node_timeout, here, j->note[0] ? "; " : "",
            !j->note[0] && address_is_loopback(&j->address)
                ? ", on this machine only: is --master-addr right?"
                : j->note);
}

static void welcome(struct joining *j)
{
    struct link *link = j->link;
    const struct welcome welcome = {.worker_port = (uint32_t)link->meeting.worker_port};
    for (int i = 1; i < link->count; i++) {
        char names[FRAME_NAMES_MAX];
        size_t used = 0;
        for (int k = 0; k < link->count; k++) {
            const size_t bytes = strlen(link->peers[k].name) + 1;
            if (used + bytes > sizeof names) {
                peer_put(link, &link->peers[i], FRAME_NAMES, names, used);
                used = 0;
            }
            memcpy(names + used, link->peers[k].name, bytes);
            used += bytes;
        }
        peer_put(link, &link->peers[i], FRAME_NAMES, names, used);
        peer_put(link, &link->peers[i], FRAME_WELCOME, &welcome, sizeof welcome);
        link->peers[i].connection.phase = PHASE_RUNNING;
    }
}

/* Closes all connections of nodes when they have taken what was sent. */
static void finish(struct joining *j)
{
    struct link *link = j->link;
    struct connection **all = calloc((size_t)(link->count + j->strangers), sizeof(*all));
    int count = 0;
    if (!all)
        return;
    for (int i = 1; i < link->count; i++)
        all[count++] = &link->peers[i].connection;
    for (struct stranger *s = j->first; s; s = s->next)
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
    if (who == j) {
        take_stranger(j);
    } else if (who == j->setup) {
        j->interrupt = link_interrupt(j->setup);
    } else if (who >= (void *)link->peers && who < (void *)(link->peers + link->count)) {
        if (peer_handle(link, who, event.events))
            take_pings(j, who);
    } else if (who) {
        hear_stranger(j, who);
    } else {
        peers_tick(link);
        drop_old_strangers(j);
    }
    note_losses(j);
}

static void wait_for_nodes(struct joining *j)
{
    while (!j->over && j->interrupt == DDP_OK && j->arrived < j->link->count - 1) {
        if (ddp_deadline_passed(j->deadline_ns))
            time_is_over(j);
        else if (ddp_deadline_passed(j->tell_ns))
            tell_waiting(j);
        else
            handle_event(j);
    }
    if (!j->over)
        j->status = j->interrupt;
}

/* Those who have come hear at once why the job ends, those who are on their way when they come. */
static void end_joining(struct joining *j)
{
    const int64_t linger_ns = ddp_deadline_ns(LINGER_MS);
    for (int i = 1; i < j->link->count; i++)
        if (j->link->peers[i].connection.fd >= 0)
            tell(j, &j->link->peers[i].connection);
    if (j->wrong)
        tell(j, &j->wrong->connection);
    while (j->status == DDP_ERR_MISMATCH && j->interrupt == DDP_OK &&
           j->told < j->link->count - 1 && !ddp_deadline_passed(linger_ns))
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
    descriptors_raise(link->count * 2 + MORE_STRANGERS + 256); /* as many strangers as nodes */
    enum ddp_status status = link_listen(j->setup, j->deadline_ns, &j->listener, &j->address);
    if (status != DDP_OK)
        return status;
    address_host(&j->address, link->meeting.address);
    address_interface(&j->address, link->meeting.interface, sizeof link->meeting.interface);
    link->meeting.worker_port = j->setup->worker_port;
    if (j->setup->exchange)
        status = publish(j);
    if (status == DDP_OK)
        status = watch(j, j->listener, j);
    if (status == DDP_OK)
        status = watch(j, j->setup->interrupt_fd, (void *)(uintptr_t)j->setup);
    if (status == DDP_OK && j->setup->proof->method == PROOF_NONE)
        ddp_log(DDP_LOG_WARNING, "--insecure-link: whoever reaches port %d of %s can join this job",
                address_port(&j->address), link->meeting.address);
    return status;
}

enum ddp_status link_node0_join(struct link *link, const struct link_setup *setup)
{
    struct joining j = {
        .link = link,
        .setup = setup,
        .listener = -1,
        .deadline_ns = ddp_clock_ns() + (int64_t)(setup->node_timeout * 1e9),
        .tell_ns = ddp_deadline_ns(TELL_MS),
    };
    j.status = prepare(&j);
    if (j.status == DDP_OK) {
        wait_for_nodes(&j);
        if (j.status == DDP_OK)
            welcome(&j);
        else
            end_joining(&j);
    }
    if (j.error[0])
        ddp_fail(j.status, "%s", j.error);
    while (j.first)
        forget(&j, j.first);
    if (setup->interrupt_fd >= 0)
        epoll_ctl(link->epoll, EPOLL_CTL_DEL, setup->interrupt_fd, NULL);
    if (j.listener >= 0)
        close(j.listener);
    return j.status;
}

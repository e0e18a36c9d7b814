/* SPDX-License-Identifier: MIT
 *
 * The process's wire, messages of calls and waiting for them; see nodes.h. */
#include "config.h"

#include "comm/nodes.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/plugin.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETUP_MS    600000 /* for all machines to come up */
#define TURNS       200    /* that only yield, before a wait sleeps */
#define NAP_MS      20     /* how late an abort or a deadline can be noticed */
#define GRACE_MS    700    /* for the launcher to say why a rank is lost, or that one has failed */
#define TELL_MS     1000   /* for the reason of a failure to leave, or to come */
#define TEXT_INDEX  0xffffffu
#define WIRE_PLUGIN "ucx"

/* --- the process's wire --- */

/* Copying sends: with others UCX 1.13 crashed when a peer died, and its rendezvous lets large
 * messages in both directions wait for each other. Larger segments make up for the copy. Ranks of
 * one machine use no wire, so memory shared by machines is not a machine's (containers). */
static const char *const options[][2] = {
    {"UCX_RNDV_THRESH", "inf"},    {"UCX_ZCOPY_THRESH", "inf"}, {"UCX_TCP_TX_SEG_SIZE", "64K"},
    {"UCX_HANDLE_ERRORS", "none"}, {"UCX_TLS", "^sm"},          {"UCX_LOG_FILE", "stderr"},
    {"UCX_DEBUG_SIGNO", "0"}, /* else SIGHUP does not end a process, but makes UCX talk */
};

static struct {
    pthread_mutex_t lock;
    const struct ddp_wire_ops *ops;
    struct ddp_wire *wire; /* NULL: not open */
    int rank, size;
    int users;
    pid_t pid; /* whose connections they are: not a child's */
    size_t bytes;
    unsigned char address[DDP_ADDRESS_MAX_BYTES];
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void close_wire(void)
{
    if (process.wire && process.users == 0 && process.pid == getpid()) {
        process.ops->close(process.wire);
        process.wire = NULL;
    }
}

/* A rank that waits for others moves on its messages that ranks of other machines wait for: those
 * need not be in the same call, and UCX's connections take answers that no call knows of. */
static void move_on(void)
{
    if (pthread_mutex_trylock(&process.lock) != 0) /* it is opened or closed */
        return;
    if (process.wire && process.pid == getpid())
        process.ops->progress(process.wire);
    pthread_mutex_unlock(&process.lock);
}

/* It stays open to the process's end: a rank writes its address to the board once. */
static enum ddp_status open_wire(const struct ddp_comm_place *place)
{
    const struct ddp_plugin *plugin;
    const int rank = ddp_job_rank(place->job), size = ddp_job_world_size(place->job);
    static bool closes_at_exit;
    if (process.rank != rank || process.size != size) /* of another job */
        close_wire();
    if (process.wire)
        return DDP_OK;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        setenv(options[i][0], options[i][1], 0); /* which UCX reads when it is loaded */
    enum ddp_status status = ddp_plugin_load(&plugin, WIRE_PLUGIN, true);
    if (status != DDP_OK)
        return status;
    if (!plugin->wire)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "the plugin %s has no wire", plugin->name);
    process.ops = plugin->wire;
    process.rank = rank;
    process.size = size;
    process.pid = getpid();
    if (!closes_at_exit) /* after UCX is loaded, thus called before it goes */
        closes_at_exit = atexit(close_wire) == 0;
    ddp_job_set_turn(move_on);
    return process.ops->open(&process.wire, rank, size, process.address, &process.bytes);
}

enum ddp_status nodes_connect(struct nodes *nodes, int peer)
{
    const struct ddp_comm_place *place = nodes->place;
    unsigned char address[DDP_ADDRESS_MAX_BYTES];
    size_t bytes;
    enum ddp_status status = ddp_job_get_address(
        place->job, peer, address, &bytes, place->timeout_ms < 0 ? SETUP_MS : place->timeout_ms);
    if (status == DDP_OK && ddp_job_aborted(place->job)) /* perhaps because it is gone */
        status = DDP_ERR_ABORTED;
    return status == DDP_OK ? nodes->ops->connect(nodes->wire, peer, address, bytes) : status;
}

enum ddp_status nodes_wire_open(struct nodes *nodes)
{
    pthread_mutex_lock(&process.lock);
    enum ddp_status status = open_wire(nodes->place);
    if (status == DDP_OK) {
        nodes->ops = process.ops;
        nodes->wire = process.wire;
        process.users++;
    }
    pthread_mutex_unlock(&process.lock);
    if (status == DDP_OK)
        status = ddp_job_put_address(nodes->place->job, process.address, process.bytes);
    for (int p = 0; status == DDP_OK && p < nodes->peer_count; p++)
        status = nodes_connect(nodes, nodes_wire_peer(nodes, p));
    if (status != DDP_OK)
        nodes_wire_leave(nodes);
    return status;
}

void nodes_wire_leave(struct nodes *nodes)
{
    pthread_mutex_lock(&process.lock);
    if (nodes->wire)
        process.users--;
    nodes->wire = NULL;
    pthread_mutex_unlock(&process.lock);
}

/* --- messages --- */

/* A communicator's id slot is its alone. */
uint64_t nodes_key(const struct nodes *nodes, uint32_t number, uint32_t index)
{
    return (uint64_t)nodes->place->id_slot << 56 | (uint64_t)number << 24 | index;
}

void nodes_send(struct nodes *nodes, int peer, struct ddp_wire_op *op, uint32_t number,
                uint32_t index, const struct ddp_comm_call *call, const void *data, size_t bytes)
{
    op->head = (struct ddp_wire_head){.key = nodes_key(nodes, number, index)};
    ddp_comm_pack(call, op->head.words);
    nodes->ops->send(nodes->wire, nodes_wire_peer(nodes, peer), op, data, bytes);
}

void nodes_receive(struct nodes *nodes, int peer, struct ddp_wire_op *op, uint32_t number,
                   uint32_t index, void *buffer, size_t room)
{
    op->head = (struct ddp_wire_head){.key = nodes_key(nodes, number, index)};
    nodes->ops->receive(nodes->wire, nodes_wire_peer(nodes, peer), op, buffer, room);
}

/* Mostly the launcher knows more, and sets the abort word. */
enum ddp_status nodes_lost(const struct nodes *nodes, int rank)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int i = 0; i < GRACE_MS; i++) {
        if (ddp_job_aborted(nodes->place->job))
            return DDP_ERR_ABORTED;
        nanosleep(&nap, NULL);
    }
    return ddp_fail(DDP_ERR_ABORTED, "the connection to rank %d is lost", rank);
}

bool nodes_over(const struct nodes *nodes, const struct ddp_wire_op *ops, enum ddp_status *status)
{
    for (int p = 0; p < nodes->peer_count; p++) {
        const enum ddp_wire_state state = ddp_wire_state(&ops[p]);
        if (state == DDP_WIRE_OVER)
            continue;
        if (state == DDP_WIRE_LOST)
            *status = nodes_lost(nodes, nodes_wire_peer(nodes, p));
        return false;
    }
    return true;
}

int nodes_missing(const struct nodes *nodes, const struct ddp_wire_op *ops)
{
    for (int p = 0; p < nodes->peer_count; p++)
        if (ddp_wire_state(&ops[p]) == DDP_WIRE_GOING)
            return nodes_wire_peer(nodes, p);
    return nodes_wire_peer(nodes, 0);
}

/* --- failures --- */

void nodes_end_ops(struct nodes *nodes, struct ddp_wire_op *ops, int count, int timeout_ms)
{
    const int64_t deadline = ddp_deadline_ns(timeout_ms);
    for (int i = 0; i < count; i++)
        while (ddp_wire_state(&ops[i]) == DDP_WIRE_GOING && !ddp_deadline_passed(deadline) &&
               !ddp_job_aborted(nodes->place->job))
            if (!nodes->ops->progress(nodes->wire))
                nodes->ops->wait(nodes->wire, 1);
    for (int i = 0; i < count; i++)
        nodes->ops->cancel(nodes->wire, &ops[i]);
}

static enum ddp_status failed_there(struct nodes *nodes, int rank, uint32_t number)
{
    char text[DDP_LEDGER_DIFFERENCE] = "";
    struct ddp_wire_op op = {0};
    op.head = (struct ddp_wire_head){.key = nodes_key(nodes, number, TEXT_INDEX)};
    nodes->ops->receive(nodes->wire, rank, &op, text, sizeof text - 1);
    nodes_end_ops(nodes, &op, 1, TELL_MS);
    return ddp_fail(DDP_ERR_MISMATCH, "%s",
                    text[0] ? text : "ranks of another machine call different collectives");
}

enum ddp_status nodes_check(struct nodes *nodes, const struct ddp_wire_op *op, uint32_t number,
                            const struct ddp_comm_call *call, size_t bytes)
{
    const struct ddp_comm_place *place = nodes->place;
    const int peer = (op->peer - place->first) / place->stride;
    uint64_t own[2];
    ddp_comm_pack(call, own);
    if (op->head.flags & NODES_FAILED)
        return failed_there(nodes, op->peer, number);
    if (own[0] != op->head.words[0] || own[1] != op->head.words[1])
        return ddp_comm_differ(place, number, own, peer, op->head.words);
    if (op->bytes != bytes)
        return ddp_fail(DDP_ERR_MISMATCH,
                        "collective %" PRIu32
                        ": rank %d sent %zu bytes, not %zu: the ranks run different "
                        "versions of libddp",
                        number, op->peer, op->bytes, bytes);
    return DDP_OK;
}

void nodes_tell_failure(struct nodes *nodes, uint32_t number, const struct ddp_comm_call *call)
{
    const char *text = nodes->shm.ledger.difference;
    struct ddp_wire_op *ops = ddp_array_alloc((size_t)nodes->peer_count * 2, sizeof *ops);
    for (int p = 0; ops && p < nodes->peer_count; p++) {
        struct ddp_wire_op *first = &ops[2 * p], *second = first + 1;
        first->head =
            (struct ddp_wire_head){.key = nodes_key(nodes, number, 0), .flags = NODES_FAILED};
        nodes->ops->send(nodes->wire, nodes_wire_peer(nodes, p), first, NULL, 0);
        nodes_send(nodes, p, second, number, TEXT_INDEX, call, text, strlen(text));
    }
    if (ops)
        nodes_end_ops(nodes, ops, nodes->peer_count * 2, TELL_MS);
    for (int i = 0; i < TELL_MS && !nodes->ops->flushed(nodes->wire); i++)
        if (!nodes->ops->progress(nodes->wire))
            nodes->ops->wait(nodes->wire, 1);
    free(ops);
}

/* --- waiting --- */

enum ddp_status nodes_nap(struct nodes *nodes, int *idle, bool here_too)
{
    if (ddp_job_aborted(nodes->place->job))
        return DDP_ERR_ABORTED;
    if (++*idle < TURNS)
        sched_yield();
    else
        nodes->ops->wait(nodes->wire, here_too ? 1 : NAP_MS);
    return DDP_OK;
}

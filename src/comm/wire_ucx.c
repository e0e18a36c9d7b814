/* SPDX-License-Identifier: MIT
 *
 * The plugin libddp-ucx.so: the wire of wire.h over UCX, whatever network there is. Messages are
 * UCX's active messages, of which a receive that fails leaves nothing behind. */
#include "config.h"

#include "comm/wire.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/plugin.h"
#include "core/thread.h"
#include "core/trace.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#define MESSAGE_ID 1   /* of our active messages */
#define CLOSE_MS   200 /* for connections to end */

/* A message that came before its receive. */
struct held {
    struct held *next;
    struct ddp_wire_head head;
    void *data;
    size_t bytes;
    enum { COPIED, KEPT, PROMISED } how; /* ours; UCX's; UCX fetches it when there is a buffer */
};

struct peer {
    ucp_ep_h endpoint; /* NULL: not connected */
    bool lost;
    struct ddp_wire_op *receives; /* in the order of their calls */
    struct held *held;            /* ... of their arrival */
    size_t address_bytes;
    unsigned char address[DDP_ADDRESS_MAX_BYTES];
};

struct ddp_wire {
    pthread_mutex_t lock; /* for all of UCX: its threads call nothing here */
    ucp_context_h context;
    ucp_worker_h worker;
    int ready_fd; /* becomes readable */
    int rank, size;
    void *flush; /* the one that is going on, or NULL */
    bool moved;  /* something has happened in a callback */
    struct peer **peers;
};

static void finish(struct ddp_wire_op *op, enum ddp_wire_state state)
{
    atomic_store_explicit(&op->state, (int)state, memory_order_release);
}

/* Threads that UCX starts must not take the program's signals. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

/* --- peers --- */

static void free_held(struct ddp_wire *wire, struct held *held)
{
    if (held->how == COPIED)
        free(held->data);
    else
        ucp_am_data_release(wire->worker, held->data);
    free(held);
}

/* What is going on with it will not end. Messages that it had sent before are there still. */
static void lose(struct peer *peer)
{
    peer->lost = true;
    while (peer->receives) {
        struct ddp_wire_op *op = peer->receives;
        peer->receives = op->next;
        finish(op, DDP_WIRE_LOST);
    }
}

static void endpoint_failed(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    struct ddp_wire *wire = arg;
    (void)status;
    wire->moved = true;
    for (int r = 0; r < wire->size; r++)
        if (wire->peers[r] && wire->peers[r]->endpoint == endpoint)
            lose(wire->peers[r]);
}

/* Moves UCX on until the request is over, for a moment at most. */
static void settle(struct ddp_wire *wire, void *request)
{
    struct timespec nap = {.tv_nsec = 1000000};
    if (!UCS_PTR_IS_PTR(request))
        return;
    for (int i = 0; i < CLOSE_MS && ucp_request_check_status(request) == UCS_INPROGRESS; i++)
        if (ucp_worker_progress(wire->worker) == 0)
            nanosleep(&nap, NULL);
    ucp_request_free(request);
}

/* All its sends and receives are over then. */
static void disconnect(struct ddp_wire *wire, struct peer *peer)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    lose(peer);
    while (peer->held) {
        struct held *held = peer->held;
        peer->held = held->next;
        free_held(wire, held);
    }
    if (peer->endpoint)
        settle(wire, ucp_ep_close_nbx(peer->endpoint, &force));
    peer->endpoint = NULL;
}

/* NULL: no memory. A peer may send before this rank has connected to it. */
static struct peer *peer_of(struct ddp_wire *wire, int rank)
{
    if (!wire->peers[rank])
        wire->peers[rank] = ddp_array_alloc(1, sizeof *wire->peers[rank]);
    return wire->peers[rank];
}

static enum ddp_status connect_peer(struct ddp_wire *wire, int rank, const void *address,
                                    size_t bytes)
{
    struct peer *peer = peer_of(wire, rank);
    if (!peer)
        return DDP_ERR_MEMORY;
    if (peer->endpoint && !peer->lost && peer->address_bytes == bytes &&
        memcmp(peer->address, address, bytes) == 0)
        return DDP_OK;
    if (peer->endpoint)
        disconnect(wire, peer);
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {endpoint_failed, wire},
    };
    ucs_status_t status = ucp_ep_create(wire->worker, &params, &peer->endpoint);
    if (status != UCS_OK) {
        peer->endpoint = NULL;
        return ddp_fail(DDP_ERR_SYSTEM,
                        "UCX finds no route from rank %d to rank %d: %s: see UCX_NET_DEVICES and "
                        "UCX_TLS",
                        wire->rank, rank, ucs_status_string(status));
    }
    memcpy(peer->address, address, bytes);
    peer->address_bytes = bytes;
    peer->lost = false;
    return DDP_OK;
}

static enum ddp_status wire_connect(struct ddp_wire *wire, int peer, const void *address,
                                    size_t bytes)
{
    sigset_t before;
    pthread_mutex_lock(&wire->lock);
    block_signals(&before);
    enum ddp_status status = connect_peer(wire, peer, address, bytes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&wire->lock);
    return status;
}

/* --- receiving --- */

static void fetched(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    (void)bytes;
    finish(arg, status == UCS_OK ? DDP_WIRE_OVER : DDP_WIRE_LOST);
    ucp_request_free(request);
}

/* Has UCX fetch what was only announced. */
static void fetch(struct ddp_wire *wire, struct ddp_wire_op *op, void *announced, size_t bytes)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.recv_am = fetched,
                                       .user_data = op};
    if (bytes > op->room) {
        ucp_am_data_release(wire->worker, announced);
        finish(op, DDP_WIRE_OVER);
        return;
    }
    void *request = ucp_am_recv_data_nbx(wire->worker, announced, op->buffer, bytes, &param);
    if (!UCS_PTR_IS_PTR(request))
        finish(op, request ? DDP_WIRE_LOST : DDP_WIRE_OVER);
}

static void take(struct ddp_wire_op *op, const struct ddp_wire_head *head, const void *data,
                 size_t bytes)
{
    const size_t fitting = bytes < op->room ? bytes : op->room;
    op->head = *head;
    op->bytes = bytes;
    if (data && fitting > 0)
        memcpy(op->buffer, data, fitting);
}

static bool hold(struct peer *peer, const struct held *message)
{
    struct held **end = &peer->held, *held = ddp_array_alloc(1, sizeof *held);
    if (!held)
        return false;
    *held = *message;
    while (*end)
        end = &(*end)->next;
    *end = held;
    return true;
}

static ucs_status_t arrived(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ddp_wire *wire = arg;
    struct ddp_wire_head head;
    const bool announced = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    if (header_bytes != sizeof head)
        return UCS_OK; /* no message of ours */
    memcpy(&head, header, sizeof head);
    struct peer *peer = head.from < (uint32_t)wire->size ? peer_of(wire, (int)head.from) : NULL;
    wire->moved = true;
    if (!peer)
        return UCS_OK;
    struct ddp_wire_op **link = &peer->receives, *op;
    while ((op = *link) && op->head.key != head.key)
        link = &op->next;
    if (op) {
        *link = op->next;
        take(op, &head, announced ? NULL : data, bytes);
        if (announced)
            fetch(wire, op, data, bytes);
        else
            finish(op, DDP_WIRE_OVER);
        return announced ? UCS_INPROGRESS : UCS_OK;
    }
    struct held held = {.head = head, .data = data, .bytes = bytes, .how = PROMISED};
    if (!announced)
        held.how = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA ? KEPT : COPIED;
    if (held.how == COPIED) {
        held.data = malloc(bytes + 1);
        if (held.data && bytes > 0)
            memcpy(held.data, data, bytes);
    }
    if (!held.data || !hold(peer, &held)) { /* the message is gone, and so is the peer for us */
        if (held.how == COPIED)
            free(held.data);
        lose(peer);
        return UCS_OK;
    }
    return held.how == COPIED ? UCS_OK : UCS_INPROGRESS;
}

/* A message that has come already; false: none has. */
static bool receive_held(struct ddp_wire *wire, struct peer *peer, struct ddp_wire_op *op)
{
    struct held **link = &peer->held, *held;
    while ((held = *link) && held->head.key != op->head.key)
        link = &held->next;
    if (!held)
        return false;
    *link = held->next;
    take(op, &held->head, held->how == PROMISED ? NULL : held->data, held->bytes);
    if (held->how == PROMISED) {
        fetch(wire, op, held->data, held->bytes);
        free(held);
    } else {
        finish(op, DDP_WIRE_OVER);
        free_held(wire, held);
    }
    return true;
}

static void wire_receive(struct ddp_wire *wire, int rank, struct ddp_wire_op *op, void *buffer,
                         size_t bytes)
{
    op->buffer = buffer;
    op->room = bytes;
    op->peer = rank;
    op->next = NULL;
    finish(op, DDP_WIRE_GOING);
    pthread_mutex_lock(&wire->lock);
    struct peer *peer = peer_of(wire, rank);
    const bool came = peer && receive_held(wire, peer, op); /* UCX may still fetch it */
    if (!peer || (!came && peer->lost)) {
        finish(op, DDP_WIRE_LOST);
    } else if (!came) {
        struct ddp_wire_op **end = &peer->receives;
        while (*end)
            end = &(*end)->next;
        *end = op;
    }
    pthread_mutex_unlock(&wire->lock);
}

static void wire_cancel(struct ddp_wire *wire, struct ddp_wire_op *op)
{
    pthread_mutex_lock(&wire->lock);
    struct peer *peer = wire->peers[op->peer];
    if (ddp_wire_state(op) == DDP_WIRE_GOING) {
        struct ddp_wire_op **link = &peer->receives;
        while (*link && *link != op)
            link = &(*link)->next;
        if (*link)
            *link = op->next;
        else
            disconnect(wire, peer); /* a message on its way would use the buffer */
        finish(op, DDP_WIRE_LOST);
    }
    pthread_mutex_unlock(&wire->lock);
}

/* --- sending --- */

static void sent(void *request, ucs_status_t status, void *arg)
{
    finish(arg, status == UCS_OK ? DDP_WIRE_OVER : DDP_WIRE_LOST);
    ucp_request_free(request);
}

static void wire_send(struct ddp_wire *wire, int rank, struct ddp_wire_op *op, const void *data,
                      size_t bytes)
{
    struct peer *peer = wire->peers[rank];
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = sent,
                                       .user_data = op};
    op->peer = rank;
    op->head.from = (uint32_t)wire->rank;
    finish(op, DDP_WIRE_GOING);
    pthread_mutex_lock(&wire->lock);
    if (!peer || !peer->endpoint || peer->lost) {
        finish(op, DDP_WIRE_LOST);
    } else {
        void *request = ucp_am_send_nbx(peer->endpoint, MESSAGE_ID, &op->head, sizeof op->head,
                                        data, bytes, &param);
        if (!UCS_PTR_IS_PTR(request))
            finish(op, request ? DDP_WIRE_LOST : DDP_WIRE_OVER);
    }
    pthread_mutex_unlock(&wire->lock);
}

/* A message that is sent may still lie in a buffer of UCX. */
static bool wire_flushed(struct ddp_wire *wire)
{
    const ucp_request_param_t param = {0};
    pthread_mutex_lock(&wire->lock);
    if (!wire->flush)
        wire->flush = ucp_worker_flush_nbx(wire->worker, &param);
    bool over = !UCS_PTR_IS_PTR(wire->flush);
    if (!over && ucp_request_check_status(wire->flush) != UCS_INPROGRESS) {
        ucp_request_free(wire->flush);
        over = true;
    }
    if (over)
        wire->flush = NULL;
    pthread_mutex_unlock(&wire->lock);
    return over;
}

/* --- moving on --- */

static bool wire_progress(struct ddp_wire *wire)
{
    pthread_mutex_lock(&wire->lock);
    wire->moved = false;
    const bool moved = ucp_worker_progress(wire->worker) > 0 || wire->moved;
    pthread_mutex_unlock(&wire->lock);
    return moved;
}

static void wire_wait(struct ddp_wire *wire, int timeout_ms)
{
    struct pollfd ready = {.fd = wire->ready_fd, .events = POLLIN};
    pthread_mutex_lock(&wire->lock);
    const ucs_status_t armed = ucp_worker_arm(wire->worker); /* UCS_ERR_BUSY: there is something */
    pthread_mutex_unlock(&wire->lock);
    if (armed == UCS_OK)
        poll(&ready, 1, timeout_ms);
}

/* --- the process's end --- */

static void wire_close(struct ddp_wire *wire)
{
    for (int r = 0; wire->peers && r < wire->size; r++) {
        if (wire->peers[r])
            disconnect(wire, wire->peers[r]);
        free(wire->peers[r]);
    }
    if (wire->worker) {
        settle(wire, wire->flush);
        ucp_worker_destroy(wire->worker);
    }
    if (wire->context)
        ucp_cleanup(wire->context);
    free(wire->peers);
    pthread_mutex_destroy(&wire->lock);
    free(wire);
}

static void *end_at_once(void *arg)
{
    return arg;
}

/* UCX needs a thread, and aborts the process where it gets none. */
static enum ddp_status try_thread(void)
{
    pthread_t thread;
    const int error = ddp_thread_create(&thread, end_at_once, NULL);
    if (error != 0)
        return ddp_thread_failed(error, "a thread of UCX");
    pthread_join(thread, NULL);
    return DDP_OK;
}

static ucs_status_t open_worker(struct ddp_wire *wire)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = MESSAGE_ID,
        .cb = arrived,
        .arg = wire,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
    };
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    status = ucp_init(&params, config, &wire->context);
    ucp_config_release(config);
    if (status == UCS_OK)
        status = ucp_worker_create(wire->context, &worker, &wire->worker);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(wire->worker, &wire->ready_fd);
    return status == UCS_OK ? ucp_worker_set_am_recv_handler(wire->worker, &handler) : status;
}

static enum ddp_status own_address(const struct ddp_wire *wire,
                                   unsigned char address[DDP_ADDRESS_MAX_BYTES], size_t *bytes)
{
    ucp_address_t *found;
    ucs_status_t status = ucp_worker_get_address(wire->worker, &found, bytes);
    if (status != UCS_OK)
        return ddp_fail(DDP_ERR_SYSTEM, "UCX has no address: %s", ucs_status_string(status));
    const bool fits = *bytes <= DDP_ADDRESS_MAX_BYTES;
    if (fits)
        memcpy(address, found, *bytes);
    ucp_worker_release_address(wire->worker, found);
    return fits ? DDP_OK
                : ddp_fail(DDP_ERR_UNSUPPORTED,
                           "UCX uses too many networks: its address has %zu bytes, at most %d fit: "
                           "choose some with UCX_NET_DEVICES",
                           *bytes, DDP_ADDRESS_MAX_BYTES);
}

static enum ddp_status wire_open(struct ddp_wire **wire, int rank, int size,
                                 unsigned char address[DDP_ADDRESS_MAX_BYTES], size_t *bytes)
{
    struct ddp_wire *w = ddp_array_alloc(1, sizeof *w);
    sigset_t before;
    if (!w)
        return DDP_ERR_MEMORY;
    pthread_mutex_init(&w->lock, NULL);
    w->rank = rank;
    w->size = size;
    w->peers = ddp_array_alloc((size_t)size, sizeof *w->peers);
    enum ddp_status status = w->peers ? try_thread() : DDP_ERR_MEMORY;
    if (status == DDP_OK) {
        block_signals(&before);
        ucs_status_t opened = open_worker(w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        status = opened == UCS_OK
                     ? own_address(w, address, bytes)
                     : ddp_fail(DDP_ERR_SYSTEM,
                                "UCX cannot open a network: %s: see UCX_NET_DEVICES and UCX_TLS",
                                ucs_status_string(opened));
    }
    if (status != DDP_OK) {
        wire_close(w);
        return status;
    }
    *wire = w;
    return DDP_OK;
}

static const struct ddp_wire_ops wire_ucx = {
    .name = "ucx",
    .open = wire_open,
    .connect = wire_connect,
    .send = wire_send,
    .receive = wire_receive,
    .progress = wire_progress,
    .wait = wire_wait,
    .cancel = wire_cancel,
    .flushed = wire_flushed,
    .close = wire_close,
};

static void attach(const struct ddp_plugin_host *host)
{
    ddp_log_set_sink(host->log);
    ddp_trace_set_sink(host->trace_recording, host->trace);
}

extern DDP_API const struct ddp_plugin ddp_plugin;
const struct ddp_plugin ddp_plugin = {
    .abi = DDP_PLUGIN_ABI,
    .name = "ucx",
    .wire = &wire_ucx,
    .attach = attach,
};

/* SPDX-License-Identifier: MIT
 *
 * Channels between machines, over the wire; see nodes.h. Within a machine they are rings.
 *
 * Both ends have slots. The receiver's wait for messages from the beginning, and again when they
 * are released; then a credit goes back to the sender, without which it does not send more. So no
 * message comes before there is a place for it. */
#include "config.h"

#include "comm/nodes.h"

#include "comm/ring.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>

#define HELLO_MS     60000                /* both ends are there */
#define FIRST_NUMBER UINT32_C(0xc0000000) /* in keys: calls have lower numbers */

enum { DATA, CREDIT, GOODBYE, HELLO }; /* in keys */

struct nodes_channel {
    struct nodes_channel *next;
    struct ddp_channel_end end; /* of a ring; of the wire */
    bool remote, agreed;        /* all ranks have opened it */
    uint32_t number;
    size_t memory_bytes;
    struct ddp_wire_op *data, *credits; /* (slots) */
    struct ddp_wire_op bye_in, bye_out;
};

/* --- messages --- */

static void post_receive(struct nodes *nodes, struct nodes_channel *c, struct ddp_wire_op *op,
                         uint32_t index, void *buffer, size_t room)
{
    op->head = (struct ddp_wire_head){.key = nodes_key(nodes, c->number, index)};
    nodes->ops->receive(nodes->wire, c->end.peer, op, buffer, room);
}

static void post_send(struct nodes *nodes, struct nodes_channel *c, struct ddp_wire_op *op,
                      uint32_t index, const void *data, size_t bytes)
{
    op->head = (struct ddp_wire_head){.key = nodes_key(nodes, c->number, index)};
    nodes->ops->send(nodes->wire, c->end.peer, op, data, bytes);
}

static char *slot_of(const struct nodes_channel *c, uint64_t message)
{
    return c->end.memory + message % c->end.slots * c->end.stride;
}

/* Can the slot of the message be had? The sender's when it has left, and been credited. */
static enum ddp_status look(struct nodes *nodes, struct nodes_channel *c, uint64_t message,
                            bool *done)
{
    const struct ddp_comm_waiting now = {.stop = ddp_job_abort_word(nodes->place->job)};
    const uint64_t i = message % c->end.slots;
    if (!c->remote) {
        enum ddp_status status = ddp_ring_await(&c->end, message, &now);
        *done = status == DDP_OK;
        return status == DDP_ERR_TIMEOUT ? DDP_OK : status;
    }
    const enum ddp_wire_state data = ddp_wire_state(&c->data[i]);
    const enum ddp_wire_state credit = c->end.sends ? ddp_wire_state(&c->credits[i]) : data;
    *done = data == DDP_WIRE_OVER && credit == DDP_WIRE_OVER;
    return data == DDP_WIRE_LOST || credit == DDP_WIRE_LOST ? nodes_lost(nodes, c->end.peer)
                                                            : DDP_OK;
}

enum ddp_status nodes_channel_await(struct ddp_channel_end *end, uint64_t message, int timeout_ms)
{
    struct nodes *nodes = end->comm;
    struct nodes_channel *c = end->link;
    const int64_t deadline = ddp_deadline_ns(timeout_ms);
    bool done = false, moved = false;
    int idle = 0;
    for (;;) {
        enum ddp_status status = look(nodes, c, message, &done);
        if (status == DDP_OK && !done)
            status = nodes_advance(nodes, &moved);
        if (status == DDP_OK && !done && !moved && ddp_deadline_passed(deadline))
            return DDP_ERR_TIMEOUT;
        if (status == DDP_OK && !done && !moved)
            status = nodes_nap(nodes, &idle, true);
        if (status != DDP_OK && nodes->failed == DDP_OK)
            nodes->failed = status;
        if (status != DDP_OK || done)
            return status;
    }
}

enum ddp_status nodes_channel_pass(struct ddp_channel_end *end, uint64_t message)
{
    struct nodes *nodes = end->comm;
    struct nodes_channel *c = end->link;
    const uint64_t i = message % c->end.slots;
    if (!c->remote) {
        ddp_ring_pass(&c->end, message);
        return DDP_OK;
    }
    if (c->end.sends) {
        post_receive(nodes, c, &c->credits[i], CREDIT, NULL, 0);
        post_send(nodes, c, &c->data[i], DATA, slot_of(c, message), c->end.bytes);
    } else {
        while (ddp_wire_state(&c->credits[i]) == DDP_WIRE_GOING) /* it came before this message */
            nodes->ops->progress(nodes->wire);
        post_receive(nodes, c, &c->data[i], DATA, slot_of(c, message), c->end.bytes);
        post_send(nodes, c, &c->credits[i], CREDIT, NULL, 0);
    }
    nodes->ops->progress(nodes->wire);
    return DDP_OK;
}

/* --- opening --- */

/* One after the other, the sender first: where both ends connect at once, UCX 1.13 may never finish
 * (TCP, ranks without a processor of their own). */
static enum ddp_status connect_ends(struct nodes *nodes, struct nodes_channel *c)
{
    const int64_t deadline = ddp_deadline_ns(HELLO_MS);
    struct ddp_wire_op hello = {0};
    enum ddp_status status = c->end.sends ? nodes_connect(nodes, c->end.peer) : DDP_OK;
    int idle = 0;
    if (status != DDP_OK)
        return status;
    if (c->end.sends)
        post_send(nodes, c, &hello, HELLO, NULL, 0);
    else
        post_receive(nodes, c, &hello, HELLO, NULL, 0);
    while (status == DDP_OK && (ddp_wire_state(&hello) == DDP_WIRE_GOING ||
                                (c->end.sends && !nodes->ops->flushed(nodes->wire))))
        if (ddp_deadline_passed(deadline))
            status = ddp_fail(DDP_ERR_TIMEOUT, "waited %d ms for a connection with rank %d",
                              HELLO_MS, c->end.peer);
        else if (!nodes->ops->progress(nodes->wire))
            status = nodes_nap(nodes, &idle, true);
    if (status == DDP_OK && ddp_wire_state(&hello) == DDP_WIRE_LOST)
        status = nodes_lost(nodes, c->end.peer);
    nodes->ops->cancel(nodes->wire, &hello);
    return status == DDP_OK && !c->end.sends ? nodes_connect(nodes, c->end.peer) : status;
}

static enum ddp_status open_wire_end(struct nodes *nodes, struct nodes_channel *c,
                                     const struct ddp_comm_call *call)
{
    enum ddp_status status = connect_ends(nodes, c); /* the other end waits */
    if (status != DDP_OK)
        return status;
    c->end.bytes = call->count;
    c->end.slots = call->slots;
    c->end.stride = ddp_align_up(call->count, 64);
    if (!ddp_size_multiply(c->end.stride, call->slots, &c->memory_bytes))
        return DDP_ERR_MEMORY;
    c->end.memory = ddp_pages_alloc(c->memory_bytes);
    c->data = ddp_array_alloc(call->slots, sizeof *c->data);
    c->credits = ddp_array_alloc(call->slots, sizeof *c->credits);
    if (!c->end.memory || !c->data || !c->credits)
        return DDP_ERR_MEMORY;
    for (uint32_t i = 0; !c->end.sends && i < call->slots; i++)
        post_receive(nodes, c, &c->data[i], DATA, slot_of(c, i), c->end.bytes);
    return DDP_OK;
}

/* All ranks of a machine meet in a ring's; the others have nothing to do with other machines'. */
enum ddp_status nodes_channel_open(struct nodes *nodes, const struct ddp_comm_call *call,
                                   struct ddp_channel_end *end)
{
    const struct ddp_comm_place *place = nodes->place;
    const int from = ddp_comm_node_of(place, call->root), to = ddp_comm_node_of(place, call->to);
    const uint32_t number = FIRST_NUMBER + nodes->channels_opened++;
    struct nodes_channel *c = end ? ddp_array_alloc(1, sizeof *c) : NULL;
    enum ddp_status status = end && !c ? DDP_ERR_MEMORY : DDP_OK;
    if (c) {
        c->end = *end;
        c->remote = from != to;
        c->number = number;
        c->next = nodes->channels;
        nodes->channels = c;
    }
    if (from == to && from == place->node) {
        enum ddp_status opened = shm_channel_open(&nodes->shm, call, c ? &c->end : NULL);
        status = status == DDP_OK ? opened : status;
    } else if (c && c->remote) {
        status = open_wire_end(nodes, c, call);
    }
    if (c) {
        *end = c->end;
        end->comm = nodes;
        end->link = c;
    }
    return status;
}

void nodes_channel_agreed(struct nodes *nodes)
{
    if (nodes->channels)
        nodes->channels->agreed = true;
}

/* --- ending --- */

void nodes_channels_leave(struct nodes *nodes, int64_t deadline)
{
    for (struct nodes_channel *c = nodes->channels; c; c = c->next)
        if (c->remote && c->agreed) {
            post_receive(nodes, c, &c->bye_in, GOODBYE, NULL, 0);
            post_send(nodes, c, &c->bye_out, GOODBYE, NULL, 0);
        }
    for (struct nodes_channel *c = nodes->channels; c; c = c->next) {
        int idle = 0;
        while (ddp_wire_state(&c->bye_in) == DDP_WIRE_GOING && !ddp_deadline_passed(deadline))
            if (!nodes->ops->progress(nodes->wire) && nodes_nap(nodes, &idle, true) != DDP_OK)
                return;
    }
}

void nodes_channels_free(struct nodes *nodes)
{
    while (nodes->channels) {
        struct nodes_channel *c = nodes->channels;
        nodes->channels = c->next;
        for (uint32_t i = 0; c->data && c->credits && i < c->end.slots; i++) {
            nodes->ops->cancel(nodes->wire, &c->data[i]);
            nodes->ops->cancel(nodes->wire, &c->credits[i]);
        }
        nodes->ops->cancel(nodes->wire, &c->bye_in);
        nodes->ops->cancel(nodes->wire, &c->bye_out);
        if (c->remote && c->end.memory)
            ddp_pages_free(c->end.memory, c->memory_bytes);
        free(c->data);
        free(c->credits);
        free(c);
    }
}

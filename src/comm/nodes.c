/* SPDX-License-Identifier: MIT
 *
 * The communicator over several machines: shared memory inside, a wire outside; see nodes.h. */
#include "config.h"

#include "comm/nodes.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

#define LEAVE_MS  2000 /* for the others to have everything that this rank sent */
#define SPINS     50   /* of a wait inside the machine: the wire needs processors too */
#define YIELDS    200
#define TURNS     8          /* of moving on, between computations */
#define LAST_CALL UINT32_MAX /* a number of no call */

static bool fits(const struct ddp_comm_place *place)
{
    return place->node_count > 1 && place->node_size <= DDP_REDUCE_MAX;
}

/* --- small calls: everybody's payload to everybody --- */

/* Sums of `count` elements that fit an entry of the ledger; 0 for a meeting. */
struct small {
    const struct ddp_comm_call *call; /* what the ranks must agree on */
    const void *payload;
    void *result;
    size_t count;
    enum ddp_dtype dtype;
    enum ddp_redop op;
};

/* This machine's partial sums, from the entries of its ranks. */
static enum ddp_status add_payloads(struct nodes *nodes, const struct small *s,
                                    const struct nodes_order *order, uint32_t entry, char *out)
{
    const void *sources[DDP_REDUCE_MAX];
    for (int r = 0; r < nodes->place->node_size; r++)
        sources[r] = ddp_ledger_entry(&nodes->shm.ledger, r, entry)->payload;
    return nodes_order_add(order, nodes->place->node, sources, out, s->count, s->dtype, s->op, 0);
}

static enum ddp_status wait_small(struct nodes *nodes)
{
    const struct ddp_comm_place *place = nodes->place;
    const int64_t deadline = ddp_deadline_ns(place->timeout_ms), begin = ddp_trace_begin();
    enum ddp_status status = DDP_OK;
    int idle = 0;
    while (status == DDP_OK &&
           !(nodes_over(nodes, nodes->small_in, &status) &&
             nodes_over(nodes, nodes->small_out, &status) && nodes->ops->flushed(nodes->wire))) {
        if (status != DDP_OK || nodes->ops->progress(nodes->wire))
            continue;
        if (ddp_deadline_passed(deadline))
            return ddp_fail(DDP_ERR_TIMEOUT, "waited %d ms for rank %d in a collective",
                            place->timeout_ms, nodes_missing(nodes, nodes->small_in));
        status = nodes_nap(nodes, &idle, false);
    }
    ddp_trace_end("wait", begin, "for node", -1);
    return status;
}

static enum ddp_status run_small(struct nodes *nodes, const struct small *s)
{
    const struct ddp_comm_place *place = nodes->place;
    const struct nodes_order order = nodes_order_of(nodes, s->call);
    const size_t bytes = s->count > 0 ? s->count * ddp_dtype_bytes(s->dtype) : 0;
    const size_t most = DDP_LEDGER_PAYLOAD * (size_t)nodes->most;
    const uint32_t number = nodes->next++;
    char *own = nodes->small + most * (size_t)place->node;
    uint32_t entry;
    int count = 0;
    enum ddp_status status =
        ddp_ledger_meet(&nodes->shm.ledger, s->call, DDP_LEDGER_NOWHERE, s->payload, bytes, &entry);
    if (status == DDP_ERR_MISMATCH)
        nodes_tell_failure(nodes, number, s->call);
    if (status == DDP_OK && bytes > 0)
        status = add_payloads(nodes, s, &order, entry, own);
    for (int p = 0; status == DDP_OK && p < nodes->peer_count; p++) {
        const struct nodes_peer *peer = &nodes->peers[p];
        if (peer->sums_up)
            nodes_receive(nodes, p, &nodes->small_in[p], number, 0,
                          nodes->small + most * (size_t)peer->node, most);
        if (peer->owns)
            nodes_send(nodes, p, &nodes->small_out[p], number, 0, s->call, own,
                       bytes * (size_t)nodes_order_count(&order, place->node));
    }
    if (status == DDP_OK)
        status = wait_small(nodes);
    for (int p = 0; status == DDP_OK && p < nodes->peer_count; p++)
        if (nodes->peers[p].sums_up)
            status = nodes_check(nodes, &nodes->small_in[p], number, s->call,
                                 bytes * (size_t)nodes_order_count(&order, nodes->peers[p].node));
    for (int m = 0; m < place->node_count; m++)
        for (int i = 0; i < nodes_order_count(&order, m); i++)
            nodes->partials[count++] = nodes->small + most * (size_t)m + (size_t)i * bytes;
    if (status != DDP_OK || bytes == 0)
        return status;
    return nodes_order_sum(&order, nodes->partials, s->result, s->count, s->dtype, s->op, 0);
}

static enum ddp_status meet_all(struct nodes *nodes, const struct ddp_comm_call *call)
{
    return run_small(nodes, &(struct small){.call = call});
}

/* The first failure of any rank. */
static enum ddp_status vote_all(struct nodes *nodes, const struct ddp_comm_call *call,
                                enum ddp_status *status)
{
    int32_t worst = (int32_t)*status;
    const struct small vote = {.call = call,
                               .payload = &worst,
                               .result = &worst,
                               .count = 1,
                               .dtype = DDP_I32,
                               .op = DDP_MIN};
    enum ddp_status met = run_small(nodes, &vote);
    *status = (enum ddp_status)worst;
    return met;
}

/* --- large calls --- */

static uint64_t offset_of(const struct nodes *nodes, const struct ddp_slices *all,
                          const struct ddp_comm_call *call)
{
    const size_t bytes = all->count * all->element;
    const uint64_t offset = shm_offset_of(&nodes->shm, all->memory, bytes);
    const bool gathers =
        call->kind == DDP_COMM_GATHER_SLICES || call->kind == DDP_COMM_GATHER_SLICES_START;
    return offset == DDP_LEDGER_NOWHERE && gathers
               ? shm_offset_of_shared(&nodes->shm, all->memory, bytes)
               : offset;
}

/* Announces a call to the ranks of this machine. */
static struct nodes_call *push(struct nodes *nodes, const struct ddp_comm_call *call)
{
    struct nodes_call *c = nodes_pending(nodes, nodes->pending_count++);
    *c = (struct nodes_call){.call = *call, .number = nodes->next++, .begin_ns = ddp_trace_begin()};
    nodes_call_plan(nodes, c);
    c->entry = ddp_ledger_post(&nodes->shm.ledger, call, offset_of(nodes, &c->all, call), NULL, 0);
    return c;
}

static void drop_first(struct nodes *nodes)
{
    const struct nodes_call *first = nodes_pending(nodes, 0);
    if (ddp_comm_kinds[first->call.kind].starts)
        ddp_trace_end_overlapping("bucket", first->begin_ns, first->number, "bytes",
                                  (int64_t)first->call.bytes);
    if (first->call.thin)
        shm_give_back(&nodes->shm, &first->call);
    nodes->pending_first = (nodes->pending_first + 1) % NODES_PENDING;
    nodes->pending_count--;
}

/* Waits until the oldest call is complete. This rank sleeps in the ledger only when nothing of its
 * own is on its way, for which other machines wait.
 *   alone  later calls may be on their way still: they move on between the turns of a sleep */
static enum ddp_status complete_first(struct nodes *nodes, bool alone)
{
    struct nodes_call *first = nodes_pending(nodes, 0);
    enum ddp_status status = nodes_drive(nodes, alone ? first : NULL);
    while (status == DDP_OK && !first->told) {
        status = ddp_ledger_gather(&nodes->shm.ledger, first->entry, &first->call);
        if (status == DDP_ERR_MISMATCH)
            nodes_tell_failure(nodes, first->number, &first->call);
        if (status == DDP_OK)
            status = nodes_drive(nodes, alone ? first : NULL);
    }
    if (status == DDP_OK)
        status = ddp_ledger_wait_done(&nodes->shm.ledger, first->entry);
    if (status == DDP_OK)
        drop_first(nodes);
    return status;
}

static enum ddp_status finish_all(struct nodes *nodes)
{
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && nodes->pending_count > 0)
        status = complete_first(nodes, false);
    return status;
}

/* The stage has a piece of every slice. All ranks of the machine come here together. */
static enum ddp_status need_stage(struct nodes *nodes, size_t bytes)
{
    const struct ddp_comm_call release = {.kind = DDP_COMM_FREE, .receive = nodes->stage};
    const struct ddp_comm_call call = {.kind = DDP_COMM_ALLOC, .count = bytes};
    enum ddp_status status = DDP_OK;
    void *memory = NULL;
    if (nodes->stage_bytes >= bytes)
        return DDP_OK;
    if (nodes->stage)
        status = shm_free(&nodes->shm, &release);
    nodes->stage = NULL;
    nodes->stage_bytes = 0;
    if (status == DDP_OK)
        status = shm_alloc(&nodes->shm, &call, &memory);
    if (status == DDP_ERR_MEMORY) /* the other machines know nothing of it */
        return ddp_fail(DDP_ERR_SYSTEM, "no memory for collectives on memory of the program's own");
    nodes->stage = memory;
    nodes->stage_bytes = status == DDP_OK ? bytes : 0;
    return status;
}

/* Chunk by chunk: everybody shows its part, and takes what it gets. */
static enum ddp_status run_staged(struct nodes *nodes, struct nodes_call *c)
{
    struct ddp_ledger *ledger = &nodes->shm.ledger;
    enum ddp_status status = need_stage(nodes, c->stride * (size_t)nodes->place->size);
    uint32_t entry;
    for (int r = 0; status == DDP_OK && r < nodes->place->node_size; r++)
        c->bases[r] = shm_part_of(&nodes->shm, nodes->stage, r);
    c->staged = c->ready = true;
    for (uint32_t chunk = 0; status == DDP_OK && chunk < c->chunks; chunk++) {
        nodes_stage_in(nodes, c, chunk);
        status = ddp_ledger_meet(ledger, &c->call, DDP_LEDGER_NOWHERE, NULL, 0, &entry);
        c->allowed = chunk + 1;
        if (status == DDP_OK)
            status = nodes_drive(nodes, NULL);
        if (status == DDP_OK)
            status = ddp_ledger_meet(ledger, &c->call, DDP_LEDGER_NOWHERE, NULL, 0, &entry);
        if (status == DDP_OK)
            nodes_stage_out(nodes, c, chunk);
    }
    if (status == DDP_OK)
        drop_first(nodes);
    return status;
}

/* What was sent may say why the call has failed: the others get it. */
static void drop_chunks(struct nodes *nodes)
{
    for (int s = 0; s < NODES_DEPTH; s++)
        for (int kind = 0; kind < OP_KINDS; kind++)
            nodes_end_ops(nodes, nodes->slots[s].ops[kind], nodes->peer_count,
                          kind == PARTS_OUT || kind == SUMS_OUT ? LEAVE_MS : 0);
}

static enum ddp_status run_large(struct nodes *nodes, const struct ddp_comm_call *call)
{
    struct nodes_call *c = push(nodes, call);
    enum ddp_status status = ddp_ledger_gather(&nodes->shm.ledger, c->entry, call);
    if (status == DDP_ERR_MISMATCH)
        nodes_tell_failure(nodes, c->number, call);
    if (status != DDP_OK)
        return status;
    if (!nodes_find_buffers(nodes, c))
        return run_staged(nodes, c);
    status = finish_all(nodes);
    if (status != DDP_OK) /* the caller may free the memory */
        drop_chunks(nodes);
    return status;
}

static enum ddp_status start(struct nodes *nodes, const struct ddp_comm_call *call)
{
    enum ddp_status status = DDP_OK;
    bool moved;
    if (call->kind == DDP_COMM_GATHER_SLICES_START && call->bytes > 0 &&
        shm_offset_of_shared(&nodes->shm, call->receive, call->bytes) == DDP_LEDGER_NOWHERE)
        return ddp_fail(DDP_ERR_INVALID, "all-gather: only shared memory can be gathered while "
                                         "computing");
    while (status == DDP_OK && nodes->pending_count == NODES_PENDING)
        status = complete_first(nodes, false);
    if (status != DDP_OK)
        return status;
    push(nodes, call);
    return nodes_advance(nodes, &moved);
}

/* --- the contract --- */

/* A failure leaves messages on their way: nothing more can follow. */
static enum ddp_status noted(struct nodes *nodes, enum ddp_status status)
{
    if (status != DDP_ERR_MEMORY && nodes->failed == DDP_OK)
        nodes->failed = status;
    return status;
}

static enum ddp_status run_one(struct nodes *nodes, const struct ddp_comm_call *call)
{
    enum ddp_status status;
    if (ddp_comm_kinds[call->kind].starts)
        return start(nodes, call);
    switch (call->kind) {
    case DDP_COMM_BARRIER:
        return meet_all(nodes, call);
    case DDP_COMM_FREE:
        status = meet_all(nodes, call);
        return status == DDP_OK ? shm_free(&nodes->shm, call) : status;
    case DDP_COMM_ALLREDUCE:
        if (call->bytes <= DDP_LEDGER_PAYLOAD)
            return run_small(nodes, &(struct small){.call = call,
                                                    .payload = call->send,
                                                    .result = call->receive,
                                                    .count = call->count,
                                                    .dtype = call->dtype,
                                                    .op = call->op});
        return run_large(nodes, call);
    default:
        return run_large(nodes, call);
    }
}

static enum ddp_status run(void *state, const struct ddp_comm_call *call)
{
    return noted(state, run_one(state, call));
}

static enum ddp_status alloc(void *state, const struct ddp_comm_call *call, void **memory)
{
    struct nodes *nodes = state;
    enum ddp_status own = shm_alloc(&nodes->shm, call, memory), all = own;
    if (own == DDP_ERR_MISMATCH)
        nodes_tell_failure(nodes, nodes->next++, call);
    if (own == DDP_ERR_MISMATCH || own == DDP_ERR_ABORTED || own == DDP_ERR_TIMEOUT)
        return noted(nodes, own);
    enum ddp_status met = vote_all(nodes, call, &all);
    if (met != DDP_OK || all == DDP_OK)
        return noted(nodes, met);
    const struct ddp_comm_call release = {.kind = DDP_COMM_FREE, .receive = *memory};
    if (own == DDP_OK && call->kind == DDP_COMM_ALLOC) /* another machine has too little memory */
        met = shm_free(&nodes->shm, &release);
    return noted(nodes, met == DDP_OK ? all : met);
}

static enum ddp_status open_channel(void *state, const struct ddp_comm_call *call,
                                    struct ddp_channel_end *end)
{
    struct nodes *nodes = state;
    enum ddp_status status = meet_all(nodes, call);
    if (status != DDP_OK)
        return noted(nodes, status);
    enum ddp_status own = nodes_channel_open(nodes, call, end);
    status = vote_all(nodes, call, &own);
    if (status == DDP_OK && own == DDP_OK && end)
        nodes_channel_agreed(nodes);
    return noted(nodes, status == DDP_OK ? own : status);
}

static bool registered(const void *state, const void *memory, size_t bytes)
{
    const struct nodes *nodes = state;
    return shm_registered(&nodes->shm, memory, bytes);
}

static enum ddp_status progress(void *state)
{
    struct nodes *nodes = state;
    bool moved = true;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && moved && i < TURNS; i++)
        status = nodes_advance(nodes, &moved);
    while (status == DDP_OK && nodes->pending_count > 0 && nodes_pending(nodes, 0)->told &&
           ddp_ledger_all_done(&nodes->shm.ledger, nodes_pending(nodes, 0)->entry))
        drop_first(nodes);
    return noted(nodes, status);
}

static enum ddp_status finish(void *state)
{
    return noted(state, finish_all(state));
}

static enum ddp_status settle(void *state, int most)
{
    struct nodes *nodes = state;
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && nodes->pending_count > most)
        status = complete_first(nodes, true);
    return noted(nodes, status);
}

static enum ddp_status provide(void *state, void *memory, size_t bytes)
{
    struct nodes *nodes = state;
    return shm_provide(&nodes->shm, memory, bytes);
}

static void punch(void *state, void *memory, size_t bytes)
{
    const struct nodes *nodes = state;
    shm_punch(&nodes->shm, memory, bytes);
}

/* --- setting up and leaving --- */

/* Who is on a rail of this rank, in whichever direction. */
static enum ddp_status find_peers(struct nodes *nodes)
{
    const struct ddp_comm_place *place = nodes->place;
    nodes->alike = true;
    nodes->peers = ddp_array_alloc((size_t)place->size, sizeof *nodes->peers);
    if (!nodes->peers)
        return DDP_ERR_MEMORY;
    for (int i = 1; i < place->node_count; i++) {
        const int m = (place->node + i) % place->node_count;
        const int begin = place->starts[m], end = place->starts[m + 1];
        nodes->alike = nodes->alike && end - begin == place->node_size;
        for (int r = begin; r < end; r++) {
            const struct nodes_peer peer = {.rank = r,
                                            .node = m,
                                            .sums_up = nodes_on_rail(place, place->rank, m) == r,
                                            .owns = nodes_on_rail(place, r, place->node) ==
                                                    place->rank};
            if (peer.sums_up || peer.owns)
                nodes->peers[nodes->peer_count++] = peer;
        }
    }
    return DDP_OK;
}

/* Each rank has one array, and is a leaf of the tree. */
static enum ddp_status number_ranks(struct nodes *nodes)
{
    const int size = nodes->place->size;
    struct ddp_comm_roots *ranks = &nodes->ranks;
    const struct nodes_order order = nodes_order_of(nodes, &(struct ddp_comm_call){.fast = false});
    ranks->first = ddp_array_alloc((size_t)size + 1, sizeof *ranks->first);
    if (!ranks->first)
        return DDP_ERR_MEMORY;
    for (int r = 0; r <= size; r++)
        ranks->first[r] = r;
    ranks->count = size;
    ranks->end = ranks->first + 1;
    nodes->most = nodes_order_most(&order);
    return DDP_OK;
}

static enum ddp_status alloc_memory(struct nodes *nodes)
{
    const size_t count = (size_t)nodes->place->node_count, size = (size_t)nodes->place->size;
    const size_t peers = (size_t)nodes->peer_count; /* and one for our own slice */
    const size_t most = (size_t)nodes->most, payloads = most * DDP_LEDGER_PAYLOAD * count;
    size_t piece = NODES_CHUNK_BYTES / size / NODES_LEAST * NODES_LEAST;
    piece = piece < NODES_PIECE_BYTES ? piece : NODES_PIECE_BYTES;
    nodes->piece_bytes = piece > 0 ? piece : NODES_LEAST;
    nodes->room = most * nodes->piece_bytes;
    nodes->memory_bytes = NODES_DEPTH * (count + peers + 1) * nodes->room + payloads;
    nodes->memory = ddp_pages_alloc(nodes->memory_bytes);
    nodes->small_out = ddp_array_alloc(4 * peers, sizeof *nodes->small_out);
    nodes->pending = ddp_array_alloc(NODES_PENDING, sizeof *nodes->pending);
    nodes->partials = ddp_array_alloc(DDP_REDUCE_LEAVES, sizeof *nodes->partials);
    if (!nodes->memory || !nodes->small_out || !nodes->pending || !nodes->partials)
        return DDP_ERR_MEMORY;
    nodes->small_in = nodes->small_out + peers;
    nodes->goodbyes = nodes->small_in + peers;
    nodes->small = nodes->memory + nodes->memory_bytes - payloads;
    for (int s = 0; s < NODES_DEPTH; s++) {
        struct nodes_slot *slot = &nodes->slots[s];
        slot->in = nodes->memory + (size_t)s * (count + peers + 1) * nodes->room;
        slot->out = slot->in + count * nodes->room;
        slot->ops[0] = ddp_array_alloc(OP_KINDS * peers, sizeof *slot->ops[0]);
        if (!slot->ops[0])
            return DDP_ERR_MEMORY;
        for (int kind = 1; kind < OP_KINDS; kind++)
            slot->ops[kind] = slot->ops[kind - 1] + peers;
    }
    return DDP_OK;
}

static void free_memory(struct nodes *nodes)
{
    for (int s = 0; s < NODES_DEPTH; s++)
        free(nodes->slots[s].ops[0]);
    if (nodes->memory)
        ddp_pages_free(nodes->memory, nodes->memory_bytes);
    free(nodes->small_out);
    free(nodes->pending);
    free(nodes->partials);
    free(nodes->ranks.first);
    free(nodes->peers);
    free(nodes);
}

/* A process that ends may take with it what the others have not read yet: the last messages say
 * that they have. Who is lost, or calls something else, is not waited for. */
static void say_goodbye(struct nodes *nodes)
{
    nodes_channels_leave(nodes, ddp_deadline_ns(LEAVE_MS));
    const struct ddp_comm_call call = {.kind = DDP_COMM_DESTROY};
    const int64_t deadline = ddp_deadline_ns(LEAVE_MS);
    const uint32_t number = nodes->failed == DDP_OK ? nodes->next : LAST_CALL;
    for (int p = 0; p < nodes->peer_count; p++) {
        nodes_receive(nodes, p, &nodes->goodbyes[2 * p], number, 0, NULL, 0);
        nodes_send(nodes, p, &nodes->goodbyes[2 * p + 1], number, 0, &call, NULL, 0);
    }
    for (int p = 0; p < nodes->peer_count; p++) {
        int idle = 0;
        while (ddp_wire_state(&nodes->goodbyes[2 * p]) == DDP_WIRE_GOING &&
               !ddp_deadline_passed(deadline))
            if (!nodes->ops->progress(nodes->wire) && nodes_nap(nodes, &idle, true) != DDP_OK)
                return;
    }
}

/* The wire must know nothing of the memory that goes. */
static void forget(struct nodes *nodes)
{
    for (int p = 0; p < nodes->peer_count; p++) {
        for (int s = 0; s < NODES_DEPTH; s++)
            for (int kind = 0; kind < OP_KINDS; kind++)
                nodes->ops->cancel(nodes->wire, &nodes->slots[s].ops[kind][p]);
        for (int i = 0; i < 2; i++) {
            nodes->ops->cancel(nodes->wire, &nodes->small_out[i * nodes->peer_count + p]);
            nodes->ops->cancel(nodes->wire, &nodes->goodbyes[2 * p + i]);
        }
    }
}

static void destroy(void *state)
{
    struct nodes *nodes = state;
    if ((nodes->failed == DDP_OK || nodes->failed == DDP_ERR_MISMATCH) &&
        !ddp_job_aborted(nodes->place->job))
        say_goodbye(nodes);
    nodes_channels_free(nodes);
    forget(nodes);
    nodes_wire_leave(nodes);
    shm_leave(&nodes->shm);
    free_memory(nodes);
}

static enum ddp_status create(void **state, const struct ddp_comm_place *place)
{
    const struct ddp_comm_call call = {.kind = DDP_COMM_CREATE};
    struct nodes *nodes = ddp_array_alloc(1, sizeof *nodes);
    if (!nodes)
        return DDP_ERR_MEMORY;
    nodes->place = place;
    enum ddp_status status = number_ranks(nodes);
    if (status == DDP_OK)
        status = find_peers(nodes);
    if (status == DDP_OK)
        status = alloc_memory(nodes);
    if (status == DDP_OK)
        status = shm_join(&nodes->shm, place, 0);
    if (status != DDP_OK) {
        free_memory(nodes);
        return status;
    }
    nodes->shm.ledger.spins = SPINS;
    nodes->shm.ledger.yields = YIELDS;
    status = nodes_wire_open(nodes);
    if (status != DDP_OK) {
        shm_leave(&nodes->shm);
        free_memory(nodes);
        return status;
    }
    status = noted(nodes, meet_all(nodes, &call));
    if (status != DDP_OK) {
        destroy(nodes);
        return status;
    }
    *state = nodes;
    return DDP_OK;
}

const struct ddp_comm_ops ddp_comm_nodes = {
    .name = "nodes",
    .has_shared = true,
    .fits = fits,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .registered = registered,
    .run = run,
    .progress = progress,
    .finish = finish,
    .settle = settle,
    .provide = provide,
    .punch = punch,
    .open = open_channel,
    .await = nodes_channel_await,
    .pass = nodes_channel_pass,
};

/* SPDX-License-Identifier: MIT
 *
 * Chunks of calls on their way between machines; see nodes.h. Nothing here waits but
 * nodes_drive(). */
#include "config.h"

#include "comm/nodes.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "kernels/bf16.h"

#include <string.h>

#define LINE 64 /* slices begin at cache lines, counted from the buffer's start */

/* --- what a call is --- */

void nodes_call_plan(const struct nodes *nodes, struct nodes_call *c)
{
    const struct ddp_comm_place *place = nodes->place;
    const enum ddp_comm_kind kind = c->call.kind;
    struct ddp_comm_call sliced = c->call;
    if (kind == DDP_COMM_BROADCAST) /* is the way of the root's slices to their owners, and on */
        sliced.kind = DDP_COMM_ALLREDUCE;
    c->all = ddp_slices_of(&sliced, place, LINE);
    c->order = nodes_order_of(nodes, &c->call);
    c->source = kind == DDP_COMM_BROADCAST ? ddp_comm_node_of(place, c->call.root) : -1;
    c->parts = kind != DDP_COMM_ALL_GATHER && kind != DDP_COMM_GATHER_SLICES &&
               kind != DDP_COMM_GATHER_SLICES_START;
    c->sums = kind != DDP_COMM_REDUCE_SCATTER && kind != DDP_COMM_REDUCE_SLICES_START;
    const size_t longest = ddp_slices_longest(&c->all), most = (size_t)nodes_order_most(&c->order);
    const size_t quarter = ddp_align_up(longest * c->all.element / NODES_DEPTH + 1, NODES_LEAST);
    const size_t room = nodes->room / most / LINE * LINE;
    c->spread = nodes->alike && c->parts && c->sums && c->call.bytes <= NODES_SMALL &&
                longest * c->all.element * (size_t)place->node_count <= room;
    c->packed = c->call.rounded > 0 && c->call.rounded == c->call.count && !c->spread;
    c->piece = (quarter < room ? quarter : room) / c->all.element;
    c->chunks = (uint32_t)(longest / c->piece + (longest % c->piece != 0));
    c->chunks += c->chunks == 0; /* calls are compared, and nobody runs ahead */
    c->stride = ddp_align_up((longest < c->piece ? longest : c->piece) * c->all.element, LINE);
}

/* The piece of a rank's slice in a chunk. */
static struct ddp_part part_of(const struct nodes_call *c, int rank, uint32_t chunk)
{
    return ddp_slices_part(&c->all, rank, chunk * c->piece, c->piece);
}

/* Where a rank of this machine has the piece of a slice. */
static char *at_of(const struct nodes_call *c, int node_rank, int rank, uint32_t chunk)
{
    return c->bases[node_rank] +
           (c->staged ? (size_t)rank * c->stride : part_of(c, rank, chunk).at);
}

static char *mine_at(const struct nodes *nodes, const struct nodes_call *c, int rank,
                     uint32_t chunk)
{
    return at_of(c, nodes->place->node_rank, rank, chunk);
}

/* Where the root of a broadcast, which is on this machine, has it. */
static char *root_at(const struct nodes *nodes, const struct nodes_call *c, int rank,
                     uint32_t chunk)
{
    return at_of(c, c->call.root - nodes->place->starts[c->source], rank, chunk);
}

/* What this rank has of its own slice, for the others. */
static const char *own_slice(const struct nodes *nodes, const struct nodes_call *c, uint32_t chunk)
{
    const struct ddp_comm_place *place = nodes->place;
    if (c->call.kind == DDP_COMM_ALL_GATHER && !c->staged)
        return (const char *)c->call.send + (size_t)chunk * c->piece * c->all.element;
    if (c->source == place->node)
        return root_at(nodes, c, place->rank, chunk);
    return mine_at(nodes, c, place->rank, chunk);
}

/* Where the sum of a slice goes. */
static char *result_at(const struct nodes *nodes, const struct nodes_call *c, int rank,
                       uint32_t chunk)
{
    if (c->call.kind == DDP_COMM_REDUCE_SCATTER)
        return (char *)c->call.receive + (size_t)chunk * c->piece * c->all.element;
    return mine_at(nodes, c, rank, chunk);
}

/* Partial sums that a machine has of a slice. */
static size_t partials_of(const struct nodes_call *c, int node)
{
    if (c->source >= 0)
        return c->source == node;
    return (size_t)nodes_order_count(&c->order, node);
}

/* Bytes of all slices of the rail in a chunk. */
static size_t rail_bytes(const struct nodes *nodes, const struct nodes_call *c, uint32_t chunk)
{
    size_t bytes = 0;
    for (int m = 0; m < nodes->place->node_count; m++)
        bytes += part_of(c, nodes_on_rail(nodes->place, nodes->place->rank, m), chunk).bytes;
    return bytes;
}

/* --- bf16 on the wire --- */

#define PACK 4096 /* elements at a time */

static size_t wire_bytes(const struct nodes_call *c, size_t bytes)
{
    return c->packed ? bytes / 2 : bytes;
}

/* Floats rounded to bf16 in `out`, which may begin where `data` does. Otherwise returns the
 * data as they are. */
static const char *pack(const struct nodes_call *c, char *out, const char *data, size_t bytes)
{
    float values[PACK];
    uint16_t halves[PACK];
    if (!c->packed)
        return data;
    for (size_t at = 0; at < bytes; at += sizeof values) {
        const size_t part = bytes - at < sizeof values ? bytes - at : sizeof values;
        memcpy(values, data + at, part);
        ddp_bf16_pack(values, halves, (int64_t)(part / sizeof(float)));
        memcpy(out + at / 2, halves, part / 2);
    }
    return out;
}

/* The reverse, in place: `bytes` of floats from half as many. */
static void unpack(const struct nodes_call *c, char *data, size_t bytes)
{
    float values[PACK];
    uint16_t halves[PACK];
    for (size_t end = c->packed ? bytes : 0, part; end > 0; end -= part) {
        part = end % sizeof values ? end % sizeof values : sizeof values;
        memcpy(halves, data + (end - part) / 2, part / 2);
        ddp_bf16_unpack(halves, values, (int64_t)(part / sizeof(float)));
        memcpy(data + end - part, values, part);
    }
}

/* --- buffers --- */

/* Offsets of shared memory are announced for a gathering only, which writes everywhere the same:
 * each machine's copy is completed by the rails. A rank that is alone on its machine needs no
 * memory that others map; but what the root of a broadcast has is only read, and in a small one
 * every rank adds up all slices. */
bool nodes_find_buffers(const struct nodes *nodes, struct nodes_call *c)
{
    c->bases[0] = c->all.memory;
    if (nodes->place->node_size == 1 && !(c->spread && c->source == nodes->place->node))
        return true;
    for (int r = 0; c->call.bytes > 0 && r < nodes->place->node_size; r++)
        if (!(c->bases[r] = shm_memory_of(&nodes->shm, r, c->entry)))
            return false;
    return true;
}

void nodes_stage_in(const struct nodes *nodes, const struct nodes_call *c, uint32_t chunk)
{
    const struct ddp_comm_place *place = nodes->place;
    const bool gives_all = c->source >= 0 ? c->call.root == place->rank : c->parts;
    for (int r = 0; r < place->size; r++) {
        const struct ddp_part part = part_of(c, r, chunk);
        const char *from = c->all.memory + part.at;
        if (!c->parts && r == place->rank && c->call.kind == DDP_COMM_ALL_GATHER)
            from = (const char *)c->call.send + (size_t)chunk * c->piece * c->all.element;
        if ((gives_all || (!c->parts && r == place->rank)) && part.bytes > 0)
            memcpy(mine_at(nodes, c, r, chunk), from, part.bytes);
    }
}

void nodes_stage_out(const struct nodes *nodes, const struct nodes_call *c, uint32_t chunk)
{
    if (!c->sums || (c->source >= 0 && c->call.root == nodes->place->rank))
        return;
    for (int r = 0; r < nodes->place->size; r++) {
        const struct ddp_part part = part_of(c, r, chunk);
        if (part.bytes > 0)
            memcpy(c->all.memory + part.at, mine_at(nodes, c, r, chunk), part.bytes);
    }
}

/* --- parts: from each machine to the owners --- */

/* This machine's partial sums of a slice, from the arrays of its ranks. */
static enum ddp_status add_up(const struct nodes *nodes, const struct nodes_call *c, int rank,
                              uint32_t chunk, char *to)
{
    const struct ddp_comm_place *place = nodes->place;
    const struct ddp_comm_roots *roots = c->call.roots;
    const struct ddp_part part = part_of(c, rank, chunk);
    const void *sources[DDP_REDUCE_LEAVES];
    int count = 0;
    for (int r = 0; r < place->node_size; r++) {
        const int own = place->starts[place->node] + r;
        for (int i = 0; i < ddp_comm_arrays(roots, own); i++)
            sources[count++] = at_of(c, r, rank, chunk) + (size_t)i * (roots ? roots->bytes : 0);
    }
    return nodes_order_add(&c->order, place->node, sources, to, part.bytes / c->all.element,
                           c->call.dtype, c->call.op,
                           ddp_slices_rounded(&c->all, part, c->call.rounded));
}

/* This machine's partial sums of a slice, one behind the other: *where [out] is `out` or the place
 * that they have already. */
static enum ddp_status make_parts(const struct nodes *nodes, const struct nodes_call *c, int rank,
                                  uint32_t chunk, char *out, const char **where)
{
    const struct ddp_comm_place *place = nodes->place;
    const bool alone = nodes_order_sources(&c->order, place->node) == 1;
    *where = out;
    if (c->source == place->node)
        *where = root_at(nodes, c, rank, chunk);
    else if (c->source < 0 && alone)
        *where = at_of(c, 0, rank, chunk);
    if (c->source >= 0 || alone || part_of(c, rank, chunk).bytes == 0)
        return DDP_OK;
    const bool in_place =
        partials_of(c, place->node) == 1 && !c->spread &&
        (c->call.kind == DDP_COMM_ALLREDUCE || c->call.kind == DDP_COMM_ALLREDUCE_START);
    if (in_place)
        *where = out = mine_at(nodes, c, rank, chunk);
    return add_up(nodes, c, rank, chunk, out);
}

/* All slices of the rail, one behind the other. */
static enum ddp_status make_spread(struct nodes *nodes, struct nodes_slot *slot, size_t *bytes)
{
    const struct nodes_call *c = slot->call;
    char *out = slot->out;
    enum ddp_status status = DDP_OK;
    for (int m = 0; status == DDP_OK && m < nodes->place->node_count; m++) {
        const int rank = nodes_on_rail(nodes->place, nodes->place->rank, m);
        const size_t all = part_of(c, rank, slot->chunk).bytes * partials_of(c, nodes->place->node);
        const char *where;
        status = make_parts(nodes, c, rank, slot->chunk, out, &where);
        if (status == DDP_OK && where != out && all > 0)
            memcpy(out, where, all);
        out += all;
    }
    slot->own = slot->out;
    *bytes = (size_t)(out - slot->out);
    return status;
}

/* The sums of this machine for the slices of its rails; our own last. */
static enum ddp_status post_parts(struct nodes *nodes, struct nodes_slot *slot)
{
    const struct ddp_comm_place *place = nodes->place;
    struct nodes_call *c = slot->call;
    size_t bytes = 0;
    enum ddp_status status = DDP_OK;
    const char *data = slot->out;
    for (int p = 0; p < nodes->peer_count; p++)
        if (nodes->peers[p].sums_up)
            nodes_receive(nodes, p, &slot->ops[PARTS_IN][p], c->number, 2 * slot->chunk,
                          slot->in + (size_t)nodes->peers[p].node * nodes->room, nodes->room);
    if (c->spread)
        status = make_spread(nodes, slot, &bytes);
    for (int p = 0; status == DDP_OK && p < nodes->peer_count; p++) {
        const int rank = nodes->peers[p].rank;
        if (!nodes->peers[p].owns)
            continue;
        if (!c->spread) {
            char *out = slot->out + (size_t)p * nodes->room;
            const size_t all = part_of(c, rank, slot->chunk).bytes * partials_of(c, place->node);
            status = make_parts(nodes, c, rank, slot->chunk, out, &data);
            if (status == DDP_OK)
                data = pack(c, out, data, all);
            bytes = wire_bytes(c, all);
        }
        if (status == DDP_OK)
            nodes_send(nodes, p, &slot->ops[PARTS_OUT][p], c->number, 2 * slot->chunk, &c->call,
                       data, bytes);
    }
    if (status == DDP_OK && !c->spread)
        status = make_parts(nodes, c, place->rank, slot->chunk,
                            slot->out + (size_t)nodes->peer_count * nodes->room, &slot->own);
    return status;
}

/* --- sums: from the owners to all --- */

/* One slice over all machines; so many bytes of each partial sum come before it. */
static enum ddp_status sum_slice(struct nodes *nodes, const struct nodes_slot *slot, int rank,
                                 size_t before)
{
    const struct ddp_comm_place *place = nodes->place;
    const struct nodes_call *c = slot->call;
    const struct ddp_part part = part_of(c, rank, slot->chunk);
    const size_t bytes = part.bytes;
    char *result = result_at(nodes, c, rank, slot->chunk);
    const void **partials = nodes->partials;
    int count = 0;
    if (bytes == 0)
        return DDP_OK;
    for (int m = 0; m < place->node_count; m++) {
        const char *from = m == place->node ? slot->own : slot->in + (size_t)m * nodes->room;
        from += before * partials_of(c, m);
        for (size_t p = 0; p < partials_of(c, m); p++)
            partials[count++] = from + p * bytes;
    }
    if (c->source < 0)
        return nodes_order_sum(&c->order, partials, result, bytes / c->all.element, c->call.dtype,
                               c->call.op, ddp_slices_rounded(&c->all, part, c->call.rounded));
    if (partials[0] != result)
        memcpy(result, partials[0], bytes);
    return DDP_OK;
}

static enum ddp_status sum_parts(struct nodes *nodes, struct nodes_slot *slot)
{
    const struct ddp_comm_place *place = nodes->place;
    const struct nodes_call *c = slot->call;
    const size_t spread = c->spread ? rail_bytes(nodes, c, slot->chunk) : 0;
    const size_t own = part_of(c, place->rank, slot->chunk).bytes;
    enum ddp_status status = DDP_OK;
    size_t before = 0;
    for (int p = 0; status == DDP_OK && p < nodes->peer_count; p++) {
        const int node = nodes->peers[p].node;
        const size_t all = (c->spread ? spread : own) * partials_of(c, node);
        if (!nodes->peers[p].sums_up)
            continue;
        status =
            nodes_check(nodes, &slot->ops[PARTS_IN][p], c->number, &c->call, wire_bytes(c, all));
        if (status == DDP_OK)
            unpack(c, slot->in + (size_t)node * nodes->room, all);
    }
    if (status == DDP_OK && !c->spread)
        return sum_slice(nodes, slot, place->rank, 0);
    for (int m = 0; status == DDP_OK && m < place->node_count; m++) {
        const int rank = nodes_on_rail(place, place->rank, m);
        status = sum_slice(nodes, slot, rank, before);
        before += part_of(c, rank, slot->chunk).bytes;
    }
    return status;
}

static void post_sums(struct nodes *nodes, struct nodes_slot *slot)
{
    const struct ddp_comm_place *place = nodes->place;
    const struct nodes_call *c = slot->call;
    const uint32_t index = 2 * slot->chunk + c->parts;
    const size_t own = part_of(c, place->rank, slot->chunk).bytes;
    /* This machine's partial sums, which may have been there, are added up by now. */
    const char *data = pack(c, slot->out + (size_t)nodes->peer_count * nodes->room,
                            own_slice(nodes, c, slot->chunk), own);
    for (int p = 0; p < nodes->peer_count; p++) {
        const struct nodes_peer *peer = &nodes->peers[p];
        const size_t theirs = part_of(c, peer->rank, slot->chunk).bytes;
        if (peer->owns)
            nodes_receive(nodes, p, &slot->ops[SUMS_IN][p], c->number, index,
                          mine_at(nodes, c, peer->rank, slot->chunk),
                          c->source == place->node ? 0 : wire_bytes(c, theirs));
        if (peer->sums_up)
            nodes_send(nodes, p, &slot->ops[SUMS_OUT][p], c->number, index, &c->call, data,
                       c->source == peer->node ? 0 : wire_bytes(c, own));
    }
}

/* --- copies: to the other ranks of the machine --- */

static void copy_slice(const struct nodes *nodes, const struct nodes_call *c, int rank,
                       uint32_t chunk)
{
    const struct ddp_comm_place *place = nodes->place;
    const size_t bytes = part_of(c, rank, chunk).bytes;
    const char *from = mine_at(nodes, c, rank, chunk);
    if (c->source == place->node)
        from = root_at(nodes, c, rank, chunk);
    else if (rank == place->rank)
        from = own_slice(nodes, c, chunk);
    for (int r = 0; bytes > 0 && r < place->node_size; r++) {
        char *to = at_of(c, r, rank, chunk);
        if (to != from)
            memcpy(to, from, bytes);
    }
}

static enum ddp_status take_sums(struct nodes *nodes, struct nodes_slot *slot)
{
    const struct ddp_comm_place *place = nodes->place;
    const struct nodes_call *c = slot->call;
    enum ddp_status status = DDP_OK;
    if (!c->sums)
        return DDP_OK;
    for (int p = 0; status == DDP_OK && p < nodes->peer_count; p++) {
        const struct nodes_peer *peer = &nodes->peers[p];
        const size_t bytes = part_of(c, peer->rank, slot->chunk).bytes;
        if (!peer->owns)
            continue;
        if (!c->spread)
            status = nodes_check(nodes, &slot->ops[SUMS_IN][p], c->number, &c->call,
                                 c->source == place->node ? 0 : wire_bytes(c, bytes));
        if (status == DDP_OK)
            unpack(c, mine_at(nodes, c, peer->rank, slot->chunk), bytes);
        if (status == DDP_OK)
            copy_slice(nodes, c, peer->rank, slot->chunk);
    }
    if (status == DDP_OK)
        copy_slice(nodes, c, place->rank, slot->chunk);
    return status;
}

/* --- moving on --- */

static struct nodes_slot *slot_at(struct nodes *nodes, uint64_t chunk)
{
    return &nodes->slots[chunk % NODES_DEPTH];
}

/* Has everything that was sent left the buffers? */
static bool sends_over(struct nodes *nodes, const struct nodes_slot *slot, enum ddp_status *status)
{
    return nodes_over(nodes, slot->ops[PARTS_OUT], status) &&
           nodes_over(nodes, slot->ops[SUMS_OUT], status);
}

/* The first call of which something is to be posted; NULL: there is none, or not all ranks here
 * have made it. */
static struct nodes_call *next_to_post(struct nodes *nodes, enum ddp_status *status)
{
    for (int i = 0; i < nodes->pending_count; i++) {
        struct nodes_call *c = nodes_pending(nodes, i);
        if (c->posted == c->chunks)
            continue;
        if (!c->ready) {
            *status = ddp_ledger_look(&nodes->shm.ledger, c->entry, &c->ready);
            if (*status == DDP_ERR_MISMATCH)
                nodes_tell_failure(nodes, c->number, &c->call);
            if (*status != DDP_OK || !c->ready || !nodes_find_buffers(nodes, c))
                return NULL;
            c->allowed = c->chunks;
        }
        return c->posted < c->allowed ? c : NULL;
    }
    return NULL;
}

static enum ddp_status post_some(struct nodes *nodes, bool *moved)
{
    enum ddp_status status = DDP_OK;
    struct nodes_call *c;
    while (nodes->posted - nodes->finished < NODES_DEPTH && (c = next_to_post(nodes, &status))) {
        struct nodes_slot *slot = slot_at(nodes, nodes->posted);
        if (!sends_over(nodes, slot, &status))
            return status;
        slot->call = c;
        slot->chunk = c->posted++;
        nodes->posted++;
        *moved = true;
        if (c->parts)
            status = post_parts(nodes, slot);
        if (status != DDP_OK)
            return status;
    }
    return status;
}

static enum ddp_status sum_some(struct nodes *nodes, bool *moved)
{
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && nodes->summed < nodes->posted) {
        struct nodes_slot *slot = slot_at(nodes, nodes->summed);
        if (slot->call->parts && !nodes_over(nodes, slot->ops[PARTS_IN], &status))
            return status;
        if (slot->call->parts)
            status = sum_parts(nodes, slot);
        if (status == DDP_OK && slot->call->sums && !slot->call->spread)
            post_sums(nodes, slot);
        nodes->summed++;
        *moved = true;
    }
    return status;
}

static enum ddp_status finish_some(struct nodes *nodes, bool *moved)
{
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && nodes->finished < nodes->summed) {
        struct nodes_slot *slot = slot_at(nodes, nodes->finished);
        if (slot->call->sums && !nodes_over(nodes, slot->ops[SUMS_IN], &status))
            return status;
        status = take_sums(nodes, slot);
        slot->call->finished++;
        nodes->finished++;
        *moved = true;
    }
    return status;
}

/* The others here may write to their buffers again when nothing of them is to be sent any more. */
static enum ddp_status tell_some(struct nodes *nodes, bool *moved)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; i < nodes->pending_count; i++) {
        struct nodes_call *c = nodes_pending(nodes, i);
        if (c->told)
            continue;
        if (c->finished < c->chunks)
            return DDP_OK;
        for (int s = 0; s < NODES_DEPTH; s++)
            if (nodes->slots[s].call == c && !sends_over(nodes, &nodes->slots[s], &status))
                return status;
        ddp_ledger_done(&nodes->shm.ledger, c->entry);
        *moved = c->told = true;
    }
    return DDP_OK;
}

enum ddp_status nodes_advance(struct nodes *nodes, bool *moved)
{
    *moved = nodes->ops->progress(nodes->wire);
    enum ddp_status status = sum_some(nodes, moved);
    if (status == DDP_OK)
        status = finish_some(nodes, moved);
    if (status == DDP_OK)
        status = post_some(nodes, moved);
    if (status == DDP_OK)
        status = tell_some(nodes, moved);
    return status;
}

/* Is nothing on its way? */
static bool is_quiet(struct nodes *nodes, enum ddp_status *status)
{
    for (int s = 0; s < NODES_DEPTH; s++)
        if (!sends_over(nodes, &nodes->slots[s], status))
            return false;
    return nodes->posted == nodes->finished && nodes->ops->flushed(nodes->wire);
}

static enum ddp_status too_late(const struct nodes *nodes)
{
    const bool parts = nodes->summed < nodes->posted;
    const uint64_t chunk = parts ? nodes->summed : nodes->finished;
    return ddp_fail(
        DDP_ERR_TIMEOUT, "waited %d ms for rank %d in a collective", nodes->place->timeout_ms,
        nodes_missing(nodes, nodes->slots[chunk % NODES_DEPTH].ops[parts ? PARTS_IN : SUMS_IN]));
}

/* Is there a call that not all ranks here have made? */
static bool awaits_here(const struct nodes *nodes)
{
    const int count = nodes->pending_count;
    return count > 0 && !nodes_pending(nodes, count - 1)->ready;
}

enum ddp_status nodes_drive(struct nodes *nodes, const struct nodes_call *until)
{
    int64_t deadline = ddp_deadline_ns(nodes->place->timeout_ms);
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status;
    bool moved;
    int idle = 0;
    while ((status = nodes_advance(nodes, &moved)) == DDP_OK && !(until && until->told)) {
        if (moved) {
            idle = 0;
            deadline = ddp_deadline_ns(nodes->place->timeout_ms);
            continue;
        }
        if (is_quiet(nodes, &status) || status != DDP_OK)
            break;
        if (ddp_deadline_passed(deadline))
            status = too_late(nodes);
        else
            status = nodes_nap(nodes, &idle, awaits_here(nodes));
        if (status != DDP_OK)
            break;
    }
    ddp_trace_end("wait", begin, "for node", -1);
    return status;
}

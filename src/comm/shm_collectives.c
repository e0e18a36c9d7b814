/* SPDX-License-Identifier: MIT
 *
 * The collectives of the shared-memory communicator; see shm.h. Registered buffers are worked on
 * where they lie, other memory goes through the slots, piece by piece. */
#include "config.h"

#include "comm/shm.h"

#include "comm/slices.h"
#include "core/trace.h"
#include "kernels/reduce.h"

#include <string.h>

#define LINE 64 /* slices begin at cache lines, counted from the buffer's start */

static struct ddp_slices slices_of(const struct shm *shm, const struct ddp_comm_call *call)
{
    return ddp_slices_of(call, shm->place, LINE);
}

/* --- where the buffers lie --- */

/* The parts of the slice at `at` bytes that are added up, in the order of the tree. */
static int list_sources(struct shm *shm, uint32_t number, const struct ddp_comm_roots *roots,
                        size_t at, const void **sources)
{
    int count = 0;
    for (int r = 0; r < shm->place->size; r++) {
        const char *first = shm_memory_of(shm, r, number) + at;
        for (int i = 0; i < ddp_comm_arrays(roots, r); i++)
            sources[count++] = first + (size_t)i * (roots ? roots->bytes : 0);
    }
    return count;
}

enum ddp_status shm_reduce_slice(struct shm *shm, uint32_t number, const struct ddp_comm_call *call)
{
    const struct ddp_slices all = slices_of(shm, call);
    const struct ddp_part own = ddp_slices_part(&all, all.rank, 0, all.count);
    void *parts[DDP_REDUCE_MAX];
    const void *sources[DDP_REDUCE_LEAVES];
    if (own.bytes == 0)
        return DDP_OK;
    const int count = list_sources(shm, number, call->roots, own.at, sources);
    for (int r = 0; r < all.size; r++)
        parts[r] = shm_memory_of(shm, r, number) + own.at;
    void *result = call->kind == DDP_COMM_REDUCE_SCATTER ? call->receive : parts[all.rank];
    struct ddp_reduce sum = ddp_slices_sum(call, count, sources, &result, own.bytes / all.element);
    sum.ends = call->roots ? call->roots->end : NULL;
    sum.rounded = (int64_t)ddp_slices_rounded(&all, own, call->rounded);
    if (call->kind == DDP_COMM_ALLREDUCE || call->kind == DDP_COMM_ALLREDUCE_START) {
        sum.destinations = parts; /* everybody's */
        sum.destination_count = all.size;
    }
    const int64_t began = ddp_trace_begin();
    enum ddp_status status = ddp_reduce(&sum);
    ddp_trace_end("reduce slice", began, "bytes", (int64_t)own.bytes);
    return status;
}

/* Each gives its slice to all; a root's everybody takes. */
static void gather_in_place(const struct shm *shm, uint32_t number, const struct ddp_slices *all,
                            const char *own)
{
    const struct ddp_part part = ddp_slices_part(all, all->rank, 0, all->count);
    if (all->root >= 0 && all->root != all->rank)
        memcpy(all->memory, shm_memory_of(shm, all->root, number), all->count * all->element);
    for (int i = 0; all->root < 0 && i < all->size; i++) {
        char *to = shm_memory_of(shm, (all->rank + i) % all->size, number) + part.at;
        if (to != own)
            memcpy(to, own, part.bytes);
    }
}

/* Can all buffers that others work on be reached? */
static bool all_registered(const struct shm *shm, uint32_t number, const struct ddp_slices *all)
{
    for (int r = 0; r < all->size; r++)
        if ((all->root < 0 || all->root == r) && !shm_memory_of(shm, r, number))
            return false;
    return true;
}

/* --- memory that is not registered --- */

static char *slot_of(const struct shm *shm, int rank)
{
    char *slots = shm->ledger.rest;
    return slots + ((size_t)rank * 2 + shm->exchanges % 2) * SHM_SLOT_BYTES;
}

/* Waits until everybody has filled its slot, or has come to a call that moves nothing. A slot is
 * used again two exchanges later, and by then everybody has announced the next one, so has read
 * this. */
static enum ddp_status meet(struct shm *shm, const struct ddp_comm_call *call)
{
    uint32_t number;
    return ddp_ledger_meet(&shm->ledger, call, DDP_LEDGER_NOWHERE, NULL, 0, &number);
}

/* Each piece holds the same elements of every rank's slice. Everybody shows theirs, and adds up its
 * own slice's into `result`. */
static enum ddp_status reduce_staged(struct shm *shm, const struct ddp_slices *all, char *result,
                                     const struct ddp_comm_call *call)
{
    const size_t stride = SHM_SLOT_BYTES / LINE / (size_t)all->size * LINE;
    const size_t piece = stride / all->element, longest = ddp_slices_longest(all);
    enum ddp_status status = DDP_OK;
    for (size_t at = 0; status == DDP_OK && at < longest; at += piece, shm->exchanges++) {
        const struct ddp_part own = ddp_slices_part(all, all->rank, at, piece);
        const void *sources[DDP_REDUCE_MAX];
        for (int r = 0; r < all->size; r++) {
            const struct ddp_part part = ddp_slices_part(all, r, at, piece);
            sources[r] = slot_of(shm, r) + (size_t)all->rank * stride;
            if (r != all->rank)
                memcpy(slot_of(shm, all->rank) + (size_t)r * stride, all->memory + part.at,
                       part.bytes);
        }
        sources[all->rank] = all->memory + own.at;
        status = meet(shm, call);
        void *destination = result + at * all->element;
        const struct ddp_reduce sum =
            ddp_slices_sum(call, all->size, sources, &destination, own.bytes / all->element);
        if (status == DDP_OK && own.bytes > 0)
            status = ddp_reduce(&sum);
    }
    return status;
}

/* Everybody shows its slice, and takes the others'. */
static enum ddp_status gather_staged(struct shm *shm, const struct ddp_slices *all, const char *own,
                                     const struct ddp_comm_call *call)
{
    const size_t piece = SHM_SLOT_BYTES / all->element, longest = ddp_slices_longest(all);
    for (size_t at = 0; at < longest; at += piece, shm->exchanges++) {
        const char *shown = own + at * all->element;
        memcpy(slot_of(shm, all->rank), shown, ddp_slices_part(all, all->rank, at, piece).bytes);
        enum ddp_status status = meet(shm, call);
        if (status != DDP_OK)
            return status;
        for (int r = 0; r < all->size; r++) {
            const struct ddp_part part = ddp_slices_part(all, r, at, piece);
            if (r != all->rank || all->memory + part.at != shown)
                memcpy(all->memory + part.at, slot_of(shm, r), part.bytes);
        }
    }
    return DDP_OK;
}

/* --- all of them --- */

/* Every rank adds up the payloads of all. */
static enum ddp_status reduce_payloads(struct shm *shm, const struct ddp_comm_call *call)
{
    const void *sources[DDP_REDUCE_MAX];
    uint32_t number;
    enum ddp_status status =
        ddp_ledger_meet(&shm->ledger, call, DDP_LEDGER_NOWHERE, call->send, call->bytes, &number);
    if (status != DDP_OK)
        return status;
    for (int r = 0; r < shm->place->size; r++)
        sources[r] = ddp_ledger_entry(&shm->ledger, r, number)->payload;
    const struct ddp_reduce sum =
        ddp_slices_sum(call, shm->place->size, sources, &call->receive, call->count);
    return ddp_reduce(&sum);
}

/* Block `number`, of `most` elements, is the part of an all-reduce that goes through the slots at
 * once. */
static struct ddp_slices block_of(const struct shm *shm, const struct ddp_comm_call *call,
                                  size_t most, size_t number)
{
    struct ddp_comm_call block = *call;
    const size_t element = call->bytes / call->count, from = number * most;
    block.count = from >= call->count ? 0 : call->count - from < most ? call->count - from : most;
    block.receive = (char *)call->receive + from * element;
    return slices_of(shm, &block);
}

/* Block by block, so that what the others read is in a cache still. At a meeting each rank shows
 * its part of every other rank's slice of this block, and, in the place of its own, the sum of its
 * slice of the block before. */
static enum ddp_status allreduce_staged(struct shm *shm, const struct ddp_comm_call *call)
{
    const int size = shm->place->size, rank = shm->place->rank;
    const size_t stride = SHM_SLOT_BYTES / LINE / (size_t)size * LINE;
    const size_t most = stride * (size_t)size / (call->bytes / call->count);
    const size_t blocks = (call->count + most - 1) / most;
    struct ddp_slices before = {.count = 0};
    enum ddp_status status = DDP_OK;
    for (size_t b = 0; status == DDP_OK && b <= blocks; b++) {
        const struct ddp_slices now = block_of(shm, call, most, b);
        const struct ddp_part own = ddp_slices_part(&now, rank, 0, most);
        const void *sources[DDP_REDUCE_MAX];
        for (int r = 0; r < size; r++) {
            const struct ddp_part part = ddp_slices_part(&now, r, 0, most);
            sources[r] = slot_of(shm, r) + (size_t)rank * stride;
            if (r != rank)
                memcpy(slot_of(shm, rank) + (size_t)r * stride, now.memory + part.at, part.bytes);
        }
        sources[rank] = now.memory + own.at;
        status = meet(shm, call);
        for (int r = 0; status == DDP_OK && b > 0 && r < size; r++) {
            const struct ddp_part part = ddp_slices_part(&before, r, 0, most);
            if (r != rank)
                memcpy(before.memory + part.at, slot_of(shm, r) + (size_t)r * stride, part.bytes);
        }
        shm->exchanges++;
        void *results[] = {now.memory + own.at, slot_of(shm, rank) + (size_t)rank * stride};
        struct ddp_reduce sum =
            ddp_slices_sum(call, size, sources, results, own.bytes / now.element);
        sum.destination_count = 2;
        if (status == DDP_OK && own.bytes > 0)
            status = ddp_reduce(&sum);
        before = now;
    }
    return status;
}

enum ddp_status shm_collective(struct shm *shm, const struct ddp_comm_call *call)
{
    uint32_t number;
    if (call->kind == DDP_COMM_ALLREDUCE && call->bytes <= DDP_LEDGER_PAYLOAD)
        return reduce_payloads(shm, call);
    if (call->bytes == 0)
        return meet(shm, call);
    const struct ddp_slices all = slices_of(shm, call);
    const uint64_t offset = shm_offset_of(shm, all.memory, all.count * all.element);
    enum ddp_status status = ddp_ledger_meet(&shm->ledger, call, offset, NULL, 0, &number);
    if (status != DDP_OK)
        return status;
    const bool reduces = ddp_comm_kinds[call->kind].reduces;
    const char *own = call->kind == DDP_COMM_ALL_GATHER
                          ? call->send
                          : all.memory + ddp_slices_part(&all, all.rank, 0, all.count).at;
    if (!all_registered(shm, number, &all)) {
        if (call->kind == DDP_COMM_ALLREDUCE)
            return allreduce_staged(shm, call);
        return reduces ? reduce_staged(shm, &all, call->receive, call)
                       : gather_staged(shm, &all, own, call);
    }
    if (reduces)
        status = shm_reduce_slice(shm, number, call);
    else
        gather_in_place(shm, number, &all, own);
    if (status != DDP_OK)
        return status;
    ddp_ledger_done(&shm->ledger, number);
    return ddp_ledger_wait_done(&shm->ledger, number);
}
